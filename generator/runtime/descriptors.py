"""Matrices that the hardware copies: descriptors, and what they need of a tensor."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from typing import Any

from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .launchable import address


def described(x: Tensor, *block: int, turned: bool = False) -> Any:
    """A tensor as the descriptor of row-major matrices, of which blocks are copied.

    `turned`: they are the transposes of the call's. The base is the operand, by which a repeated launch finds it.
    """
    if x.numel() == 0:
        # An empty matrix has no descriptor; with K = 0 the kernel reads nothing of A and B.
        x = x.new_zeros((1,) * (x.dim() - 1) + (16,))
        x = x.mT if turned else x
    count, (rows, columns, down) = x.shape[:-2], _lines(x, turned)
    # The stride of a single row or matrix is never used, but the hardware requires an aligned one.
    lead = down if rows > 1 else -(-columns // 16) * 16
    apart = [x.stride(0) if many > 1 else rows * lead for many in count]
    return TensorDescriptor(x, [*count, rows, columns], [*apart, lead, 1], [*block])


def _lines(x: Tensor, turned: bool) -> tuple[int, int, int]:
    """The rows and columns of a row-major matrix, and the stride between its rows."""
    (rows, columns), (down, along) = x.shape[-2:], x.stride()[-2:]
    return (columns, rows, along) if turned else (rows, columns, down)


def undescribed(name: str, x: Tensor | None, turned: bool = False) -> str | None:
    """Why no descriptor can address the tensor of a call, or None, also where there is none."""
    if x is None or x.dim() < 2 or x.numel() == 0:
        return None
    step, (rows, columns, down) = 16 // x.element_size(), _lines(x, turned)
    if address(x) % 16:
        return f"{name} starts {address(x) % 16} bytes past a multiple of 16, and a descriptor needs 0"
    if rows > 1 and (down % step or down < columns):
        needed = f"a multiple of {step} that is at least {columns}"
        return f"{name} has a leading dimension of {down}, and a descriptor needs {needed}"
    if x.dim() == 3 and x.shape[0] > 1 and (x.stride(0) % step or not x.stride(0)):
        apart = f"a stride of {x.stride(0)} between matrices"
        return f"{name} has {apart}, and a descriptor needs a multiple of {step} above 0"
    return None
