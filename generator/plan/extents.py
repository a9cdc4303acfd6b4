"""Whole numbers that follow from the sizes of a call, as the extents of its tensors do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class Amount:
    """A number of a call: a size, or an entry of the configuration, by its name; or what an operation makes of two."""

    symbol: str
    sides: tuple[Amount | int, ...] = ()

    def of(self, numbers: Mapping[str, int]) -> Any:
        """The number, for those that it follows from by name."""
        if not self.sides:
            return numbers[self.symbol]
        return OPERATIONS[self.symbol](*(x if type(x) is int else x.of(numbers) for x in self.sides))  # type: ignore[union-attr]

    @property
    def names(self) -> frozenset[str]:
        """The sizes and entries on which it depends."""
        inner = (x.names for x in self.sides if isinstance(x, Amount))
        return frozenset().union(*inner) if self.sides else frozenset({self.symbol})

    def __add__(self, other: Amount | int) -> Amount:
        return operation("+", self, other)

    def __sub__(self, other: Amount | int) -> Amount:
        return operation("-", self, other)

    def __mul__(self, other: Amount | int) -> Amount:
        return operation("*", self, other)

    def __rmul__(self, other: int) -> Amount:
        return operation("*", other, self)

    def __floordiv__(self, other: Amount | int) -> Amount:
        return operation("//", self, other)

    def __bool__(self) -> bool:
        raise TypeError(f"a condition on {self}")

    def __repr__(self) -> str:
        if not self.sides:
            return self.symbol
        if self.symbol.isidentifier():
            return f"{self.symbol}({', '.join(map(str, self.sides))})"
        left, right = (f"({x})" if isinstance(x, Amount) and x.symbol in OPERATIONS else str(x) for x in self.sides)
        return f"{left} {self.symbol} {right}"


#: What is computed of two numbers: Python's operators, and functions of the family's library.
OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "cdiv": lambda x, y: -(-x // y),
    "least": min,
    "next_power": lambda x, y: 1 << (max(x, y, 1) - 1).bit_length(),
}


def operation(symbol: str, left: Amount | int, right: Amount | int) -> Amount:
    """What an operation makes of two numbers; raises TypeError for anything else, also for conditions."""
    if not {type(left), type(right)} <= {int, Amount}:
        raise TypeError(f"{symbol} of {left} and {right}")
    return Amount(symbol, (left, right))


# The sizes of a call: B products of a batch or G groups, whose rows are T together, R in `a` and S in `out`; then M, N
# and K.
B, G, T, R, S, M, N, K = map(Amount, "BGTRSMNK")
