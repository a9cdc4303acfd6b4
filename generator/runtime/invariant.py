"""The operands by which a kernel and a configuration are chosen, so that the choice does not depend on M.

A row of a result has the same bits whatever the other rows hold and however many there are, because nothing that is
chosen depends on M: not the kernel, not its configuration, not a copy. A kernel may refuse operands because of their
alignment, and for a single row it would not look at the pitch. So the kernels are asked about operands like those of
the call, with another number of rows.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .call import Call
from .contracts import Operands
from .extents import Extent, M, R, T
from .launchable import address

# Several rows, so that their pitch is checked, and a multiple of 16, so that M itself is no reason to refuse operands.
ROWS = 16

# The sizes that count rows: those of a product, of A if the product names some of them, and of all groups together.
COUNTS = (M, R, T)

# So many elements of any type are a multiple of 128 bytes.
LINE = 128


def nominal(
    table: Call, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands
) -> tuple[Tensor, Tensor, Tensor | None, Operands]:
    """`a`, `b`, `out` and `operands` of a call, with ROWS rows in place of M; `table` describes them.

    A matrix of rows has the alignment of the call's, by address and pitch, which does not depend on M. Where the pitch
    follows M, or any strides are taken, it is aligned. What has no M stays as it is.
    """
    given: Operands = {"a": a, "b": b, "out": out, **operands}
    known = {x.name: x for x in (*table.operands, *table.results)}
    like = {name: _like(x, known[name].shape, known[name].unit) for name, x in given.items()}
    return like.pop("a"), like.pop("b"), like.pop("out"), like


def _like(x: Any, extents: tuple[Extent | int, ...], unit: int | None) -> Any:
    """A matrix like `x`, of this shape and with stride 1 along `unit`, that has ROWS rows; `x` if it has no M."""
    dimensions = len(extents)
    if not isinstance(x, Tensor) or dimensions < 2 or extents[-2] not in COUNTS or x.dim() != dimensions:
        return x
    front, columns = [min(size, 2) for size in x.shape[:-2]], x.shape[-1]
    if unit != dimensions - 1:
        return x.new_empty((*front, columns, ROWS)).mT
    # The stride of a single row may be anything; from its columns on, it is that of the buffer.
    steps = x.stride(-2) if x.shape[-2] > 1 or x.stride(-2) >= columns else columns
    # Whole lines, or no multiple of 16 bytes: nothing else of the pitch has a part in the choice.
    pitch = -(-columns // LINE) * LINE + (not _aligned(x, steps))
    apart = ROWS * pitch
    if dimensions == 3 and x.shape[0] > 1:
        if x.stride(0) == 0:
            apart = 0
        elif _aligned(x, pitch) and not _aligned(x, x.stride(0)):
            # A distance of matrices that does not follow from their rows.
            apart += 1
    strides = (*[apart] * len(front), pitch, 1)
    offset = address(x) % 16 // x.element_size()
    memory = x.new_empty(offset + (len(front) + 1) * ROWS * pitch + columns + 1)
    return memory.as_strided((*front, ROWS, columns), strides, offset)


def _aligned(x: Tensor, stride: int) -> bool:
    """Whether so many elements of `x` are a multiple of 16 bytes."""
    return stride * x.element_size() % 16 == 0
