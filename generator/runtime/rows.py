"""The input of a linear layer as a matrix of rows, and a result with the dimensions of its input."""

from __future__ import annotations

import torch


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """An input (..., K) as a matrix (M, K) whose rows are contiguous; a vector is one row."""
    return along(x if x.dim() == 2 else x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2))


def along(x: torch.Tensor) -> torch.Tensor:
    """A matrix, or several, whose rows are contiguous: itself, or a copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def shaped_as(found: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A result (M, N) for the rows of `x` (..., K), as (..., N)."""
    return found if x.dim() == 2 else found.reshape(*x.shape[:-1], found.shape[-1])
