"""The signature of a call, by which what was worked out for a call is found for others."""

from __future__ import annotations

from torch import Tensor

# How many call signatures a function caches before it clears the cache.
SIGNATURES = 4096


def kind_of(x: object) -> object:
    """The part of the call signature that is due to one operand: all but its address or its value."""
    if isinstance(x, Tensor):
        return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16
    return type(x)
