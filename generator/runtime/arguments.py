"""What few kernels are passed beside tensors, sizes and strides: the functions of `CALL` call these."""

from __future__ import annotations

import torch
from torch import Tensor


def stride(x: Tensor | None, dimension: int) -> int:
    """The stride of a tensor along a dimension, in elements; 0 where a call has no such tensor."""
    return 0 if x is None else x.stride(dimension)


def as_bytes(x: Tensor) -> Tensor:
    """A tensor as bytes, for a type that Triton does not have for all targets."""
    view = x.view(torch.uint8)
    if not torch.compiler.is_compiling():
        # By which a repeated launch finds the operand.
        view.base = x  # type: ignore[attr-defined]
    return view


def approximate(x: Tensor) -> bool:
    """Whether the device of `x` has PTX's rcp.approx and tanh.approx, as NVIDIA GPUs from sm75 on have."""
    if x.device.type == "cpu" or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(x.device) >= (7, 5)


def next_power(x: int, y: int) -> int:
    """The least power of two that is not below either number."""
    return 1 << (max(x, y, 1) - 1).bit_length()
