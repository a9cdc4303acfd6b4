"""The functions of this family as operators of torch, for calls that torch must see.

These are calls under torch.compile and torch.export, with fake tensors or subclasses of tensors, and under a dispatch
mode or a transform of torch.func. All others are launched without an operator.

An operator is registered at the first call that needs it, in a namespace made from the family's import path. `NAME`
returns new results. `NAME_out` fills the results that it is given, and returns nothing.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import flop_counter

from . import private
from .added_modules import added
from .call import index_of, written
from .contract_errors import (
    MISSING,
    NO_TRANSFORM,
    NOT_FUNCTIONAL,
    name_contract,
    of_transform,
)
from .contracts import (
    Config,
    ConfiguredCall,
    Function,
    Operands,
    Result,
    within,
    without_sum,
)
from .launchable import as_plain, refuse_tangents
from .registration import LIBRARY, NAMESPACE, looped, operator, register
from .signatures import Contract, Signature

# The types of products that `backward: kernels` makes gradients of.
_DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32)
_FILLED = "a call that fills tensors it is given records none: do not give `out` or outputs, or use torch.no_grad()"


def caller(contract: Contract) -> ConfiguredCall:
    """A function that calls the contract by its operators: `call(a, b, out, config, operands)`.

    It registers the operators. The function raises TypeError for operands that no operator takes and where autocast is
    to a type that the family lacks, RuntimeError where a gradient would be recorded and none is computed,
    NotImplementedError for transforms without a rule, and what the contract's kernels raise.
    """
    name, gradient = contract.name, contract.gradient
    signature = Signature(contract.table)
    sharding = added("sharding")
    returning, filler = _operators(contract, signature, sharding)
    if sharding is not None:
        sharding.register()
    # Found here, because torch.compile cannot trace the import of a kernel.
    saving = None
    if gradient and "saving" in gradient:
        gemm = contract.function(gradient["saving"])
        gemm.register()
        saving = operator(gradient["saving"]), Signature(gemm.table)
    placed: Callable[..., Tensor] | None = None
    if gradient and "scatter" in signature.optional:
        placed = importlib.import_module(".autograd", __package__).placed
    casts = None if contract.casts is None else {x: contract.function(other) for x, other in contract.casts.items()}

    def returned(
        operator: Callable[..., Result],
        signature: Signature,
        a: Tensor,
        b: Tensor,
        config: int | None,
        operands: Operands,
    ) -> Result:
        """What an operator returns: that of this contract, or of the one that saves the sum, called in its place."""
        try:
            return operator(*signature.packed(a, b, operands), config)
        except (TypeError, ValueError) as error:
            name_contract(error, name, a, b)
            raise
        except RuntimeError as error:
            if of_transform(error):
                raise NotImplementedError(f"{name}: {NO_TRANSFORM}") from None
            if sharding is None and "sharding strategy" in str(error):
                raise NotImplementedError(f"{name}: for DTensor, {MISSING.format('dtensor')}") from None
            raise

    def call(a: Tensor, b: Tensor, out: Tensor | None, config: Config | int | None, operands: Operands) -> Result:
        given: Operands = {"a": a, "b": b, "out": out, **operands}
        tensors = {x: value for x, value in given.items() if isinstance(value, Tensor)}
        for x, value in tensors.items():
            # Torch cannot trace the layout in a backward pass.
            if not torch.compiler.is_compiling() and (value.layout is not torch.strided or value.is_nested):
                layout = "nested" if value.is_nested else value.layout
                raise TypeError(f"{name}: {x} must be a dense tensor, got one of layout {layout}")
            # Torch cannot trace is_neg(), and resolves such views before it calls an operator.
            if x in signature.results and not torch.compiler.is_compiling() and value.is_neg():
                raise TypeError(f"{name}: {x} must be a plain tensor, got a view of negated memory")
        present = [x for x in (*signature.optional, *signature.results) if given.get(x) is not None]
        if not all(x in tensors for x in ("a", "b", *signature.tensors, *present)):
            try:
                # It says which one is no tensor.
                found: Result = contract.table(config, a=a, b=b, **operands, out=out)
                return found
            except (TypeError, ValueError) as error:
                name_contract(error, name)
                raise
        config = index_of(config)
        if not (config is None or isinstance(config, int)) or isinstance(config, bool):
            raise TypeError(f"{name}: config must be an index where torch traces or transforms the call")
        if casts is not None and not a.is_meta and torch.is_autocast_enabled(a.device.type):
            return _cast(name, casts, a, b, out, config, operands)
        refuse_tangents(name, tensors.values())
        results = {x: value for x, value in tensors.items() if x in signature.results}
        divided = sharding is not None and not (torch.compiler.is_compiling() or within.sharded)
        if divided and sharding.sharded(tensors.values()):
            within.sharded = True
            try:
                return call(a, b, out, config, operands)
            finally:
                within.sharded = False
        if torch.is_grad_enabled():
            recorded = [x for x, value in tensors.items() if value.requires_grad]
            if recorded and placed is not None and [*results] == ["out"] and operands.get("scatter") is not None:
                return scattered(a, b, results["out"], config, operands)
            if recorded and (gradient is None or results):
                raise RuntimeError(f"{name}: {_recorded(recorded)}, and {_FILLED if gradient else _why_none(contract)}")
            if recorded and saving is not None:
                return without_sum(returned(*saving, a, b, config, operands))
        if out is None:
            found = returned(returning, signature, a, b, config, operands)
            if not results:
                return found
            # Some outputs are given, but not `out`.
            return tuple(results[x].copy_(y) if x in results else y for x, y in zip(signature.results, found))
        if len(results) < len(signature.results):
            state = contract.table.state({"a": a, "b": b, **operands, **results})
            results |= {x.name: x.new(state) for x in contract.table.results if x.name not in results}
        try:
            filler(*signature.packed(a, b, operands), *(results[x] for x in signature.results), config)
        except RuntimeError as error:
            if "functionalizing" in str(error):
                raise NotImplementedError(f"{name}: {NOT_FUNCTIONAL}") from None
            raise
        return out if len(results) == 1 else tuple(results[x] for x in signature.results)

    def scattered(a: Tensor, b: Tensor, out: Tensor, config: int | None, operands: Operands) -> Result:
        """A call that fills rows of `out`, for which a gradient is recorded: the product, whose rows torch writes."""
        assert placed is not None
        scatter = operands["scatter"]
        # The shapes are checked, and the result is not used.
        contract.table.checked({"a": a, "b": b, "out": out, **operands})
        found = call(a, b, None, config, {**operands, "scatter": None})
        result, *outputs = found if isinstance(found, tuple) else (found,)
        filled = placed(out, result, scatter, operands["offsets"])
        return (filled, *outputs) if outputs else filled

    return call


def _recorded(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'requires' if len(names) == 1 else 'require'} a gradient"


def _why_none(contract: Contract) -> str:
    """Why a contract records no gradient, and what to do about it."""
    (a, b, *others), out = contract.table.operands, contract.table.results[0]
    divided = len(out.shape) > len(a.shape)
    stored = any(x.name in ("a_scale", "b_scale", "b_index") for x in others)
    if stored or divided or out.read or not all(x.dtype in _DIFFERENTIABLE for x in (a, b, out)):
        return "no gradients of such a product are computed: call it under torch.no_grad()"
    if contract.backward:
        return "this contract is only for gradients of others: list it in the spec for its own, or use torch.no_grad()"
    return "this contract records none: call it under torch.no_grad(), or render the family with `backward: kernels`"


def _operators(
    contract: Contract, signature: Signature, sharding: Any
) -> tuple[Callable[..., Result], Callable[..., None]]:
    """Register the operators of a contract: one that returns new results, and one that fills those it is given.

    `sharding`: the module of that name, or None.
    """
    name, shown = contract.name, contract.shown
    contiguous = {x.name: x.unit for x in contract.table.operands}
    units = [contiguous.get(x) for x in signature.places]

    def run(*arguments: Any) -> Result:
        a, b, *_ = plain = [as_plain(x) for x in arguments]
        if within.sharded:
            a, b, *_ = plain = sharding.laid_out(plain, units)
        operands, (config,) = signature.unpacked(plain)
        return direct(a, b, None, config, operands)

    def fill(*arguments: Any) -> None:
        a, b, *_ = plain = [as_plain(x) for x in arguments]
        operands, (out, *outputs, config) = signature.unpacked(plain)
        direct(a, b, out, config, {**operands, **dict(zip(signature.results[1:], outputs))})
        written(out, *outputs)

    def direct(a: Tensor, b: Tensor, out: Tensor | None, config: int | None, operands: Operands) -> Result:
        if contract.gradient is None and torch.is_grad_enabled():
            # An exported program calls the operator itself.
            recorded = [
                x for x, value in {"a": a, "b": b, **operands}.items() if getattr(value, "requires_grad", False)
            ]
            if recorded:
                raise RuntimeError(f"{shown}: {_recorded(recorded)}, and {_why_none(contract)}")
        within.operator = True
        try:
            return contract.direct(a, b, out, config, operands)
        finally:
            within.operator = False

    def described(*arguments: Any) -> Any:
        operands, (*results, _) = signature.unpacked(arguments)
        try:
            # Of fake tensors, the results alone are made.
            found = contract.table(a=arguments[0], b=arguments[1], **operands, **dict(zip(signature.results, results)))
        except (TypeError, ValueError) as error:
            name_contract(error, shown)
            raise
        return None if results else found

    def over_batch(
        info: Any, dimensions: Sequence[int | None], *arguments: Any
    ) -> tuple[Result, int | tuple[int, ...]]:
        if contract.batched is None and contract.backward and contract.gradient is None:
            # A contract that only gradients need, as of a Jacobian.
            return looped(operator(name), info, dimensions, arguments)
        if contract.batched is None:
            raise NotImplementedError(f"{shown}: torch.vmap needs the contract for a batch, which this family lacks")
        given, places = list(arguments), dict(zip(signature.places, dimensions))
        for index, (x, place) in enumerate(places.items()):
            value = given[index]
            matrix = isinstance(value, Tensor) and value.dim() - (place is not None) == 2
            if matrix and x not in signature.numbers:
                given[index] = value.expand(info.batch_size, *value.shape) if place is None else value.movedim(place, 0)
            elif place is not None:
                raise NotImplementedError(f"{shown}: torch.vmap over {x}, which all products of a batch share")
        operands, (config,) = signature.unpacked(given)
        found = contract.function(contract.batched)(*given[:2], config=config, **operands)
        return found, 0 if len(signature.results) == 1 else (0,) * len(signature.results)

    register(signature.schema(name), run, described)
    register(signature.schema(name, filled=True), fill, described)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", over_batch, lib=LIBRARY)
    _count(name)
    if sharding is not None:
        operands, results = ({x.name: x.shape for x in y} for y in (contract.table.operands, contract.table.results))
        summed = ["K"] if contract.additive else []
        sizes = ("B", "M", "N")
        sharding.later(sharding.Divisible(name, signature.places, operands, [*results.values()], sizes, summed))
    if contract.gradient is not None and "a" in contract.gradient:
        autograd = importlib.import_module(".autograd", __package__)
        of = autograd.autograd(contract, signature, contract.gradient)
        torch.library.register_autograd(f"{NAMESPACE}::{name}", of.backward, setup_context=of.setup, lib=LIBRARY)
    return operator(name), operator(f"{name}_out")


def _count(name: str) -> None:
    """Register with torch's counter how many floating-point operations the operators of a contract perform."""
    packets = [getattr(getattr(torch.ops, NAMESPACE), x) for x in (name, f"{name}_out")]
    formula = flop_counter.register_flop_formula(packets)(_product_flops)
    for mode in private.active_modes():
        # A counter copies the formulas when it is made; this call may be its first one.
        counter = getattr(mode, "counter", None)
        if isinstance(counter, flop_counter.FlopCounterMode):
            counter.flop_registry.update(dict.fromkeys(packets, formula))


