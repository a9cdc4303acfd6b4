"""The two columns of a product of which a gate makes one, in torch."""

from __future__ import annotations

import torch

from generator.epilogue.gated_units import INTERLEAVED


def taken_apart(x: torch.Tensor, order: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The gate's columns of `x` (..., 2N) and the others, (..., N) each; of one column that stands for all both."""
    if x.dim() == 0 or x.shape[-1] == 1:
        return x, x
    if order == INTERLEAVED:
        return x[..., 0::2], x[..., 1::2]
    gate, other = x.chunk(2, -1)
    return gate, other


def columns_of(columns: torch.Tensor, n: int, order: str | None) -> torch.Tensor:
    """The columns of b that make `columns` of a result with `n`, in the same order; None has as many as the result."""
    if order is None:
        return columns
    if order == INTERLEAVED:
        return torch.stack((2 * columns, 2 * columns + 1), -1).flatten()
    return torch.cat((columns, n + columns))
