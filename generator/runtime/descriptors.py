"""Matrices that the hardware copies: descriptors, and what they need of a tensor and of a device."""

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
        x = self._lines(state.given[self.name])
        if x.numel() == 0:
            # An empty matrix has no descriptor; with K = 0 the kernel reads nothing of A and B.
            x = x.new_zeros((1,) * (x.dim() - 1) + (16,))
        *count, rows, columns = x.shape
        # The stride of a single row or matrix is never used, but the hardware requires an aligned one.
        stride = x.stride(-2) if rows > 1 else -(-columns // 16) * 16
        apart = [x.stride(0) if many > 1 else rows * stride for many in count]
        return TensorDescriptor(x, [*count, rows, columns], [*apart, stride, 1], list(self.sizes(state)))

    def sizes(self, state: State) -> Sequence[int]:
        """The sizes of the block."""
        return state.all_of(self.block)

    def _lines(self, x: Any) -> torch.Tensor:
        turned: torch.Tensor = x.mT if self.turned else x
        return turned

    def reason(self, state: State) -> str | None:
        """Why no descriptor can address the tensor of a call, or None, also where there is none."""
        x = state.given.get(self.name)
        if self.made or not isinstance(x, torch.Tensor) or x.dim() != len(self.block) or x.numel() == 0:
            return None
        x, size = self._lines(x), x.element_size()
        if address(x) % 16:
            return f"{self.name} starts {address(x) % 16} bytes past a multiple of 16, and a descriptor needs 0"
        step = 16 // size
        if x.shape[-2] > 1 and (x.stride(-2) % step or x.stride(-2) < x.shape[-1]):
            needed = f"a multiple of {step} that is at least {x.shape[-1]}"
            return f"{self.name} has a leading dimension of {x.stride(-2)}, and a descriptor needs {needed}"
        if x.dim() == 3 and x.shape[0] > 1 and (x.stride(0) % step or not x.stride(0)):
            apart = f"a stride of {x.stride(0)} between matrices"
            return f"{self.name} has {apart}, and a descriptor needs a multiple of {step} above 0"
        return None
