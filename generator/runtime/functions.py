"""How the functions of this family run: for each call signature a kernel's plan is made and launched once, and cached.

The signature of a call is the shapes, strides, types, devices and alignment of its operands. What was checked, chosen
and compiled for the first call holds for every other one of the same signature: its launch is repeated with the
addresses and numbers of the other call. If launches of the installed Triton cannot be repeated (`relaunch.KNOWN`), a
cached call is the kernel's own `gemm`.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from triton import knobs

from . import cached_launch, private, relaunch
from .added_modules import added
from .alignment import whole_and_crossing
from .call import Call, written
from .call_signatures import SIGNATURES, kind_of, kind_of_product
from .call_tensors import State
from .contract_errors import MISSING, by_keyword, name_contract
from .contracts import (
    CachedCall,
    CallOperands,
    Config,
    ConfiguredCall,
    Function,
    KernelModule,
    Operands,
    RecordedCall,
    Result,
    Step,
    registering,
)
from .launchable import require_apart, special

_REFUSED = "no kernel accepts the operands:\n"

# What calls a contract by its operators, by the contract's name. Threads register an operator once.
_callers: dict[str, ConfiguredCall] = {}

# Whether autocast is on for the device that kernels run on.
_autocasting: Callable[[], bool] = torch.is_autocast_enabled
if knobs.runtime.interpret:
    _autocasting = functools.partial(torch.is_autocast_enabled, "cpu")


def contract(
    name: str,
    kernels: Sequence[str],
    load: Callable[[str], KernelModule],
    function: Callable[[str], Function],
    *,
    twins: Mapping[str, str] | None = None,
    turns: Collection[str] | None = None,
    across: Mapping[str, str] | None = None,
    summed: bool = False,
    casts: Mapping[str, str] | None = None,
    batched: str | None = None,
    gradient: Mapping[str, Any] | None = None,
    backward: bool = False,
    additive: bool = False,
    tuned: Any = None,
    analytic: Any = None,
    nominal: Callable[[Call, Tensor, Tensor, Tensor | None, Operands], CallOperands] | None = None,
) -> Function:
    """The function of the contract `name`: it takes what the `gemm` of each of its kernels takes.

    `kernels`: their names, in the order in which they are tried. `load` imports one.
    `function`: returns the function of another contract, by name.
    `twins`: the contracts for the other layout of `a` or `b`.
    `turns`: not None if an operand is copied to that layout where this is faster (`turned.worth_turning`).
    `across`: the contracts for an `a` or `b` that is copied so that K is not contiguous (`turned.worth_across`).
    `summed`: whether a kernel for few rows reads both operands of `across` as they are.
    `casts`: the contract for each type that autocast casts to, by its name in torch; None for contracts that autocast
    leaves as they are.
    `batched`: the contract for a batch.
    `gradient`: what computes the gradients (`autograd`). `backward`: whether some contracts of the family have any.
    `additive`: whether products of parts of K may be added up after the call: nothing follows the product.
    `tuned`: chooses by measurements. `analytic`: chooses by a cost model where there are none.
    `nominal`: returns operands that do not have the call's M. A kernel is chosen by them, and nothing is copied
    (`invariant`).
    """
    first = load(kernels[0])
    table = first.CALL
    outputs = [x.name for x in table.results[1:]]
    beside = [x.name for x in table.operands[2:]]
    needed = {x.name for x in table.operands[2:] if x.absent is None}
    known = {*(x.name for x in table.operands[2:]), *outputs}
    cached: dict[tuple[object, ...], CachedCall] = {}
    recorder: RecordedCall | None = None
    operators: dict[str, ConfiguredCall] = {}
    grouped = "offsets" in known
    copied = nominal is None and not grouped
    other: Callable[..., Any] | None = None
    best: Callable[..., Any] | None = None
    if twins or across:
        turned = importlib.import_module(".turned", __package__)
        other = turned.other(function, twins or {}, turns, across or {}, summed)
    if tuned is not None or analytic is not None:
        ranking = importlib.import_module(".ranking", __package__)
        best = ranking.best(name, table, kernels, tuned, analytic)
    copies: Any = importlib.import_module(".copies", __package__) if copied else None
    bf16 = torch.bfloat16 in [x.dtype for x in table.operands] and knobs.runtime.interpret
    modes, forward, transforming = private.count_modes, private.forward_mode, private.transforming
    compiling, tracing, recording = torch.compiler.is_compiling, private.is_tracing, torch.is_grad_enabled
    tensor, parameter = Tensor, torch.nn.Parameter

    # The modules of all kernels, which are imported when one has to be chosen.
    loaded = functools.cache(lambda: tuple([load(kernel) for kernel in kernels]))

    def hidden(a: Tensor, b: Tensor) -> bool:
        """Whether torch need not see a call with these tensors."""
        return not (
            compiling()
            or tracing()
            or modes()
            or transforming()
            or _autocasting()
            # A level of forward-mode differentiation is open.
            or forward._current_level >= 0
            or (type(a) is not tensor and type(a) is not parameter)
            or (type(b) is not tensor and type(b) is not parameter)
            # A view of negated memory, as `z.conj().imag` is, which torch resolves for its operators.
            or a.is_neg()
            or b.is_neg()
        )

    @functools.wraps(first.gemm)
    def gemm(
        a: Tensor, b: Tensor, *more: Any, out: Tensor | None = None, config: Config | int | None = None, **operands: Any
    ) -> Result:
        if more:
            raise by_keyword(name, 2 + grouped, [x for x in (*beside, *outputs) if x != "offsets"])
        if not hidden(a, b):
            return seen(a, b, out, config, operands)
        needs = recording() and (a.requires_grad or b.requires_grad)
        if operands or out is not None:
            kind = special(out, *operands.values())
            if kind is None or (out is not None and (needs or kind)):
                scattered = kind is not None and operands.get("scatter") is not None
                return (record if scattered else seen)(a, b, out, config, operands)
            needs = needs or kind
        if needs:
            return record(a, b, None, config, operands)
        found = direct(a, b, out, config, operands)
        if out is not None or (operands and outputs):
            written(out, *map(operands.get, outputs))
        return found

    def record(a: Tensor, b: Tensor, out: Tensor | None, config: Config | int | None, operands: Operands) -> Result:
        """A call for which a gradient is recorded."""
        if gradient is None or any(x in operands for x in outputs):
            return seen(a, b, out, config, operands)
        return recorded(a, b, config, operands, of_layer=False, out=out)

    def layer(x: Tensor, weight: Tensor, operands: Operands) -> Result | None:
        """The call of a layer with its input (..., K) and weight (N, K); the result is (..., N).

        None unless a gradient is recorded, nothing is copied, and torch need not see more.
        """
        if gradient is None or not hidden(x, weight):
            return None
        if not (x.dim() > 1 and x.is_contiguous() and weight.is_contiguous()):
            return None
        kind = special(*operands.values())
        if kind or (kind is not None and recording() and (x.requires_grad or weight.requires_grad)):
            return recorded(x, weight, None, operands, of_layer=True)
        return None

    def recorded(
        a: Tensor,
        b: Tensor,
        config: Config | int | None,
        operands: Operands,
        *,
        of_layer: bool,
        out: Tensor | None = None,
    ) -> Result:
        """A call that a function of torch's records."""
        nonlocal recorder
        check(operands)
        if recorder is None:
            with registering:
                functions_of_torch = importlib.import_module(".recorded", __package__)
                made: RecordedCall = functions_of_torch.recorder(described())
                recorder = made
        try:
            return recorder(a, b, out, config, operands, of_layer)
        except (TypeError, ValueError) as error:
            name_contract(error, name, a, b)
            raise

    def described() -> Any:
        """What operators and recorded calls of the contract are made of."""
        from .signatures import Contract

        return Contract(name, table, direct, load, function, casts, batched, gradient, backward, additive)

    def register() -> bool:
        """Register the operators, once, and keep the function that calls them; torch.compile runs this as it traces."""
        with registering:
            if name not in _callers:
                from . import operators as registry

                _callers[name] = registry.caller(described())
                # A compiled backward pass that torch finds in its cache calls these operators, and is not traced.
                for other in _backward(gradient):
                    function(other).register()
            operators["call"] = _callers[name]
        return True

    register = private.constant(register)

    def seen(a: Tensor, b: Tensor, out: Tensor | None, config: Config | int | None, operands: Operands) -> Result:
        """A call that torch must see, or one with a wrong operand."""
        check(operands)
        if not compiling() and tracing():
            raise NotImplementedError(f"{name}: torch.jit.trace does not record it; use torch.export")
        register()
        return operators["call"](a, b, out, config, operands)

    def direct(a: Tensor, b: Tensor, out: Tensor | None, config: Config | int | None, operands: Operands) -> Result:
        """A call that torch need not see."""
        kind: tuple[object, ...] | None
        try:
            kind = kind_of_product(a, b)
            if out is not None or operands:
                kind = *kind, kind_of(out), *operands, *map(kind_of, operands.values())
                if out is not None or outputs:
                    results = {"out": out, **{x: operands.get(x) for x in outputs}}
                    _check_apart(name, results, {"a": a, "b": b, **{x: operands.get(x) for x in beside}})
            call = cached.get(kind) if config is None else None
        except RuntimeError:
            # A tensor without memory, as in a transform of torch.func.
            return seen(a, b, out, config, operands)
        except (AttributeError, TypeError):
            # Not a tensor: the kernel's `gemm` reports what is wrong.
            kind = call = None
        if call is not None:
            return call(a, b, out, operands)
        check(operands)
        try:
            return uncached(kind if config is None else None, a, b, out, config, operands)
        except (TypeError, ValueError) as error:
            name_contract(error, name, a, b)
            raise

    def check(operands: Operands) -> None:
        """Raise TypeError unless the keywords are those of the contract."""
        if not (all(x in operands for x in needed) and all(x in known for x in operands)):
            wrong = {"missing": needed - operands.keys(), "unexpected": operands.keys() - known}
            listed = [f"{what} {', '.join(sorted(names))}" for what, names in wrong.items() if names]
            raise TypeError(f"{name}() got wrong keyword arguments: {'; '.join(listed)}")

    def uncached(
        kind: tuple[object, ...] | None,
        a: Tensor,
        b: Tensor,
        out: Tensor | None,
        config: Config | int | None,
        operands: Operands,
    ) -> Result:
        """The first call of a signature, which is cached as `kind`, or a call with a configuration."""
        if getattr(a, "is_meta", False):
            return first.gemm(a, b, **operands, out=out, config=config)
        if bf16:
            interpreted_bf16 = importlib.import_module(".interpreted_bf16", __package__)
            interpreted_bf16.check(a, b)
        if kind is not None:
            following, state = planned(a, b, out, operands)
            if following[0] is not None:
                copier, continued, _ = following
                call = _copying(continued, copier)
                _cache(cached, kind, call)
                return call(a, b, out, operands)
            _, target, row = following
            if _on_gpu(a):
                result, call = cached_launch.launched(
                    target, row, a, b, out, operands, accepted=nominal is None, state=state
                )
                _cache(cached, kind, call)
                return result
            return target.gemm(a, b, **operands, out=out, config=row)
        taking, reasons = accepting(*chosen_by(a, b, out, operands))
        if not taking:
            raise ValueError(_REFUSED + "\n".join(reasons))
        return taking[0].gemm(a, b, **operands, out=out, config=config)

    def accepting(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> tuple[list[KernelModule], list[str]]:
        """The kernels that accept the operands, in order, and why each of the others does not."""
        every = [*loaded()]
        try:
            state = table.state({"a": a, "b": b, "out": out, **operands})
        except (TypeError, ValueError):
            # The kernel's call reports what is wrong.
            return every, []
        found = [(kernel, kernel.CALL.reason(state)) for kernel in every]
        reasons = [f"{name}: {why}" for name, (_, why) in zip(kernels, found) if why is not None]
        return [kernel for kernel, why in found if why is None], reasons

    def chosen_by(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> CallOperands:
        """The operands by which a kernel is chosen."""
        return (a, b, out, operands) if nominal is None else nominal(table, a, b, out, operands)

    def step(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Step:
        """What a call with tensors does next: `(copier, function, None)` or `(None, kernel, configuration)`.

        With a copier, the call continues as a call of that function with what the copier returns for `a` and `b`.
        Raises ValueError if no kernel accepts the operands.
        """
        return planned(a, b, out, operands)[0]

    def planned(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> tuple[Step, State | None]:
        """As `step`, and the call with its sizes where they have been found on the way."""
        twin = None if other is None else other(a, b, _on_gpu(a))
        if twin is not None:
            return (*twin, None), None
        like = chosen_by(a, b, out, operands)
        gpu = _on_gpu(a) and min(a.dim(), b.dim()) > 1
        copying = gpu and copied
        # Operands of whole rows are aligned, and the choice reads how they lie too.
        lies = (whole_and_crossing(a), whole_and_crossing(b)) if copying else None
        aligning = lies is not None and not (lies[0][0] and lies[1][0]) and copies.worth_aligning(a, b)
        lining, comparable = copying and copies.worth_lining(a, b), gpu
        if best is not None and gpu and not (aligning or lining):
            # The kernel that is chosen among all is the one among those that accept, if it accepts.
            state = table.state({"a": like[0], "b": like[1], "out": like[2], **like[3]})
            found = best(loaded(), state, lies)
            if found is not None and found[0].CALL.reason(state) is None:
                return (None, *found), state if nominal is None else None
            comparable = found is not None
        taking, reasons = accepting(*like)
        refused = aligning and len(taking) < len(kernels)
        if refused or lining:
            copier: Any = (copies.aligning if refused else copies.lining)(a, b, keep=relaunch.KNOWN)
            like_a, like_b = copier.like(a, b)
            more, _ = accepting(like_a, like_b, out, operands)
            if more and (not refused or not taking or more[0] is not taking[0]):
                return (copier, shown, None), None
        if not taking:
            raise ValueError(_REFUSED + "\n".join(reasons))
        found = None
        if best is not None and comparable:
            found = best(taking, table.state({"a": like[0], "b": like[1], **like[3]}))
        # Where neither measurements nor a cost model compare kernels, the first one chooses its own configuration.
        return ((None, *found) if found else (None, taking[0], None)), None

    shown: Any = gemm
    if grouped:
        grouped_calls = importlib.import_module(".grouped_calls", __package__)
        shown = functools.wraps(gemm)(grouped_calls.positional(shown))
    shown.__name__ = shown.__qualname__ = name
    # Where pickle looks for it.
    shown.__module__ = __name__.rsplit(".", 2)[0]
    shown.check, shown.step, shown.register, shown.records = check, step, register, gradient is not None
    shown.recorded, shown.layer, shown.direct, shown.table = recorded, layer, direct, table
    shown.repeated = lambda a, b: cached.get(kind_of_product(a, b))
    shown.which, shown.prepare = _deferred("which", shown), _deferred("prepare", shown)
    own: Function = shown
    return own


def _backward(gradient: Mapping[str, Any] | None) -> list[str]:
    """The contracts that the backward pass of a contract calls."""
    return [gradient[x][0] for x in ("a", "b") if x in gradient] if gradient else []


def _deferred(action: str, gemm: Function) -> Callable[..., Any]:
    """The function of a module of its name, for calls of `gemm`; the module is imported when it is first called."""

    def deferred(*arguments: Any, **options: Any) -> Any:
        found = added(action)
        if found is None:
            raise AttributeError(f"{gemm.__name__} has no {action!r}; {MISSING.format(action)}")
        return getattr(found, action)(gemm, *arguments, **options)

    deferred.__name__ = deferred.__qualname__ = action
    return deferred


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _copying(gemm: Function, copier: Any) -> CachedCall:
    """A call of `gemm` with copies of its operands."""
    return lambda a, b, out, operands: gemm(*copier(a, b), out=out, **operands)


def _check_apart(name: str, results: Operands, read: Operands) -> None:
    """Raise ValueError where a result of the contract `name` surely has elements of one that is read, or of another."""
    try:
        require_apart(results, read)
    except ValueError as error:
        name_contract(error, name)
        raise


def _cache(cached: dict[tuple[object, ...], CachedCall], kind: tuple[object, ...], call: CachedCall) -> None:
    """Cache the call of a signature; a full cache is cleared first."""
    if len(cached) >= SIGNATURES:
        cached.clear()
    cached[kind] = call
