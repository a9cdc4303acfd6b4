"""What a kernel is passed beside tensors and sizes: strides, types of offsets, and what a call makes constant."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton.language as tl

from .call_tensors import State


@dataclass(frozen=True)
class Stride:
    """The stride of a tensor along a dimension, in elements; 0 where a call has no such tensor."""

    name: str
    dimension: int

    def value(self, state: State) -> int:
        """The argument of a call."""
        x = state.given[self.name]
        stride: int = 0 if x is None else x.stride(self.dimension)
        return stride


@dataclass(frozen=True)
class Bytes:
    """A tensor as bytes, for a type that Triton does not have for all targets."""

    name: str

    def value(self, state: State) -> torch.Tensor:
        """The argument of a call."""
        viewed: torch.Tensor = state.given[self.name].view(torch.uint8)
        return viewed


class Index:
    """The type of offsets: 64 bits wide if one of the tensors spans more than 2**31 elements."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def value(self, state: State) -> tl.dtype:
        """The argument of a call."""
        given = [state.given[name] for name in self.names]
        spans = [_span(x) for x in given if x is not None]
        return tl.int64 if max(spans) > 2**31 else tl.int32


def _span(x: torch.Tensor) -> int:
    """How many elements the memory of `x` spans, from its first element to its last."""
    span = 1
    for size, stride in zip(x.shape, x.stride()):
        span += (size - 1) * stride
    return span


class Approximate:
    """Whether the device has PTX's rcp.approx and tanh.approx, as NVIDIA GPUs from sm75 on have."""

    def value(self, state: State) -> bool:
        """The argument of a call."""
        if state.device.type == "cpu" or torch.version.hip:
            return False
        return torch.cuda.get_device_capability(state.device) >= (7, 5)
