"""Operations of an epilogue: a formula, operands and scalars, from which kernel, launcher and reference follow."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from generator.epilogue import constant_folding, formula, gated_units
from generator.epilogue.formula import FormulaError, Number

#: Shapes that an operand may have: a number, an element on the device, a vector along M or N, a matrix in C's layout.
SCALAR, ELEMENT, ROWS, COLUMNS, MATRIX = "", "1", "M", "N", "MN"
#: The shape of what has shape N in front of a gate.
HALVES = "2N"
#: The result itself, as it was before the kernel writes it; of no operation of a spec's own.
OUT = "C"

#: Each as a spec writes it.
SHAPES: Mapping[tuple[object, ...], str] = {
    (): SCALAR,
    (1,): ELEMENT,
    ("M",): ROWS,
    ("N",): COLUMNS,
    ("M", "N"): MATRIX,
}

#: The built-in operations, in the form of a spec's own `ops`.
FILE = Path(__file__).with_name("operations.yaml")

#: What a chain sets of an operation: its scalars, and the order of a gate.
Settings = tuple[tuple[str, Number | str], ...]


@dataclass(frozen=True)
class Operation:
    """One epilogue operation: a formula over the running value `x`, its operands and its scalars.

    An operand has a shape. A scalar has a default, or None where each call gives it. One whose default is infinite is a
    bound that may be left out, though not every one of them.
    """

    formula: str
    operands: Mapping[str, str] = field(default_factory=dict, hash=False)
    scalars: Mapping[str, Number | None] = field(default_factory=dict, hash=False)
    #: Whether every spec has it, under one name.
    built_in: bool = field(default=False, kw_only=True)

    @property
    def names(self) -> frozenset[str]:
        """What the formula is over."""
        return frozenset({formula.X, *([formula.GATE] if self.gated else []), *self.operands, *self.scalars})

    @cached_property
    def gated(self) -> bool:
        """Whether it is a gate, which makes one column of two."""
        return re.search(rf"\b{formula.GATE}\b", self.formula) is not None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The scalars of which at least one must be given."""
        return tuple(name for name, value in self.scalars.items() if value is not None and math.isinf(value))

    @property
    def parameters(self) -> tuple[str, ...]:
        """What a chain may set."""
        return (*self.scalars, *([gated_units.ORDER] if self.gated else []))

    @property
    def arguments(self) -> Mapping[str, str]:
        """The operands, and the scalars that are left to the call, each with its shape."""
        return {**self.operands, **{name: SCALAR for name, value in self.scalars.items() if value is None}}

    def tree(self, settings: Settings = ()) -> ast.expr:
        """The formula with its scalars' values; raise `FormulaError` where they make none."""
        values = {name: value for name, value in self.scalars.items() if value is not None}
        values |= {name: value for name, value in settings if not isinstance(value, str)}
        return constant_folding.bind(self.formula, self.names, tuple(values.items()))

    def check(self) -> None:
        """Raise `FormulaError` unless the formula is one, and of everything that the operation names."""
        tree = formula.parse(self.formula, self.names)
        unused = sorted(self.names - set(formula.used(tree)))
        if unused:
            raise FormulaError(f"{unused[0]!r} is not used", 1)
        inside = {
            id(argument): node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            for argument in node.args
        }
        for node in formula.reads(tree):
            wanted = "max" if self.scalars.get(node.id) == -math.inf else "min"
            if node.id in self.bounds and inside.get(id(node)) != wanted:
                told = (
                    f"{node.id!r} is {self.scalars[node.id]} by default, which only {wanted} takes, as one of its two"
                )
                raise FormulaError(told, formula.column_of(node))
        if not self.bounds:
            self.tree()


def written(name: str) -> str:
    """An operation or a scalar as a kernel's name has it."""
    return name.replace("_", "")
