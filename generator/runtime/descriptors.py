"""Matrices that the hardware copies: descriptors, and what they need of a tensor and of a device."""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from .call_tensors import State
from .extents import Extent
from .launchable import address


@dataclass(frozen=True)
class Described:
    """A tensor as the descriptor of row-major matrices, of which blocks of `block` are copied.

    `turned`: they are the transposes of the call's.
    """

    name: str
    block: tuple[Extent | int, ...]
    turned: bool = False
    #: Whether the tensor is allocated for the call, so that it always suits.
    made: bool = False

    def value(self, state: State) -> TensorDescriptor:
        """The argument of a call."""
        x = state.given[self.name]
        if x.numel() == 0:
            # An empty matrix has no descriptor; with K = 0 the kernel reads nothing of A and B.
            x = x.new_zeros((1,) * (x.dim() - 1) + (16,))
            x = x.mT if self.turned else x
        return TensorDescriptor(x, *self.laid(x), list(self.sizes(state)))

    def laid(self, x: torch.Tensor) -> tuple[list[int], list[int]]:
        """The shape and the strides of the row-major matrices."""
        rows, columns, down = self._lines(x)
        *count, _, _ = x.shape
        # The stride of a single row or matrix is never used, but the hardware requires an aligned one.
        stride = down if rows > 1 else -(-columns // 16) * 16
        apart = [x.stride(0) if many > 1 else rows * stride for many in count]
        return [*count, rows, columns], [*apart, stride, 1]

    def sizes(self, state: State) -> Sequence[int]:
        """The sizes of the block."""
        return state.all_of(self.block)

    def _lines(self, x: torch.Tensor) -> tuple[int, int, int]:
        """The rows and columns of a row-major matrix, and the stride between its rows."""
        shape, strides = x.shape, x.stride()
        rows, columns, down, along = shape[-2], shape[-1], strides[-2], strides[-1]
        return (columns, rows, along) if self.turned else (rows, columns, down)

    def reason(self, state: State) -> str | None:
        """Why no descriptor can address the tensor of a call, or None, also where there is none."""
        x = state.given.get(self.name)
        if self.made or not isinstance(x, torch.Tensor) or x.dim() != len(self.block) or x.numel() == 0:
            return None
        size = x.element_size()
        if address(x) % 16:
            return f"{self.name} starts {address(x) % 16} bytes past a multiple of 16, and a descriptor needs 0"
        step = 16 // size
        rows, columns, down = self._lines(x)
        if rows > 1 and (down % step or down < columns):
            needed = f"a multiple of {step} that is at least {columns}"
            return f"{self.name} has a leading dimension of {down}, and a descriptor needs {needed}"
        if x.dim() == 3 and x.shape[0] > 1 and (x.stride(0) % step or not x.stride(0)):
            apart = f"a stride of {x.stride(0)} between matrices"
            return f"{self.name} has {apart}, and a descriptor needs a multiple of {step} above 0"
        return None


def replaced(descriptor: Any, **fields: Any) -> Any:
    """The descriptor with other fields, which need no check."""
    found = object.__new__(type(descriptor))
    found.__dict__.update(descriptor.__dict__, **fields)
    return found
