"""The strides of matrices."""

from __future__ import annotations

from collections.abc import Sequence


def matrix_strides(
    shape: Sequence[int], column: bool, *, pad: int = 0, multiple: int = 1, unit: int = 1
) -> tuple[int, int]:
    """The strides in elements of a matrix of this shape, whose columns are contiguous if `column`, else its rows.

    The leading dimension is larger than a line by `pad`, rounded up to `multiple`; all strides are times `unit`.
    """
    leading = shape[0] if column else shape[1]
    outer = max(-(-(leading + pad) // multiple), 1) * multiple * unit
    return (unit, outer) if column else (outer, unit)
