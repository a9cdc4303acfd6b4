"""Outputs beside C, and C itself as an operand: elements of a chain that no formula alone tells of.

A tap writes what the running value is at its place, or a sum or maximum of it, and leaves the value as it is. To
everything that walks a chain it is an operation that changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from generator.epilogue.formula import X
from generator.epilogue.operations import COLUMNS, MATRIX, OUT, ROWS, Operation


@dataclass(frozen=True)
class Tap(Operation):
    """An operation that writes an output: how it is called, its shape, and what is computed along the other dimension.

    An output of shape M is computed from the rows, one of shape N from the columns, of the running value.
    """

    output: str = ""
    shape: str = MATRIX
    #: `sum` or `amax` as torch calls it; empty where the value is written as it is.
    reduction: str = ""

    @property
    def dimension(self) -> int:
        """The dimension of the running value that a reduction leaves no trace of."""
        return -1 if self.shape == ROWS else -2

    @property
    def meaning(self) -> str:
        """What the output is of the running value, `{}`."""
        if not self.reduction:
            return "{}"
        each = "row" if self.shape == ROWS else "column"
        return f"the {'sum' if self.reduction == 'sum' else 'largest absolute value'} of each {each} of {{}}"


TAPS: Mapping[str, Tap] = {
    "save": Tap(X, output="preact", built_in=True),
    "row_sum": Tap(X, output="row_sum", shape=ROWS, reduction="sum", built_in=True),
    "col_sum": Tap(X, output="col_sum", shape=COLUMNS, reduction="sum", built_in=True),
    "row_amax": Tap(X, output="row_amax", shape=ROWS, reduction="amax", built_in=True),
}

#: The operation that reads C before it writes it.
ACCUMULATE = "accumulate"

ACCUMULATED = Operation("x + beta * c", {"c": OUT}, {"beta": None}, built_in=True)


def named(tap: Tap, output: str) -> Tap:
    """The tap with its output called so."""
    return replace(tap, output=output)
