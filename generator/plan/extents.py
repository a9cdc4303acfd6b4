"""The extents of tensors, which follow from the sizes of a call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Extent:
    """A number that is known once the sizes of a call are: `2 * N`, `ceil(K, 128)`."""

    def of(self, numbers: Mapping[str, int]) -> Any:
        """The number, for the sizes by name."""
        raise NotImplementedError

    @property
    def names(self) -> set[str]:
        """The sizes on which it depends."""
        raise NotImplementedError

    def __add__(self, other: Extent | int) -> Extent:
        return Operation("+", self, other)

    def __sub__(self, other: Extent | int) -> Extent:
        return Operation("-", self, other)

    def __mul__(self, other: Extent | int) -> Extent:
        return Operation("*", self, other)

    def __rmul__(self, other: int) -> Extent:
        return Operation("*", other, self)

    def __floordiv__(self, other: Extent | int) -> Extent:
        return Operation("//", self, other)


@dataclass(frozen=True, repr=False)
class Size(Extent):
    """A number that is given by its name."""

    name: str

    def of(self, numbers: Mapping[str, int]) -> Any:
        return numbers[self.name]

    @property
    def names(self) -> set[str]:
        return {self.name}

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Operation(Extent):
    """What an operation makes of two numbers, of which either may be a constant."""

    symbol: str
    left: Extent | int
    right: Extent | int

    def of(self, numbers: Mapping[str, int]) -> Any:
        left, right = self.left, self.right
        if type(left) is not int:
            left = left.of(numbers)  # type: ignore[union-attr]
        if type(right) is not int:
            right = right.of(numbers)  # type: ignore[union-attr]
        return _OPERATIONS[self.symbol](left, right)

    @property
    def names(self) -> set[str]:
        return {name for x in (self.left, self.right) if isinstance(x, Extent) for name in x.names}

    def __repr__(self) -> str:
        if self.symbol.isidentifier():
            return f"{self.symbol}({self.left}, {self.right})"
        left = f"({self.left})" if _symbol(self.left) in "+-" and self.symbol in "*//" else str(self.left)
        right = f"({self.right})" if _symbol(self.right) in "+-*//" else str(self.right)
        return f"{left} {self.symbol} {right}"


def _symbol(x: Extent | int) -> str:
    """The operator of a number that is written with one, else a character that is none."""
    return x.symbol if isinstance(x, Operation) and not x.symbol.isidentifier() else "?"


def ceil(x: Extent | int, y: Extent | int) -> Extent:
    """How many parts of `y` hold `x`."""
    return Operation("ceil", x, y)


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "ceil": lambda x, y: -(-x // y),
}

# The sizes of a call: B products of a batch or G groups, whose rows are T together, R in `a` and S in `out`; then M, N
# and K.
B, G, T, R, S, M, N, K = map(Size, "BGTRSMNK")
