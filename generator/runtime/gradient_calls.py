"""Calls of the kernels that run a chain backwards: each says by `needed` which gradients it is to make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .call import Call, Operand, Plan, State, extents
from .memory import Memory


@dataclass(frozen=True, eq=False)
class GradientCall(Call):
    """A call whose keyword `needed` has the names of what gradients are needed of; the other results are None.

    With "no out" among them the gradient of C is none, and has its shape alone.
    """

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(sorted(self.results[0].sizes))

    @property
    def outer(self) -> tuple[str, ...]:
        return self.sizes

    def repeats(self, given: Mapping[str, Any]) -> bool:
        """Whether the launch can be repeated for other operands: it reads nothing that torch makes of them."""
        by_groups = any(isinstance(x, Groups) for x in self.memory)
        copied = (given[x.name] for x in self.operands if isinstance(x, Contiguous))
        return not by_groups and all(x is None or x.is_contiguous() for x in copied)


@dataclass(frozen=True)
class Contiguous(Operand):
    """A tensor of any strides, of which the kernel reads a contiguous copy."""

    def taken(self, x: Any, state: State) -> Any:
        x = super().taken(x, state)
        return x if x is None else x.contiguous()


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
class Groups(Memory):
    """The number of each row's group, of which `offsets` has the ends; rows in none have the number behind the last."""

    def new(self, state: State) -> torch.Tensor:
        """A new tensor."""
        ends, (rows,) = state.given["offsets"], extents(self.shape)(state.numbers)
        # An end counts as between the one before it and the number of rows.
        ends = ends.clamp(0, rows).cummax(0).values
        return torch.searchsorted(ends, torch.arange(rows, dtype=ends.dtype, device=ends.device), right=True)


@dataclass(frozen=True)
class Total:
    """A gradient that is the sum of parts in a fixed order; with `groups`, for each of "group" that of its rows."""

    name: str
    parts: str
    groups: bool = False

    def fill(self, plan: Plan) -> None:
        """Add up the parts of a call whose kernel has run."""
        result, parts = plan.results[self.name], plan.known[self.parts]
        if parts is None:
            return
        if self.groups:
            # It sorts the rows by their groups, and adds those of one without atomic operations.
            group, count = plan.known["group"], len(result)
            result.copy_(torch.ops.aten.embedding_dense_backward(parts, group, count + 1, -1, False)[:count])
        else:
            self.run(result, parts)

    def run(self, result: torch.Tensor, parts: torch.Tensor) -> None:
        """Add up parts that belong to no groups: those of each product, where each has an operand of its own."""
        result.copy_(parts.sum(1) if result.dim() > 1 else parts.reshape(-1, *result.shape).sum(0))
