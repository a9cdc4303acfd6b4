"""What calls of the kernels that run a chain backwards make.

The keyword `needed` of such a call has the names of what gradients are needed of; the other results are None. With "no
out" among them the gradient of C is none, and has its shape alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .call import State
from .memory import Memory


@dataclass(frozen=True)
class Gradient(Memory):
    """The gradient of the operand `of`, or parts of it, if it is needed; without `dtype` it is like the operand."""

    of: str = ""

    def new(self, state: State) -> Any:
        """A new tensor, or None."""
        if self.of not in state.given["needed"]:
            return None
        return torch.empty_like(state.given[self.of]) if self.dtype is None else super().new(state)


@dataclass(frozen=True)
class Total:
    """A gradient that is the sum of parts in a fixed order."""

    name: str
    parts: str

    def fill(self, plan: State) -> None:
        """Add up the parts of a call whose kernel has run."""
        if plan.known[self.parts] is not None:
            self.run(plan.results[self.name], plan.known[self.parts])

    def run(self, result: torch.Tensor, parts: torch.Tensor) -> None:
        """Add up parts: those of each product, where each has an operand of its own."""
        result.copy_(parts.sum(1) if result.dim() > 1 else parts.reshape(-1, *result.shape).sum(0))
