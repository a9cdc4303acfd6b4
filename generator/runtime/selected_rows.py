"""The gradients of products whose rows are named: those of A by `rows`, and those of C by `scatter`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import operators
from .launchable import surely


def named(a: Tensor, rows: Tensor, *, turned: bool) -> Tensor:
    """The rows of `a` that are named, with zeros for those that it does not have; column-major as `a` if `turned`.

    `a` is (R, K), `rows` has indices, and the result is (len(rows), K).
    """
    there = (rows >= 0) & (rows < a.shape[0])
    if surely(a.shape[0] == 0):
        return a.new_zeros((a.shape[1], rows.shape[0])).mT if turned else a.new_zeros((rows.shape[0], a.shape[1]))
    places = torch.where(there, rows, 0)
    picked = a.mT.index_select(1, places).mT if turned else a.index_select(0, places)
    return torch.where(there[:, None], picked, 0)


def _places(scatter: Tensor, offsets: Tensor, rows: int) -> Tensor:
    """The row of C for each row of the product, int64; `rows`, behind the last one, where that is not written.

    Rows past the last end are not, and nor are those for which `scatter` names no row of C.
    """
    ends = torch.cat([offsets.new_zeros(1), offsets.clamp(0, scatter.shape[0])])
    there = (scatter >= 0) & (scatter < rows) & (torch.arange(scatter.shape[0], device=scatter.device) < ends.max())
    return torch.where(there, scatter, rows).long()


def unfilled(gradient: Tensor, scatter: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of a C whose rows a call fills as `scatter` says: that of what it was then, zero in those rows."""
    places = _places(scatter, offsets, gradient.shape[0])
    filled = torch.zeros(gradient.shape[0] + 1, dtype=torch.bool, device=gradient.device).index_fill(0, places, True)
    return gradient.masked_fill(filled[:-1, None], 0)


def placed(out: Tensor, product: Tensor, scatter: Tensor, offsets: Tensor) -> Tensor:
    """`out` with the rows of a product written as `scatter` says, by operations of torch, which know its gradient."""
    more = torch.cat([out, out.new_zeros(1, out.shape[1])])
    return out.copy_(more.index_copy(0, _places(scatter, offsets, out.shape[0]), product)[:-1])


def groups(offsets: Tensor, rows: int) -> Tensor:
    """The number of each row's group, of which `offsets` has the ends; rows in none have the number behind the last."""
    # An end counts as between the one before it and the number of rows.
    ends = offsets.clamp(0, rows).cummax(0).values
    return torch.searchsorted(ends, torch.arange(rows, dtype=ends.dtype, device=ends.device), right=True)


def summed(gradient: Tensor, rows: Tensor, count: int) -> Tensor:
    """For each of `count` rows the sum of the gradients of the rows for which `rows` names it, in their order."""
    # What there is not is counted in one more row.
    places = torch.where((rows >= 0) & (rows < count), rows, count).long()
    # It sorts the places, and adds what has the same one in a fixed order, without atomic operations.
    total: Tensor = torch.ops.aten.embedding_dense_backward(gradient.contiguous(), places, count + 1, -1, False)
    return total[:count]


operators.register(
    "added_rows(Tensor gradient, Tensor rows, SymInt count) -> Tensor",
    summed,
    lambda gradient, rows, count: gradient.new_empty((count, gradient.shape[1])),
)
operators.loop_over_batch("added_rows")
#: `summed` as an operator, because torch.compile would make atomic additions of it.
added: Any = operators.operator("added_rows")
