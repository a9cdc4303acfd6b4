"""How the functions of this family run: for each call signature a kernel's plan is made and launched once, and cached.

The signature of a call is the shapes, strides, types, devices and alignment of its operands. What was checked, chosen
and compiled for the first call holds for every other one of the same signature: its launch is repeated with the
addresses and numbers of the other call. If launches of the installed Triton cannot be repeated (`relaunch.KNOWN`), a
cached call is the kernel's own `gemm`.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import torch
import triton
from torch.utils._python_dispatch import _len_torch_dispatch_stack  # type: ignore[attr-defined]

from . import cached_launch, copies, interpreted_bf16, relaunch
from .contracts import (
    CachedCall,
    CallOperands,
    Choice,
    Config,
    ConfiguredCall,
    Extents,
    Function,
    Gradient,
    Kernel,
    Measured,
    Modelled,
    Operands,
    Result,
    Sizes,
    Step,
    Table,
    name_contract,
    written,
)

# How many call signatures a function caches before it clears the cache.
_SIGNATURES = 4096

# The types of operands that torch need not see: numbers, and tensors that are of no subclass.
_PLAIN = {float, int, type(None)}

# What calls a contract by its operators, by the contract's name. Threads register an operator once.
_callers: dict[str, ConfiguredCall] = {}
_registering = threading.RLock()

# Whether autocast is on for the device that kernels run on.
_autocasting: Callable[[], bool] = torch.is_autocast_enabled
if triton.knobs.runtime.interpret:
    _autocasting = functools.partial(torch.is_autocast_enabled, "cpu")


def contract(
    name: str,
    kernels: Sequence[str],
    load: Callable[[str], Kernel],
    function: Callable[[str], Function],
    *,
    described: Callable[[], tuple[Table, Extents]],
    twins: Mapping[str, str] | None = None,
    turns: Collection[str] | None = None,
    across: Mapping[str, str] | None = None,
    summed: bool = False,
    gated: bool = False,
    shapes: Mapping[str, str] | None = None,
    casts: Mapping[str, str] | None = None,
    batched: str | None = None,
    gradient: Gradient | None = None,
    backward: bool = False,
    tuned: Measured | None = None,
    analytic: Modelled | None = None,
    nominal: Callable[[Table, torch.Tensor, torch.Tensor, torch.Tensor | None, Operands], CallOperands] | None = None,
) -> Function:
    """The function of the contract `name`: it takes what the `gemm` of each of its kernels takes.

    `kernels`: their names, in the order in which they are tried. `load` imports one.
    `function`: returns the function of another contract, by name.
    `described`: returns the dtypes and shapes of the operands, and the extents among them that are no size (`prepare`).
    `twins`: the contracts for the other layout of `a` or `b`.
    `turns`: not None if an operand is copied to that layout where this is faster (`copies.worth_turning`).
    `across`: the contracts for an `a` or `b` that is copied so that K is not contiguous (`copies.worth_across`).
    `summed`: whether a kernel for few rows reads both operands of `across` as they are.
    `gated`: whether N is half of b's columns.
    `shapes`: the shape of each auxiliary output, "MN", "M2N", "2NM", "M" or "N".
    `casts`: the contract for each type that autocast casts to, by its name in torch; None for contracts that autocast
    leaves as they are.
    `batched`: the contract for a batch.
    `gradient`: what computes the gradients (`autograd`). `backward`: whether some contracts of the family have any.
    `tuned`: chooses by measurements. `analytic`: chooses by a cost model where there are none.
    `nominal`: returns operands that do not have the call's M. A kernel is chosen by them, and nothing is copied
    (`invariant`).
    """
    twins, across, shapes = twins or {}, across or {}, shapes or {}
    first = load(kernels[0])
    parameters = inspect.signature(first.gemm).parameters
    known = parameters.keys() - {"a", "b", "out", "config"}
    # Auxiliary outputs are optional.
    needed = {name for name in known if parameters[name].default is inspect.Parameter.empty}
    cached: dict[tuple[object, ...], CachedCall] = {}
    operators: dict[str, ConfiguredCall] = {}
    loaded: list[Kernel] = []
    grouped = "offsets" in known
    compiling, recording = torch.compiler.is_compiling, torch.is_grad_enabled
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    deterministic, forward = torch.are_deterministic_algorithms_enabled, torch.autograd.forward_ad

    @_wraps(first.gemm)
    def gemm(
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        out: torch.Tensor | None = None,
        config: Config | int | None = None,
        **operands: Any,
    ) -> Result:
        if (
            compiling()
            or _len_torch_dispatch_stack()
            or _autocasting()
            # A level of forward-mode differentiation is open.
            or forward._current_level >= 0
            or (type(a) is not tensor and type(a) is not parameter)
            or (type(b) is not tensor and type(b) is not parameter)
            or (recording() and (a.requires_grad or b.requires_grad))
            # A view of negated memory, as `z.conj().imag` is, which torch resolves for its operators.
            or a.is_neg()
            or b.is_neg()
            or ((operands or out is not None) and _special(out, *operands.values()))
        ):
            return seen(a, b, out, config, operands)
        found = direct(a, b, out, config, operands)
        if out is not None or (operands and shapes):
            written(out, *map(operands.get, shapes))
        return found

    def register() -> bool:
        """Register the operators, once, and keep the function that calls them; torch.compile runs this as it traces."""
        with _registering:
            if name not in _callers:
                from . import operators as registry
                from .signatures import Contract

                of = Contract(name, first.gemm, direct, load, function, shapes, casts, batched, gradient, backward)
                _callers[name] = registry.caller(of)
                # A compiled backward pass that torch finds in its cache calls these operators, and is not traced.
                for other in _backward(gradient):
                    function(other).register()
            operators["call"] = _callers[name]
        return True

    # What torch.compiler.assume_constant_result does, without its import of the compiler.
    register._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def seen(
        a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, config: Config | int | None, operands: Operands
    ) -> Result:
        """A call that torch must see, or one with a wrong operand."""
        check(operands)
        register()
        return operators["call"](a, b, out, config, operands)

    def direct(
        a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, config: Config | int | None, operands: Operands
    ) -> Result:
        """A call that torch need not see."""
        kind: tuple[object, ...] | None
        both: tuple[object, ...]
        try:
            where = a.device, b.device, a.data_ptr() % 16, b.data_ptr() % 16
            both = a.dtype, b.dtype, *where, deterministic()
            if out is None and not operands:
                kind = a.shape, b.shape, a.stride(), b.stride(), both
            else:
                more = _kind(out), *operands, *map(_kind, operands.values())
                kind = a.shape, b.shape, a.stride(), b.stride(), both, more
                if out is not None:
                    _check_unshared(name, out, a, b)
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
            name_contract(error, name)
            raise

    def check(operands: Operands) -> None:
        """Raise TypeError unless the keywords are those of the contract."""
        if not (all([x in operands for x in needed]) and all([x in known for x in operands])):
            wrong = {"missing": needed - operands.keys(), "unexpected": operands.keys() - known}
            listed = [f"{what} {', '.join(sorted(names))}" for what, names in wrong.items() if names]
            raise TypeError(f"{name}() got wrong keyword arguments: {'; '.join(listed)}")

    def uncached(
        kind: tuple[object, ...] | None,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor | None,
        config: Config | int | None,
        operands: Operands,
    ) -> Result:
        """The first call of a signature, which is cached as `kind`, or a call with a configuration."""
        if getattr(a, "is_meta", False):
            return first.gemm(a, b, **operands, out=out, config=config)
        interpreted_bf16.check(a, b)
        if kind is not None:
            following = step(a, b, out, operands)
            if following[0] is not None:
                copier, continued, _ = following
                call = _copying(continued, copier)
                _cache(cached, kind, call)
                return call(a, b, out, operands)
            _, target, row = following
            if _on_gpu(a):
                result, call = cached_launch.launched(target, row, a, b, out, operands)
                _cache(cached, kind, call)
                return result
            return target.gemm(a, b, **operands, out=out, config=row)
        taking, reasons = _accepting(kernels, load, *chosen_by(a, b, out, operands))
        if taking:
            return taking[0].gemm(a, b, **operands, out=out, config=config)
        raise _refused(reasons)

    def chosen_by(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, operands: Operands) -> CallOperands:
        """The operands by which a kernel is chosen."""
        return (a, b, out, operands) if nominal is None else nominal(described()[0], a, b, out, operands)

    def step(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, operands: Operands) -> Step:
        """What a call with tensors does next: `(copier, function, None)` or `(None, kernel, configuration)`.

        With a copier, the call continues as a call of that function with what the copier returns for `a` and `b`.
        Raises ValueError if no kernel accepts the operands.
        """
        other = _twin(a, b, function, twins, turns, across, summed)
        if other is not None:
            return *other, None
        like = chosen_by(a, b, out, operands)
        gpu = _on_gpu(a) and min(a.dim(), b.dim()) > 1
        copied = gpu and nominal is None and not grouped
        aligning, lining = copied and copies.worth_aligning(a, b), copied and copies.worth_lining(a, b)
        comparable = gpu
        if gpu and not (aligning or lining):
            # The kernel that is chosen among all is the one among those that accept, if it accepts.
            if not loaded:
                loaded[:] = [load(kernel) for kernel in kernels]
            found = best(loaded, *like)
            if found is not None and _refusal(found[0], *like) is None:
                return None, *found
            comparable = found is not None
        taking, reasons = _accepting(kernels, load, *like)
        refused = aligning and len(taking) < len(kernels)
        if refused or lining:
            copier = (copies.aligning if refused else copies.lining)(a, b, keep=relaunch.KNOWN)
            like_a, like_b = copier.like(a, b)
            more, _ = _accepting(kernels, load, like_a, like_b, out, operands)
            if more and (not refused or not taking or more[0] is not taking[0]):
                return copier, gemm, None
        if not taking:
            raise _refused(reasons)
        found = best(taking, *like) if comparable else None
        # Where neither measurements nor a cost model compare kernels, the first one chooses its own configuration.
        return (None, *found) if found else (None, taking[0], None)

    def best(
        taking: list[Kernel], a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, operands: Operands
    ) -> Choice | None:
        """The kernel of `taking` and the configuration by measurements or by the analytic cost model, or None."""
        columns = b.shape[-1] // 2 if gated else b.shape[-1]
        sizes: Sizes = (*a.shape[:-1], columns, a.shape[-1])
        skewed: Sequence[Sizes] = ()
        if grouped and (tuned is not None or analytic is not None):
            sizes, *skewed = _spread(a, b, columns, operands["offsets"], operands.get("rows"))
        if (tuned is None and analytic is None) or min(sizes) == 0:
            return None
        # Measurements are of loads from whole rows; others are as fast only if the hardware copies them, where it can.
        fast = taking
        if any(["_descriptor_" in kernel for kernel in kernels]) and not copies.all_whole(a, b):
            fast = [kernel for kernel in taking if "a_desc" in kernel.gemm_kernel.arg_names]
        found = None
        if tuned is not None:
            crossing = copies.crosses(a), copies.crosses(b)
            found = tuned.choose(name, fast, sizes, a.element_size(), a.device, crossing, tuple(skewed))
        if found is None and analytic is not None:
            found = analytic.choose(name, tuple(fast or taking), sizes, a.device, tuple(skewed))
        return found

    if grouped:
        gemm = _positional(gemm)
    gemm.__name__ = gemm.__qualname__ = name
    gemm.check, gemm.step, gemm.register = check, step, register
    gemm.described = described
    gemm.which, gemm.prepare = _deferred("which", gemm), _deferred("prepare", gemm)
    return gemm


def _wraps(gemm: Callable[..., Result]) -> Callable[[Callable[..., Result]], Function]:
    """`functools.wraps(gemm)`, for a function that will have the attributes of `Function`."""
    return cast("Callable[[Callable[..., Result]], Function]", functools.wraps(gemm))


def _spread(
    a: torch.Tensor, b: torch.Tensor, columns: int, offsets: torch.Tensor, rows: torch.Tensor | None
) -> list[tuple[int, int, int, int]]:
    """The number of groups, M, N and K for each way that `spreading` assumes, as only the device knows the groups."""
    from . import spreading

    if b.dim() == 3:
        total = len(a if rows is None else rows)
        return [(count, m, columns, a.shape[1]) for count, m in spreading.ways(min(total, len(b)), total)]
    return [(count, len(a), columns, k) for count, k in spreading.ways(len(offsets), a.shape[1])]


def _positional(gemm: Function) -> Function:
    """The function with `offsets` behind `b`."""

    @_wraps(gemm)
    def grouped(
        a: torch.Tensor,
        b: torch.Tensor,
        offsets: torch.Tensor,
        *,
        out: torch.Tensor | None = None,
        config: Config | int | None = None,
        **operands: Any,
    ) -> Result:
        return gemm(a, b, out=out, config=config, offsets=offsets, **operands)

    return grouped


def _backward(gradient: Gradient | None) -> list[str]:
    """The contracts that the backward pass of a contract calls."""
    return [gradient[x][0] for x in ("a", "b") if x in gradient] if gradient else []


def _deferred(action: str, gemm: Function) -> Callable[..., Any]:
    """A function of `prepare`, for calls of `gemm`; the module is imported when it is first called."""

    def deferred(*arguments: Any, **options: Any) -> Any:
        from . import prepare

        return getattr(prepare, action)(gemm, *arguments, **options)

    deferred.__name__ = deferred.__qualname__ = action
    return deferred


def _refused(reasons: list[str]) -> ValueError:
    return ValueError("no kernel accepts the operands:\n" + "\n".join(reasons))


def _special(*operands: Any) -> bool:
    """Whether torch must see a call with these operands.

    One is of a subclass or a view of negated memory, or a gradient is recorded for it.
    """
    recording = torch.is_grad_enabled()
    for x in operands:
        if type(x) is torch.Tensor or type(x) is torch.nn.Parameter:
            if (recording and x.requires_grad) or x.is_neg():
                return True
        elif type(x) not in _PLAIN:
            return True
    return False


def _on_gpu(x: torch.Tensor) -> bool:
    return x.is_cuda


def _twin(
    a: torch.Tensor,
    b: torch.Tensor,
    function: Callable[[str], Function],
    twins: Mapping[str, str],
    turns: Collection[str] | None,
    across: Mapping[str, str],
    summed: bool,
) -> tuple[copies.AnyCopier, Function] | None:
    """A copier, and the contract for the other layout of one operand: for a vector, or for an operand worth a copy."""
    if across and _on_gpu(a) and torch.version.hip is None and a.dim() == b.dim() == 2:
        operand = copies.worth_across(a, b, across, 8 if summed else 1)
        if operand is not None:
            return copies.across(operand, keep=relaunch.KNOWN), function(across[operand])
    if "a" in twins and a.dim() == 2 and a.shape[0] == 1 and a.stride(1) == 1:
        return copies.AsRow("a"), function(twins["a"])
    if "b" in twins and b.dim() == 2 and b.shape[1] == 1 and b.stride(0) == 1:
        return copies.AsRow("b"), function(twins["b"])
    whole = twins and _on_gpu(a) and min(a.dim(), b.dim()) > 1
    operand = copies.worth_turning(a, b, twins, turns) if whole else None
    return None if operand is None else (copies.turning(operand, keep=relaunch.KNOWN), function(twins[operand]))


def _copying(gemm: Function, copier: copies.AnyCopier) -> CachedCall:
    """A call of `gemm` with copies of its operands."""
    return lambda a, b, out, operands: gemm(*copier(a, b), out=out, **operands)


def _check_unshared(name: str, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError where `out` surely has elements of an operand.

    Both begin with the same element, or overlap without gaps.
    """
    for operand, x in (("a", a), ("b", b)):
        own, other = out.data_ptr(), x.data_ptr()
        # On the device "meta" the address is 0, and so it is without elements.
        if not (own and other) or out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
            continue
        gapless = all([each.is_contiguous() or each.mT.is_contiguous() for each in (out, x)])
        if own == other or (gapless and own < other + x.nbytes and other < own + out.nbytes):
            raise ValueError(f"{name}: out shares memory with {operand}, which is read while out is written")


def _kind(x: object) -> object:
    """The part of the call signature that is due to one operand: all but its address or its value."""
    if isinstance(x, torch.Tensor):
        return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16
    return type(x)


def _cache(cached: dict[tuple[object, ...], CachedCall], kind: tuple[object, ...], call: CachedCall) -> None:
    """Cache the call of a signature; a full cache is cleared first."""
    if len(cached) >= _SIGNATURES:
        cached.clear()
    cached[kind] = call


def _refusal(
    kernel: Kernel, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, operands: Operands
) -> str | None:
    """Why a kernel does not accept the operands, or None."""
    return kernel.refusal(a, b, **operands, out=out) if hasattr(kernel, "refusal") else None


def _accepting(
    kernels: Sequence[str],
    load: Callable[[str], Kernel],
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    operands: Operands,
) -> tuple[list[Kernel], list[str]]:
    """The kernels that accept the operands, in order, and why each of the others does not."""
    taking: list[Kernel] = []
    reasons: list[str] = []
    for name in kernels:
        kernel = load(name)
        reason = _refusal(kernel, a, b, out, operands)
        if reason is None:
            taking.append(kernel)
        else:
            reasons.append(f"{name}: {reason}")
    return taking, reasons
