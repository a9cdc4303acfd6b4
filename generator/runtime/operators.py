"""The functions of this family as operators of torch, for calls that torch must see.

These are calls under torch.compile and torch.export, with fake tensors or subclasses of tensors, and under a dispatch
mode, autocast or a transform of torch.func. All others are launched without an operator.

An operator is registered at the first call that needs it, in a namespace made from the family's import path. `NAME`
returns new results. `NAME_out` fills the results that it is given, and returns nothing.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import importlib
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import flop_counter
from triton import knobs

from . import private
from .call import index_of
from .launch import (
    Config,
    Function,
    Operands,
    Result,
    added,
    in_forward_mode,
    name_contract,
    registering,
    within,
)
from .private import constant, count_modes, is_tracing, transforming

# The family's import path, in the letters that torch takes; a path that it would not show has its checksum behind it.
FAMILY = __name__.rsplit(".", 2)[0]
NAMESPACE = re.sub(r"\W", "_", FAMILY.replace(".", "__"), flags=re.ASCII)
if NAMESPACE[0].isdigit():
    NAMESPACE = f"_{NAMESPACE}"
if NAMESPACE.split("__") != FAMILY.split("."):
    NAMESPACE += f"__{zlib.crc32(FAMILY.encode()):08x}"


def _library() -> tuple[str, Any]:
    """A namespace that no earlier import of the family in this process has, and its library."""
    namespace, number = NAMESPACE, 2
    while True:
        try:
            return namespace, torch.library.Library(namespace, "DEF")  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if "TORCH_LIBRARY" not in str(error):
                raise
        namespace, number = f"{NAMESPACE}__{number}", number + 1


NAMESPACE, LIBRARY = _library()

# The types of products that `backward: kernels` makes gradients of.
_DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32)
#: Why a transform of torch.func has no derivative.
NO_TRANSFORM = "torch.func.grad, vjp and jacrev do not reach operators of torch; use torch.autograd"
#: What is said in the place of an error of torch's that has these words.
_REFUSED = {
    "functorch transforms": NO_TRANSFORM,
    "functionalizing": "torch.func.functionalize takes no operator that fills a tensor: call it without `out`",
    "sharding strategy": "for DTensor, add 'dtensor' to the key `with` of the spec, and give no `out`",
}
# Kernels run on the CPU in Triton's interpreter.
_DEVICE = "cpu" if knobs.runtime.interpret else "cuda"


def operator(name: str) -> Any:
    """A registered operator of this family; AttributeError if it has no operator of that name."""
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def register(schema: str, run: Callable[..., Any], described: Callable[..., Any]) -> None:
    """Define an operator: what it runs, and the shapes, strides and types of its results.

    `run` and `described` take the arguments of the schema: `run` as plain tensors, and `described` fake ones.
    """
    name = LIBRARY.define(schema)
    for device in ("CUDA", "CPU"):
        LIBRARY.impl(name, lambda *arguments: run(*map(private.as_plain, arguments)), device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", described, lib=LIBRARY)


def loop_over_batch(name: str) -> None:
    """Register for torch.vmap, as of a Jacobian, that an operator runs for each of a batch, one after the other."""
    one = operator(name)

    def rule(info: Any, dimensions: Sequence[Any], *arguments: Any) -> tuple[Any, Any]:
        results = []
        for index in range(info.batch_size):
            each = zip(arguments, dimensions)
            results.append(one(*(x.select(dim, index) if isinstance(dim, int) else x for x, dim in each)))
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])

    torch.library.register_vmap(f"{NAMESPACE}::{name}", rule, lib=LIBRARY)


class Signature:
    """The parameters of an operator: each is an operand, and each number also a tensor of one element.

    `tensors` must be given, and `optional` may be left out; `numbers` are a call's, by name. `results` are the names of
    those of a contract, of which `out` is the first.
    """

    def __init__(
        self, tensors: Sequence[str], numbers: Mapping[str, Any], optional: Sequence[str], results: Sequence[str] = ()
    ) -> None:
        self.tensors, self.numbers, self.optional, self.results = tensors, numbers, optional, results
        #: The operand of each parameter; a number as such is of none.
        self.places = [*tensors, *(part for x in numbers for part in (x, f"{x}_number")), *optional]
        parameters = [*(f"Tensor {x}" for x in tensors), *(f"Tensor? {x}_tensor, float {x}_number" for x in numbers)]
        #: The parameters in the words of `torch.library`.
        self.schema = ", ".join([*parameters, *(f"Tensor? {x}" for x in optional)])

    def packed(self, given: Operands) -> list[Any]:
        """The arguments for operands by name; a node of a graph stands for a tensor."""
        arguments = [given[x] for x in self.tensors]
        for x, own in self.numbers.items():
            number = given[x]
            if isinstance(number, (Tensor, torch.fx.Node)):
                arguments += [number, 0.0]
            else:
                arguments += [None, number if isinstance(number, float) else own.number(number)]
        return [*arguments, *(given.get(x) for x in self.optional)]

    def unpacked(self, arguments: Sequence[Any]) -> tuple[Operands, Sequence[Any]]:
        """The operands that such arguments are of, by name, and the arguments behind them."""
        given = dict(zip(self.places, arguments))
        for x in self.numbers:
            number = given.pop(f"{x}_number")
            if given[x] is None:
                given[x] = number
        return {x: value for x, value in given.items() if value is not None}, arguments[len(self.places) :]


def requiring(names: Sequence[str]) -> str:
    """The beginning of a message on operands that require a gradient."""
    return f"{', '.join(names)} {'requires' if len(names) == 1 else 'require'} a gradient"


def without_sum(results: Any) -> Result:
    """What a contract returns, of the results of the one that saves the sum, its second result, in its place."""
    result: Result = (results[0], *results[2:]) if len(results) > 2 else results[0]
    return result


class Operator(Function):
    """A function that torch may see: it has operators.

    `function` returns the function of another contract, by name. `casts`: the contract for each type that autocast
    casts to, by its name in torch; None for contracts that autocast leaves as they are. `batched`: the contract for a
    batch. `additive`: whether products of parts of K may be added up after the call: nothing follows the product.
    """

    #: What computes the gradients (`autograd`), and whether some contracts of the family have any (`differentiable`).
    gradient: Mapping[str, Any] | None = None
    backward = False

    def __init__(
        self,
        name: str,
        kernels: Sequence[str],
        load: Callable[[str], Any],
        function: Callable[[str], Any],
        *,
        casts: Mapping[str, str] | None = None,
        batched: str | None = None,
        additive: bool = False,
        **choice: Any,
    ) -> None:
        super().__init__(name, kernels, load, **choice)
        self.function, self.casts, self.batched, self.additive = function, casts, batched, additive
        more = self.table.operands[2:]
        tensors = ["a", "b", *(x.name for x in more if x.shape and x.name in self.needed)]
        numbers = {x.name: x for x in more if not x.shape}
        optional = [x for x in self.beside if x not in self.needed]
        self.signature = Signature(tensors, numbers, optional, ["out", *self.outputs])
        self.sharding = added("sharding")
        # Functions that calls in place of this one go to, found by `register`: torch.compile cannot trace an import.
        self.others: dict[str, Operator] = {}
        # The operators, made by `register`: torch.compile does not see attributes that change during a call.
        self.returning: Callable[..., Result] | None = None
        self.filling: Callable[..., None] | None = None
        # The name that errors show where the caller is not known: not that of a contract called in another's place.
        self.shown = name

    def watched(self) -> bool:
        return bool(
            torch.compiler.is_compiling()
            or is_tracing()
            or count_modes()
            or transforming()
            or torch.is_autocast_enabled(_DEVICE)
            or in_forward_mode()
        )

    def layer(self, x: Tensor, weight: Tensor, operands: Operands) -> Result | None:
        """A call of a layer for which a gradient is recorded; None for any other (`differentiable`)."""
        return None

    def prepare(self, *sizes: Any, **options: Any) -> int:
        """Compile what calls of some sizes can run, before the first call; the module `prepare` tells the arguments."""
        module = added("prepare")
        if module is None:
            raise AttributeError(f"{self.name} has no 'prepare'; add 'prepare' to the key `with` of the spec")
        return module.prepare(self, *sizes, **options)  # type: ignore[no-any-return]

    @constant
    def register(self) -> bool:
        """Register the operators, once; torch.compile runs this as it traces."""
        with registering:
            if self.returning is None:
                # Threads may have made two objects of one contract.
                if not hasattr(getattr(torch.ops, NAMESPACE), self.name):
                    _define(self)
                self.returning, self.filling = operator(self.name), operator(f"{self.name}_out")
                self.others = {x: self.function(x) for x in (self.casts or {}).values()}
                if self.sharding is not None:
                    self.sharding.register()
        return True

    def seen(self, a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands) -> Result:
        """A call that torch must see, or one with a wrong operand.

        Raises TypeError for operands that no operator takes and where autocast is to a type that the family lacks,
        RuntimeError where a gradient would be recorded and none is computed, NotImplementedError for transforms without
        a rule, and what the contract's kernels raise.
        """
        self.check(operands)
        compiling = torch.compiler.is_compiling()
        if not compiling and is_tracing():
            raise NotImplementedError(f"{self.name}: torch.jit.trace does not record it; use torch.export")
        self.register()
        signature = self.signature
        given: Operands = {"a": a, "b": b, "out": out, **operands}
        tensors = {x: value for x, value in given.items() if isinstance(value, Tensor)}
        for x, value in tensors.items():
            # Torch cannot trace the layout in a backward pass.
            if not compiling and (value.layout is not torch.strided or value.is_nested):
                layout = "nested" if value.is_nested else value.layout
                raise TypeError(f"{self.name}: {x} must be a dense tensor, got one of layout {layout}")
            # Torch cannot trace is_neg(), and resolves such views before it calls an operator.
            if x in signature.results and not compiling and value.is_neg():
                raise TypeError(f"{self.name}: {x} must be a plain tensor, got a view of negated memory")
        present = [x for x in (*signature.optional, *signature.results) if given.get(x) is not None]
        if not all(x in tensors for x in (*signature.tensors, *present)):
            # It says which one is no tensor.
            return self.named(self.table, config, a=a, b=b, **operands, out=out)  # type: ignore[no-any-return]
        config = index_of(config)
        if not (config is None or isinstance(config, int)) or isinstance(config, bool):
            raise TypeError(f"{self.name}: config must be an index where torch traces or transforms the call")
        if self.casts is not None and not a.is_meta and torch.is_autocast_enabled(a.device.type):
            return self.cast(a, b, out, config, operands)
        private.refuse_tangents(self.name, tensors.values())
        results = {x: value for x, value in tensors.items() if x in signature.results}
        if self.sharding is not None and not (compiling or within.sharded) and self.sharding.sharded(tensors.values()):
            within.sharded = True
            try:
                return self.seen(a, b, out, config, operands)
            finally:
                within.sharded = False
        if torch.is_grad_enabled():
            recorded = [x for x, value in tensors.items() if value.requires_grad]
            recorded_result = self.recording(recorded, a, b, results, config, operands) if recorded else None
            if recorded_result is not None:
                return recorded_result
        if out is None:
            returned: Any = self.returned(self, a, b, config, operands)
            if not results:
                return returned  # type: ignore[no-any-return]
            # Some outputs are given, but not `out`.
            return tuple(results[x].copy_(y) if x in results else y for x, y in zip(signature.results, returned))
        if len(results) < len(signature.results):
            state = self.table.state({"a": a, "b": b, **operands, **results})
            results |= {x.name: x.new(state) for x in self.table.results if x.name not in results}
        self.named(self.filling, *self.named(signature.packed, given), *map(results.get, signature.results), config)
        return out if len(results) == 1 else tuple(results[x] for x in signature.results)

    def named(self, call: Any, *arguments: Any, **operands: Any) -> Any:
        """What a call returns; its error names this contract, also where that of another is called in its place."""
        try:
            return call(*arguments, **operands)
        except (TypeError, ValueError) as error:
            name_contract(error, self.name)
            raise
        except RuntimeError as error:
            for words, message in _REFUSED.items():
                if words in str(error):
                    raise NotImplementedError(f"{self.name}: {message}") from None
            raise

    def returned(self, own: Operator, a: Tensor, b: Tensor, config: int | None, operands: Operands) -> Any:
        """What an operator returns: that of this contract, or of the one that saves the sum, called in its place."""
        arguments = self.named(own.signature.packed, {"a": a, "b": b, **operands})
        return self.named(own.returning, *arguments, config)

    def recording(
        self, recorded: list[str], a: Tensor, b: Tensor, results: Operands, config: int | None, operands: Operands
    ) -> Result | None:
        """A call of which torch must see that it records gradients of operands, or None where its operator does.

        Raises RuntimeError for a contract without them.
        """
        raise RuntimeError(f"{self.name}: {requiring(recorded)}, and {self.why_none()}")

    def cast(self, a: Tensor, b: Tensor, out: Tensor | None, config: int | None, operands: Operands) -> Result:
        """The call under autocast, with `a` and `b` cast as those of torch.matmul are."""
        device = a.device.type
        dtype = torch.get_autocast_dtype(device)
        word = str(dtype).removeprefix("torch.")
        if self.casts is None or word not in self.casts:
            raise TypeError(f"{self.name}: autocast is to {word}, and this family lacks this contract for that type")
        function = self.others[self.casts[word]]
        # A weight that is stored in another type than it is multiplied in stays as it is.
        a, b = (
            x.to(dtype) if own.dtype == dtype and x.is_floating_point() and x.dtype != torch.float64 else x
            for x, own in zip((a, b), function.table.operands)
        )
        with torch.autocast(device, enabled=False):
            return self.named(function, a, b, out=out, config=config, **operands)  # type: ignore[no-any-return]

    def why_none(self) -> str:
        """Why the contract records no gradient, and what to do about it."""
        (a, b, *others), out = self.table.operands, self.table.results[0]
        divided = len(out.words) > len(a.words)
        stored = any(x.name in ("a_scale", "b_scale", "b_index") for x in others)
        if stored or divided or out.read or not all(x.dtype in _DIFFERENTIABLE for x in (a, b, out)):
            return "no gradients of such a product are computed: call it under torch.no_grad()"
        if self.backward:
            return "this contract is only for gradients of others: list it in the spec, or use torch.no_grad()"
        return "this contract records none: use torch.no_grad(), or render the family with `backward: kernels`"


def _define(contract: Operator) -> None:
    """Register the operators of a contract: one that returns new results, and one that fills those it is given."""
    name, table, signature, sharding = contract.name, contract.table, contract.signature, contract.sharding
    contiguous = {x.name: x.unit for x in table.operands}
    places = [*signature.places, "config"]
    units = [contiguous.get(x) for x in places]

    def run(*arguments: Any) -> Result | None:
        if within.sharded:
            arguments = sharding.laid_out(arguments, units)
        operands, (*results, config) = signature.unpacked(arguments)
        if contract.gradient is None and torch.is_grad_enabled():
            # An exported program calls the operator itself.
            recorded = [x for x, value in operands.items() if getattr(value, "requires_grad", False)]
            if recorded:
                raise RuntimeError(f"{contract.shown}: {requiring(recorded)}, and {contract.why_none()}")
        a, b, out = operands.pop("a"), operands.pop("b"), results[0] if results else None
        within.operator = True
        try:
            returned = contract.direct(a, b, out, config, {**operands, **dict(zip(signature.results[1:], results[1:]))})
        finally:
            within.operator = False
        return None if results else returned

    def described(*arguments: Any) -> Any:
        operands, (*results, _) = signature.unpacked(arguments)
        try:
            # Of fake tensors, the results alone are made.
            outputs = table(**operands, **dict(zip(signature.results, results)))
        except (TypeError, ValueError) as error:
            name_contract(error, contract.shown)
            raise
        return None if results else outputs

    def over_batch(info: Any, dimensions: Sequence[int | None], *arguments: Any) -> tuple[Result, Any]:
        if contract.batched is None:
            reason = "torch.vmap needs the contract for a batch, which this family lacks"
            raise NotImplementedError(f"{contract.shown}: {reason}")
        shared = {x.name for x in contract.function(contract.batched).table.operands if x.shared}
        given = list(arguments)
        for index, (x, dim) in enumerate(zip(places, dimensions)):
            value = given[index]
            matrix = isinstance(value, Tensor) and value.dim() - (dim is not None) == 2
            if matrix and x not in signature.numbers:
                given[index] = value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            elif dim is not None and x in shared:
                given[index] = value.movedim(dim, 0)
            elif dim is not None:
                reason = f"torch.vmap over {x}, which all products of a batch share"
                raise NotImplementedError(f"{contract.shown}: {reason}")
        operands, (config,) = signature.unpacked(given)
        results = contract.function(contract.batched)(config=config, **operands)
        return results, 0 if len(signature.results) == 1 else (0,) * len(signature.results)

    returned = ", ".join(["Tensor"] * len(signature.results))
    filled = ", ".join([f"Tensor({chr(ord('a') + index)}!) {x}_result" for index, x in enumerate(signature.results)])
    register(f"{name}({signature.schema}, int? config) -> ({returned})", run, described)
    register(f"{name}_out({signature.schema}, {filled}, int? config) -> ()", run, described)
    if contract.batched is None and contract.backward and contract.gradient is None:
        # A contract that only gradients need, as of a Jacobian.
        loop_over_batch(name)
    else:
        torch.library.register_vmap(f"{NAMESPACE}::{name}", over_batch, lib=LIBRARY)
    _count(name)
    if sharding is not None:
        shapes = {x.name: x.words for x in table.operands}, [x.words for x in table.results]
        summed = ["K"] if contract.additive else []
        sharding.later(sharding.Divisible(name, places, *shapes, ("B", "M", "N"), summed))
    if contract.gradient is not None and "a" in contract.gradient:
        backward, setup, _ = importlib.import_module(".autograd", __package__).autograd(contract)
        torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup, lib=LIBRARY)


def _count(name: str) -> None:
    """Register with torch's counter how many floating-point operations the operators of a contract perform."""
    packets = [getattr(getattr(torch.ops, NAMESPACE), x) for x in (name, f"{name}_out")]
    # As torch counts those of `a @ b`; the chain is not counted.
    formula = flop_counter.register_flop_formula(packets)(lambda a, b, *_, **__: 2 * math.prod(a) * b[-1])
    for mode in private.active_modes():
        # A counter copies the formulas when it is made; this call may be its first one.
        counter = getattr(mode, "counter", None)
        if isinstance(counter, flop_counter.FlopCounterMode):
            counter.flop_registry.update(dict.fromkeys(packets, formula))
