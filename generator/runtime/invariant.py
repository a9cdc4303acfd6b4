"""The operands by which a kernel and a configuration are chosen, so that the choice does not depend on M.

A row of a result has the same bits whatever the other rows hold and however many there are, because nothing that is
chosen depends on M: not the kernel, not its configuration, not a copy. A kernel may refuse operands because of their
alignment, and for a single row it would not look at the pitch. So the kernels are asked about operands like those of
the call, with another number of rows.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .call import Call, Operand
from .launch import Operands
from .launchable import address

# Several rows, so that their pitch is checked, and a multiple of 16, so that M itself is no reason to refuse operands.
ROWS = 16

# The sizes that count rows: those of a product, of A if the product names some of them, and of all groups together.
COUNTS = ("M", "R", "T")

# So many elements of any type are a multiple of 128 bytes.
LINE = 128


def nominal(table: Call, given: Operands) -> Operands:
    """The operands of a call by name, with ROWS rows in place of M; `table` describes them.

    A matrix of rows has the alignment of the call's, by address and pitch, which does not depend on M. Where the pitch
    follows M, or any strides are taken, it is aligned. What has no M stays as it is. Of a batch all operands have the
    first product alone, or the first two where the distance of matrices is a reason to refuse a kernel.
    """
    known = {x.name: x for x in (*table.operands, *table.results)}
    matrices = 1 if all(_regular(x, known[name]) for name, x in given.items()) else 2
    return {name: _like(x, known[name], matrices) for name, x in given.items()}


def _has_rows(operand: Operand) -> bool:
    return len(operand.words) > 1 and operand.words[-2] in COUNTS


def _regular(x: Any, operand: Operand) -> bool:
    """Whether the matrices of a batch are refused where the first one alone is, and only there."""
    if not isinstance(x, Tensor) or x.dim() != 3 or x.dim() != len(operand.words) or x.shape[0] < 2:
        return True
    if _has_rows(operand) and operand.unit != 2:
        # Its distance of matrices follows M.
        return True
    pitch = _pitch(x) if _has_rows(operand) else x.stride(1) if x.stride(2) == 1 else x.stride(2)
    return x.stride(0) != 0 and (_aligned(x, x.stride(0)) or not _aligned(x, pitch))


def _like(x: Any, operand: Operand, matrices: int) -> Any:
    """A matrix like `x`, the operand of a call, with ROWS rows; `x` if it has no M. A batch has so many matrices."""
    words, dimensions = operand.words, len(operand.words)
    if not isinstance(x, Tensor) or x.dim() != dimensions:
        return x
    if not _has_rows(operand):
        if not dimensions or words[0] != "B":
            return x
        return x.as_strided((min(x.shape[0], matrices), *x.shape[1:]), x.stride(), x.storage_offset())
    front, columns = [min(size, matrices) for size in x.shape[:-2]], x.shape[-1]
    if operand.unit != dimensions - 1:
        return x.new_empty((*front, columns, ROWS)).mT
    # Whole lines, or no multiple of 16 bytes: nothing else of the pitch has a part in the choice.
    pitch = -(-columns // LINE) * LINE + (not _aligned(x, _pitch(x)))
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


def _pitch(x: Tensor) -> int:
    """The row pitch. The stride of a single row may be anything; from its columns on, it is that of the buffer."""
    steps, columns = x.stride(-2), x.shape[-1]
    return steps if x.shape[-2] > 1 or steps >= columns else columns


def _aligned(x: Tensor, stride: int) -> bool:
    """Whether so many elements of `x` are a multiple of 16 bytes."""
    return stride * x.element_size() % 16 == 0
