"""What a tensor must be so that a kernel can read it or write to it, whatever its shape and type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_plain(x: object) -> bool:
    """Whether a tensor is of no subclass but torch's parameters."""
    return type(x) is Tensor or type(x) is torch.nn.Parameter


def is_fake(x: Tensor) -> bool:
    """Whether a tensor has no memory: it is on the device "meta", or a fake one."""
    return x.is_meta or (not is_plain(x) and hasattr(x, "fake_mode"))


def address(x: Tensor) -> int:
    """Where a tensor begins. A fake one has no address, of which torch warns, and stands for an aligned one."""
    return x.data_ptr() if type(x) is Tensor or is_plain(x) or not hasattr(x, "fake_mode") else 0


def has_tangent(x: Tensor) -> bool:
    """Whether `x` has a tangent of forward-mode differentiation that a call would have to follow."""
    try:
        return forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]
    except RuntimeError:
        # Below autograd, as in the kernel of an operator, torch follows the tangents itself, and cannot be asked.
        return False


def launchable(given: Mapping[str, Any]) -> bool:
    """Whether all tensors have memory that a kernel can read: not those of the device "meta", and no fake tensors.

    Raises RuntimeError where a derivative or a trace would be recorded, TypeError for tensors of other classes and
    views of negated memory, and ValueError where only some tensors have memory.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        raise NotImplementedError("torch.jit.trace does not record it; use torch.export")
    memory = set()
    for name, x in given.items():
        if not isinstance(x, Tensor):
            continue
        if x.requires_grad and torch.is_grad_enabled():
            how = "use torch.no_grad(), or a family with `package: torch` and `backward: kernels`"
            raise RuntimeError(f"{name} requires a gradient, and a kernel records none: {how}")
        # A stand-in of `prepare` has an address that Triton can compile for; it is never launched.
        if not (is_fake(x) or is_plain(x) or hasattr(x, "stand_in")):
            raise TypeError(f"{name} must be a plain tensor, got {type(x).__name__}")
        if is_plain(x) and has_tangent(x):
            raise NotImplementedError("no derivatives in forward mode are computed; use torch.autograd")
        if x.is_neg():
            raise TypeError(f"{name} must be a plain tensor, got a view of negated memory")
        memory.add(not is_fake(x))
    if len(memory) > 1:
        raise ValueError("some tensors have memory, and some have none: either all must have it, or none")
    return memory == {True}


def require_apart(results: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    """Raise ValueError where a result surely has elements of one that is read, or of another result.

    An operand of the chain, those beside `a` and `b`, may have the elements of `out` at the same places: a program
    reads what it then stores, unless `scatter` names other rows.
    """
    others, in_place = dict(read), read.get("scatter") is None
    for name, x in results.items():
        for other, y in others.items() if x is not None else ():
            chain = in_place and name == "out" and other in read and other not in ("a", "b")
            if isinstance(y, Tensor) and _overlap(x, y) and not (chain and _alike(x) == _alike(y)):
                how = "read" if other in read else "written"
                raise ValueError(f"{name} shares memory with {other}, which is {how} while {name} is written")
        others[name] = x


def _alike(x: Tensor) -> tuple[object, ...]:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


def _overlap(x: Tensor, y: Tensor) -> bool:
    """Whether both begin with the same element, or overlap without gaps."""
    own, other = x.data_ptr(), y.data_ptr()
    # Without elements the address is 0; a stand-in of `prepare` and a tensor on the device "meta" have no memory.
    if not (own and other) or x.is_meta or hasattr(x, "stand_in") or hasattr(y, "stand_in"):
        return False
    gapless = all(each.is_contiguous() or (each.dim() > 1 and each.mT.is_contiguous()) for each in (x, y))
    # A tensor with traced sizes has no `nbytes`.
    end, stop = own + x.numel() * x.element_size(), other + y.numel() * y.element_size()
    return own == other or (gapless and own < stop and other < end)


def written(*results: Tensor | None) -> None:
    """Tell autograd that tensors of the caller have been written, so that no gradient is computed from old values."""
    for x in results:
        if x is not None and not x.is_inference():
            torch.autograd.graph.increment_version(x)


def surely(condition: Any) -> bool:
    """Whether a condition on sizes holds; False where only the device knows them, and the call itself asks again."""
    try:
        return bool(condition)
    except RuntimeError:
        # torch.compile traces the size of a selection, such as `x[mask]`, as an unknown number.
        return False
