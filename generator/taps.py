"""Outputs beside C, and C itself as an operand: elements of a chain that no formula alone tells of.

A tap writes what the running value is at its place, or a sum or maximum of it, and leaves the value as it is. To
everything that walks a chain it is an operation that changes nothing.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace

from yaml.nodes import MappingNode, Node, SequenceNode

from generator.document import plain
from generator.errors import shown
from generator.formula import X
from generator.operations import COLUMNS, MATRIX, OPERATIONS, OUT, ROWS, Operation, read_keyword
from generator.reading import Reader

#: Longer names would not fit into a kernel's lines.
_LONGEST_NAME = 14


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
    "save": Tap(X, output="preact"),
    "row_sum": Tap(X, output="row_sum", shape=ROWS, reduction="sum"),
    "col_sum": Tap(X, output="col_sum", shape=COLUMNS, reduction="sum"),
    "row_amax": Tap(X, output="row_amax", shape=ROWS, reduction="amax"),
}

#: The operation that reads C before it writes it.
ACCUMULATE = "accumulate"

_OWN: dict[str, Operation] = {ACCUMULATE: Operation("x + beta * c", {"c": OUT}, {"beta": None}), **TAPS}

#: All operations that every spec has, those of formulas alone first.
BUILT_IN: Mapping[str, Operation] = ChainMap(_OWN, OPERATIONS)  # type: ignore[arg-type]


def named(tap: Tap, output: str) -> Tap:
    """The tap with its output called so."""
    return replace(tap, output=output)


def read_output(reader: Reader, node: Node, word: str) -> Tap | None:
    """The tap `word` with its output called as `node` says; None, with the mistake recorded, where it cannot be."""
    before = len(reader.mistakes)
    name, what = plain(node), f"epilogue.{word}"
    if isinstance(node, (MappingNode, SequenceNode)) or not isinstance(name, str):
        reader.wrong(node, f"{what}: expected the name of the output, as in {{{word}: hidden}}, found {shown(name)}")
        return None
    read_keyword(reader, node, what, name, _LONGEST_NAME)
    if len(reader.mistakes) == before and "_" in name and name != TAPS[word].output:
        told = f"{name!r} has an underscore, which the names of kernels drop; choose a name of letters and digits"
        reader.wrong(node, f"{what}: {told}")
    return named(TAPS[word], name) if len(reader.mistakes) == before else None


def table() -> str:
    """The outputs beside C as a Markdown table."""
    rows = ["| element | output | shape | dtype | what it is |", "|---|---|---|---|---|"]
    for word, tap in TAPS.items():
        dtype = "fp32" if tap.reduction else "C's"
        shape = "M, N" if tap.shape == MATRIX else tap.shape
        rows.append(f"| `{word}` | `{tap.output}` | [{shape}] | {dtype} | {tap.meaning.format('the value')} |")
    return "\n".join(rows)
