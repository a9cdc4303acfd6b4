"""How an operand lies in memory: what hardware copies, loads and copies ask of its address and strides."""

from __future__ import annotations

from torch import Tensor

from .launchable import address


def whole_and_crossing(x: Tensor) -> tuple[bool, bool]:
    """Whether pointer, strides and inner extent of `x` are divisible by 16, as Triton specialises; and `crosses`."""
    (inner, steps), size = _extents(x), x.element_size()
    whole = not (address(x) % 16 or inner % 16 or any(step % 16 for step in steps))
    return whole, any(step * size % 128 and 128 % (step * size) for step in steps)


def crosses(x: Tensor) -> bool:
    """Whether the row pitch of `x` is not a multiple of 128 bytes, so that loads touch two lines of the L2."""
    return whole_and_crossing(x)[1]


def is_aligned(x: Tensor) -> bool:
    """Whether the base and all strides of `x` are multiples of 16 bytes."""
    if address(x) % 16:
        return False
    step = 16 // x.element_size()
    return not any(stride % step for stride in _extents(x)[1])


def repeats(x: Tensor) -> bool:
    """Whether one matrix is repeated over a batch: copying it for each index would cost more than it saves."""
    return x.dim() == 3 and x.shape[0] > 1 and x.stride(0) == 0


def _extents(x: Tensor) -> tuple[int, list[int]]:
    """The extent of the contiguous dimension of `x`, and the strides of all others with more than one element."""
    *shape, rows, columns = x.shape
    *strides, down, along = x.stride()
    if down == 1 and rows > 1:
        rows, columns, down = columns, rows, along
    if not shape:
        return columns, [down] if rows > 1 else []
    steps = [stride for size, stride in zip(shape, strides) if size > 1]
    return columns, [*steps, down] if rows > 1 else steps
