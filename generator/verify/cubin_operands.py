"""Operands of a call without memory, placed as the classes of alignment say that a program's operands may be.

A class has two placings. By the usual one a kernel is chosen: contiguous where the class allows it. The least one has
no more alignment than the class promises, so that Triton's compiler learns nothing that another call does not keep.
"""

from __future__ import annotations

from typing import Any

import torch

from generator.emit.cubin.contracts import ALIGNMENTS, CubinOperand

#: The types of elements without a type of their own in torch, or that the caller may choose, are those of the family.
_ALIGNED, _ADDRESSED, _ANY = ALIGNMENTS


def dtype_of(operand: Any, table: Any) -> torch.dtype:
    """The type of an operand of a family's call; of one that may have any floating type, the result's.

    With a result of 8 bits, or operands A of 8 bits, it is torch.float32.
    """
    if isinstance(operand.dtype, tuple):
        first: torch.dtype = operand.dtype[0]
        return first
    if operand.dtype is not None:
        return torch.empty(0, dtype=operand.dtype).dtype
    a, result = table.operands[0].dtype, table.results[0].dtype
    return torch.float32 if 1 in (a.itemsize, result.itemsize) else torch.empty(0, dtype=result).dtype


def placing(
    shape: tuple[int, ...], operand: CubinOperand, alignment: str, *, least: bool
) -> tuple[tuple[int, ...], int]:
    """Strides and the offset behind an aligned address, in elements."""
    offset = int(alignment == _ANY)
    if len(shape) < 2:
        return (1,) * len(shape), offset
    *front, rows, columns = shape
    if operand.unit is None and least and (operand.loose or alignment == _ANY):
        # No stride is 1, and none a multiple of 16.
        lead = max(3 * columns | 1, 5)
        return (*[lead * rows | 1 for _ in front], lead, 3), offset
    by_rows = operand.unit in (None, len(shape) - 1)
    width, height = (columns, rows) if by_rows else (rows, columns)
    lead = _spaced(max(width, 1), operand.bytes, _ANY if operand.loose else alignment, least)
    apart = lead * max(height, 1)
    if least and alignment != _ALIGNED:
        apart = _spaced(apart, operand.bytes, alignment, least)
    return (*[apart for _ in front], *((lead, 1) if by_rows else (1, lead))), offset


def _spaced(distance: int, size: int, alignment: str, least: bool) -> int:
    """A stride of elements of `size` bytes that is not less than the distance."""
    if alignment == _ANY:
        return max(distance | 1, 3) if least else distance
    step = 16 if alignment == _ALIGNED else max(16 // size, 1)
    stride = -(-distance // step) * step
    return stride + step if least and stride % 16 == 0 and step < 16 else stride
