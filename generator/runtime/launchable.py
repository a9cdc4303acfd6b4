"""What a tensor must be so that a kernel can read it or write to it, whatever its shape and type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad

# The types of operands that torch need not see: numbers, and tensors that are of no subclass.
_NUMBERS = {float, int, type(None)}

#: Whether torch.jit.trace records.
is_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]


def require_tensor(name: str, x: Any) -> torch.Tensor:
    """`x`; raises TypeError if it is no tensor."""
    if isinstance(x, torch.Tensor):
        return x
    hint = "; torch.fx.symbolic_trace does not record it, use torch.export" * isinstance(x, torch.fx.Proxy)
    hint += f"; pass torch.from_numpy({name})" * (type(x).__name__ == "ndarray")
    raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}{hint}")


def require_dense(name: str, x: torch.Tensor) -> None:
    """Raise TypeError for a sparse tensor, or one of another layout that strides do not describe."""
    if x.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got one of layout {x.layout}")


def require_number(name: str, x: Any) -> float:
    """A number as a float; raises TypeError for what is none, and ValueError for one that is too large."""
    if not hasattr(x, "__float__") and not hasattr(x, "__index__"):
        raise TypeError(f"{name} must be a number or a tensor of one element, got {type(x).__name__}")
    try:
        return float(x)
    except OverflowError as error:
        raise ValueError(f"{name} is too large for a float") from error


def is_plain(x: object) -> bool:
    """Whether a tensor is of no subclass but torch's parameters."""
    return type(x) is torch.Tensor or type(x) is torch.nn.Parameter


def special(*operands: Any) -> bool | None:
    """Whether a gradient is recorded for one of these operands; None where torch must see a call with them.

    Such operands are of a subclass, or views of negated memory.
    """
    recording, found = torch.is_grad_enabled(), False
    for x in operands:
        if is_plain(x):
            if x.is_neg():
                return None
            found = found or (recording and x.requires_grad)
        elif type(x) not in _NUMBERS:
            return None
    return found


def is_fake(x: torch.Tensor) -> bool:
    """Whether a tensor has no memory: it is on the device "meta", or a fake one."""
    return x.is_meta or (not is_plain(x) and hasattr(x, "fake_mode"))


def address(x: torch.Tensor) -> int:
    """Where a tensor begins. A fake one has no address, of which torch warns, and stands for an aligned one."""
    return x.data_ptr() if type(x) is torch.Tensor or is_plain(x) or not hasattr(x, "fake_mode") else 0


def as_plain(x: Any) -> Any:
    """A tensor of a subclass that has no other memory as a plain one; anything else unchanged."""
    subclass = isinstance(x, torch.Tensor) and type(x) is not torch.Tensor and not is_fake(x)
    return x.as_subclass(torch.Tensor) if subclass else x


_NO_TANGENTS = "no derivatives in forward mode are computed; use torch.autograd"


def has_tangent(x: torch.Tensor) -> bool:
    """Whether `x` has a tangent of forward-mode differentiation that a call would have to follow."""
    try:
        return forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]
    except RuntimeError:
        # Below autograd, as in the kernel of an operator, torch follows the tangents itself, and cannot be asked.
        return False


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is open, whose levels count from 0; outside it no tensor has a tangent."""
    return bool(getattr(forward_ad, "_current_level", 0) >= 0)


def refuse_tangents(name: str, tensors: Iterable[object]) -> None:
    """Raise NotImplementedError, which names the function `name`, if one of the tensors has a tangent."""
    if in_forward_mode() and any(isinstance(x, torch.Tensor) and has_tangent(x) for x in tensors):
        raise NotImplementedError(f"{name}: {_NO_TANGENTS}")


def launchable(given: Mapping[str, Any]) -> bool:
    """Whether all tensors have memory that a kernel can read: not those of the device "meta", and no fake tensors.

    Raises RuntimeError where a derivative or a trace would be recorded, TypeError for tensors of other classes and
    views of negated memory, and ValueError where only some tensors have memory.
    """
    if is_tracing():
        raise NotImplementedError("torch.jit.trace does not record it; use torch.export")
    real = without = None
    recording = torch.is_grad_enabled()
    forward = in_forward_mode()
    for name, x in given.items():
        if not isinstance(x, torch.Tensor):
            continue
        if recording and x.requires_grad:
            raise RuntimeError(
                f"{name} requires a gradient, and a kernel records none: call it under torch.no_grad(), or call the "
                "function of a family that is rendered with `package: torch` and `backward: kernels`"
            )
        if is_plain(x):
            fake = x.is_meta
            if forward and has_tangent(x):
                raise NotImplementedError(_NO_TANGENTS)
        else:
            fake = is_fake(x)
            # A stand-in of `prepare` has an address that Triton can compile for; it is never launched.
            if not (fake or hasattr(x, "stand_in")):
                raise TypeError(f"{name} must be a plain tensor, got {type(x).__name__}")
        if x.is_neg():
            raise TypeError(f"{name} must be a plain tensor, got a view of negated memory")
        if fake:
            without = name
        else:
            real = name
    if real is not None and without is not None:
        raise ValueError(f"{without} has no memory, and {real} has: either all tensors must have memory, or none")
    return without is None


def require_apart(results: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    """Raise ValueError where a result surely has elements of one that is read, or of another result.

    An operand of the chain, those beside `a` and `b`, may have the elements of `out` at the same places: a program
    reads what it then stores, unless `scatter` names other rows.
    """
    others, in_place = dict(read), read.get("scatter") is None
    for name, x in results.items():
        if x is None:
            continue
        for other, y in others.items():
            if not isinstance(y, torch.Tensor) or not _overlap(x, y):
                continue
            chain = in_place and name == "out" and other in read and other not in ("a", "b")
            if chain and (x.data_ptr(), x.shape, x.stride(), x.dtype) == (y.data_ptr(), y.shape, y.stride(), y.dtype):
                continue
            how = "read" if other in read else "written"
            raise ValueError(f"{name} shares memory with {other}, which is {how} while {name} is written")
        others[name] = x


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether both begin with the same element, or overlap without gaps."""
    own, other = x.data_ptr(), y.data_ptr()
    # Without elements the address is 0; a stand-in of `prepare` and a tensor on the device "meta" have no memory.
    if not (own and other) or x.is_meta or hasattr(x, "stand_in") or hasattr(y, "stand_in"):
        return False
    if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    gapless = all(each.is_contiguous() or (each.dim() > 1 and each.mT.is_contiguous()) for each in (x, y))
    # A tensor with traced sizes has no `nbytes`.
    end, stop = own + x.numel() * x.element_size(), other + y.numel() * y.element_size()
    return own == other or (gapless and own < stop and other < end)


class ReplacedModules(list[str]):
    """The names of the modules of a model that were replaced; `left` says why each of the others was left."""

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[str, str] = {}
