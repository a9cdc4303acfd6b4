"""Operations of an epilogue: a formula, operands and scalars, from which kernel, launcher and reference follow."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from generator.epilogue import constant_folding, formula, gated_units
from generator.epilogue.formula import FormulaError, Number
from generator.files.package_data import data

#: Shapes that an operand may have: a number, an element on the device, a vector along M or N, a matrix in C's layout.
SCALAR, ELEMENT, ROWS, COLUMNS, MATRIX = "", "1", "M", "N", "MN"
#: The shape of a vector along N before a gated linear unit.
HALVES = "2N"
#: The shape of a matrix before one: a column for each of the product.
BOTH = "M2N"
#: C itself before the kernel writes it; only built-in operations have it.
OUT = "C"

#: Shapes as a spec writes them.
SHAPES: dict[tuple[object, ...], str] = {(): SCALAR, (1,): ELEMENT, ("M",): ROWS, ("N",): COLUMNS, ("M", "N"): MATRIX}

#: The built-in operations, in the form of a spec's own `ops`.
FILE = data("epilogue", "operations.yaml")

#: What a chain may set for an operation: its scalars, and the order of a gated linear unit.
Settings = tuple[tuple[str, Number | str], ...]


@dataclass(frozen=True)
class EpilogueOperation:
    """One epilogue operation: a formula over the running value `x`, its operands and its scalars.

    An operand has a shape. A scalar has a default, or None if each call gives it. A scalar whose default is infinite is
    a bound: it may be omitted, but an operation with bounds needs at least one of them.
    """

    formula: str
    operands: Mapping[str, str] = field(default_factory=dict, hash=False)
    scalars: Mapping[str, Number | None] = field(default_factory=dict, hash=False)
    #: Whether every spec has the operation, under the same name.
    built_in: bool = field(default=False, kw_only=True)

    @property
    def names(self) -> frozenset[str]:
        """The names that the formula may read."""
        return frozenset({formula.X, *([formula.GATE] if self.gated else []), *self.operands, *self.scalars})

    @cached_property
    def gated(self) -> bool:
        """Whether it is a gated linear unit, which combines two columns into one."""
        return re.search(rf"\b{formula.GATE}\b", self.formula) is not None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The scalars of which at least one must be given."""
        return tuple(name for name, value in self.scalars.items() if value is not None and math.isinf(value))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that a chain may set."""
        return (*self.scalars, *([gated_units.ORDER] if self.gated else []))

    @property
    def arguments(self) -> Mapping[str, str]:
        """The operands, and the scalars that each call gives, with their shapes."""
        return {**self.operands, **{name: SCALAR for name, value in self.scalars.items() if value is None}}

    def tree(self, settings: Settings = ()) -> ast.expr:
        """The folded formula with these settings; raise `FormulaError` if it is invalid."""
        values = {name: value for name, value in self.scalars.items() if value is not None}
        values |= {name: value for name, value in settings if not isinstance(value, str)}
        return constant_folding.bind(self.formula, self.names, tuple(values.items()))

    def check(self) -> None:
        """Raise `FormulaError` unless the formula is valid and reads every operand and scalar."""
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
                reason = f"{node.id!r} is {self.scalars[node.id]} by default, so it may only be an argument of {wanted}"
                raise FormulaError(reason, formula.column_of(node))
        if not self.bounds:
            self.tree()


def written(name: str) -> str:
    """The name of an operation or a scalar in a kernel's name."""
    return re.sub(r"[_()]", "", name)
