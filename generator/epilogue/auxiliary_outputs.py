"""Auxiliary outputs, and C itself as an operand: elements of a chain that are more than a formula.

An auxiliary output stores the running value at its place in the chain, or a sum or maximum of it, and leaves the
running value unchanged. Code that walks a chain sees it as an operation whose formula is `x`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from generator.epilogue.formula import X
from generator.epilogue.operations import COLUMNS, ELEMENT, MATRIX, OUT, ROWS, EpilogueOperation


@dataclass(frozen=True)
class AuxiliaryOutput(EpilogueOperation):
    """An operation that writes an output: the output's name, its shape, and the reduction over the other dimension.

    An output of shape M is computed from the rows, one of shape N from the columns, of the running value, one of a
    single element from all of it.
    """

    output: str = ""
    shape: str = MATRIX
    #: `sum` or `amax` as torch calls it; empty where the value itself is stored.
    reduction: str = ""

    @property
    def differentiable(self) -> bool:
        """Whether the output has a gradient: not a maximum, whose element the backward pass could not find again."""
        return self.reduction != "amax"

    @property
    def dimension(self) -> int:
        """The dimension of the running value that the reduction removes, as torch counts it."""
        return -1 if self.shape == ROWS else -2

    def lines(self, x: Any) -> Any:
        """A running value (..., M, N) as it is reduced along `dimension`: for a single element in one column."""
        return x.flatten(-2)[..., None] if self.shape == ELEMENT else x

    @property
    def meaning(self) -> str:
        """The output in words, as a function of the running value `{}`."""
        if not self.reduction:
            return "{}"
        each = {ROWS: " of each row", COLUMNS: " of each column"}.get(self.shape, "")
        return f"the {'sum' if self.reduction == 'sum' else 'largest absolute value'}{each} of {{}}"


AUXILIARY: Mapping[str, AuxiliaryOutput] = {
    "save": AuxiliaryOutput(X, output="preact", built_in=True),
    "row_sum": AuxiliaryOutput(X, output="row_sum", shape=ROWS, reduction="sum", built_in=True),
    "col_sum": AuxiliaryOutput(X, output="col_sum", shape=COLUMNS, reduction="sum", built_in=True),
    "row_amax": AuxiliaryOutput(X, output="row_amax", shape=ROWS, reduction="amax", built_in=True),
    "amax": AuxiliaryOutput(X, output="amax", shape=ELEMENT, reduction="amax", built_in=True),
}

#: The operation that reads C before it writes it.
ACCUMULATE = "accumulate"

ACCUMULATED = EpilogueOperation("x + beta * c", {"c": OUT}, {"beta": None}, built_in=True)


def named(writer: AuxiliaryOutput, output: str) -> AuxiliaryOutput:
    """The auxiliary output with the name `output`."""
    return replace(writer, output=output)