def _product_flops(a_shape: Sequence[int], b_shape: Sequence[int], *_: Any, **__: Any) -> int:
    """Floating-point operations of the product, as torch counts those of `a @ b`; the chain is not counted."""
    return 2 * math.prod(a_shape) * b_shape[-1]


def _cast(
    name: str,
    casts: Mapping[str, Function],
    a: Tensor,
    b: Tensor,
    out: Tensor | None,
    config: int | None,
    operands: Operands,
) -> Result:
    """The call of `name` under autocast, with `a` and `b` cast as those of torch.matmul are; `casts` are functions."""
    device = a.device.type
    dtype = torch.get_autocast_dtype(device)
    word = str(dtype).removeprefix("torch.")
    if word not in casts:
        raise TypeError(f"{name}: autocast is to {word}, and this family lacks this contract for that type")
    # A weight that is stored in another type than it is multiplied in stays as it is.
    a, b = (
        x.to(dtype) if own.dtype == dtype and x.is_floating_point() and x.dtype != torch.float64 else x
        for x, own in zip((a, b), casts[word].table.operands)
    )
    try:
        with torch.autocast(device, enabled=False):
            found: Result = casts[word](a, b, out=out, config=config, **operands)
            return found
    except (TypeError, ValueError) as error:
        name_contract(error, name)
        raise
