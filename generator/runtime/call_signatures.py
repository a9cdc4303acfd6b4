"""The signature of a call, by which what was worked out for a call is found for others."""

from __future__ import annotations

import torch
from torch import Tensor

# How many call signatures a function caches before it clears the cache.
SIGNATURES = 4096

deterministic = torch.are_deterministic_algorithms_enabled


def kind_of(x: object) -> object:
    """The part of the call signature that is due to one operand: all but its address or its value."""
    if isinstance(x, Tensor):
        return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16
    return type(x)


def kind_of_product(a: Tensor, b: Tensor) -> tuple[object, ...]:
    """The signature of a call with `a` and `b` alone; RuntimeError for a tensor without memory."""
    where = a.device, b.device, a.data_ptr() % 16, b.data_ptr() % 16
    return a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, where, deterministic()
