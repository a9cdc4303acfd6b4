"""The pairs of columns that a gated linear unit combines, in torch."""

from __future__ import annotations

import torch

from generator.epilogue.gated_units import INTERLEAVED


def taken_apart(x: torch.Tensor, order: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The gate's columns of `x` (..., 2N) and the other columns, (..., N) each; a single column is both."""
    if x.dim() == 0 or x.shape[-1] == 1:
        return x, x
    if order == INTERLEAVED:
        return x[..., 0::2], x[..., 1::2]
    gate, other = x.chunk(2, -1)
    return gate, other


def columns_of(columns: torch.Tensor, n: int, order: str | None) -> torch.Tensor:
    """The indices of the columns of b from which `columns` of a result with `n` columns are computed.

    `order` is the order of gated columns; None means that b has as many columns as the result.
    """
    if order is None:
        return columns
    if order == INTERLEAVED:
        return torch.stack((2 * columns, 2 * columns + 1), -1).flatten()
    return torch.cat((columns, n + columns))
