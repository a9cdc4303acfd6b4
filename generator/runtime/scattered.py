"""A result whose rows an operand names: a call fills some of its S rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .call import MOST, Operand, extents


@dataclass(frozen=True)
class Scattered(Operand):
    """Such a result: where the operand `named` is given, it must be given too; else it has the rows of the products."""

    named: str = ""

    @functools.cached_property
    def sized(self) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        return extents(" ".join(["S", *self.words[1:]]))

    def learn(self, known: dict[str, int], given: Mapping[str, Any]) -> None:
        """Learn S, unless another such result has said it; raises TypeError or ValueError for what has no rows."""
        if given.get(self.named) is None:
            known.setdefault("S", extents(self.words[0])(known)[0])
            return
        if given.get(self.name) is None:
            raise ValueError(f"{self.name} must be given: {self.named} names its rows")
        x = self.typed(given[self.name], given)
        rows = x.shape[0] if x.dim() else 0
        if type(rows) is int and rows > MOST:
            raise ValueError(f"{self.name} has {rows} rows: a size must be at most 2**31 - 2**16")
        known.setdefault("S", rows)
