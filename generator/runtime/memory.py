"""Memory that a call allocates beside its results: partial sums, a decoded operand, and what is kept between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .call import Operand, State, extents


@dataclass(frozen=True)
class Memory(Operand):
    """A tensor that is allocated for a call; rows in memory have a multiple of `pitch` elements."""

    pitch: int = 1

    def new(self, state: State) -> Any:
        """A new tensor."""
        if self.pitch == 1:
            return super().new(state)
        rows, columns = extents(self.shape)(state.numbers)
        lead = -(-(rows if self.unit == 0 else columns) // self.pitch) * self.pitch
        strides = (1, lead) if self.unit == 0 else (lead, 1)
        assert isinstance(self.dtype, torch.dtype)
        return torch.empty_strided((rows, columns), strides, dtype=self.dtype, device=state.device)


@dataclass(frozen=True)
class Workspace(Operand):
    """A vector that calls may share one after the other; one that is `cleared` is zero before and behind each."""

    cleared: bool = False

    def new(self, state: State) -> Any:
        """A new tensor."""
        return self.of_size(extents(self.shape)(state.numbers)[0], state.device)

    def of_size(self, size: int, device: torch.device) -> torch.Tensor:
        """A new tensor of so many elements."""
        assert isinstance(self.dtype, torch.dtype)
        return (torch.zeros if self.cleared else torch.empty)(size, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class Reduction:
    """A result that is made of the tiles' parts in a fixed order: their sum ("sum"), or the largest ("amax")."""

    name: str
    parts: str
    how: str
    #: Whether the result has an element for each of the parts' last dimension; else it has one in all.
    along: bool = True

    def fill(self, plan: State) -> None:
        """Reduce the parts of a call whose kernel has run."""
        self.run(plan.results[self.name], plan.known[self.parts])

    def run(self, result: torch.Tensor, parts: torch.Tensor) -> None:
        """Reduce the parts along the last dimension but one; all of them to a single element."""
        getattr(torch, self.how)(parts if self.along else parts.flatten(-2)[..., None], -2, out=result)
