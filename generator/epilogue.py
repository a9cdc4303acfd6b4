"""Epilogue operations: one entry each, from which kernel, launcher, docstring, reference and checks follow."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from generator import formula

#: Shapes that an operand may have: one number, a vector along M or N, a matrix in C's layout.
SCALAR, ROWS, COLUMNS, MATRIX = "", "M", "N", "MN"


@dataclass(frozen=True)
class Operation:
    """One epilogue operation: a formula over the running value `x` and its operands, each with its shape."""

    formula: str
    operands: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def tree(self) -> ast.expr:
        return formula.parse(self.formula, frozenset({formula.X, *self.operands}))


#: The built-in operations. To add one, add its line here.
OPERATIONS: Mapping[str, Operation] = {
    "bias": Operation("x + bias", {"bias": COLUMNS}),
    "bias_m": Operation("x + bias_m", {"bias_m": ROWS}),
    "scale": Operation("x * scale", {"scale": SCALAR}),
    "add": Operation("x + add", {"add": MATRIX}),
    "relu": Operation("max(x, 0)"),
    "gelu": Operation("0.5 * x * (1 + erf(x * 0.7071067811865476))"),
    # 0.5 * (1 + tanh(u)) is sigmoid(2u), which does not cancel in the negative tail; 2 * sqrt(2 / pi) = 1.5957...
    "gelu_tanh": Operation("x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))"),
    "silu": Operation("x * sigmoid(x)"),
    "sigmoid": Operation("sigmoid(x)"),
    "tanh": Operation("tanh(x)"),
}

#: Words of the language whose formulas are still to come.
PLANNED = tuple(
    word
    for word in (
        "scale_m",
        "scale_n",
        "mul",
        "relu2",
        "leaky_relu",
        "quick_gelu",
        "softplus",
        "hardswish",
        "clamp",
    )
    if word not in OPERATIONS
)


@dataclass(frozen=True)
class Operand:
    """An epilogue operand of one kernel: the launcher's keyword and its shape."""

    name: str
    shape: str


@dataclass(frozen=True)
class Step:
    """One operation as a chain uses it: its operands under the launcher's names (`add`, then `add2`)."""

    operation: str
    meaning: Operation
    operands: tuple[tuple[str, Operand], ...]

    @property
    def tree(self) -> ast.expr:
        return self.meaning.tree


@dataclass(frozen=True)
class Epilogue:
    """A chain of operations applied left to right to the accumulator; empty for `none`."""

    steps: tuple[Step, ...] = ()

    @cached_property
    def word(self) -> str:
        """As a spec writes it: `none`, or the operations joined by `+`."""
        return "+".join(step.operation for step in self.steps) or "none"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(operand for step in self.steps for _, operand in step.operands)

    @cached_property
    def text(self) -> str:
        """The whole as a formula: `relu(A @ B + bias)`."""
        tree = ast.parse("A @ B", mode="eval").body
        for step in self.steps:
            if step.operands:
                names = {local: operand.name for local, operand in step.operands}
                renamed = ast.parse(formula.to_triton(step.tree, {formula.X: formula.X, **names}), mode="eval").body
                tree = formula.to_text(renamed, tree)
            else:
                tree = ast.Call(ast.Name(step.operation), [tree], [])
        return ast.unparse(tree)

    @classmethod
    def of(cls, operations: tuple[str, ...]) -> Epilogue:
        """The chain of `operations`, a second use of an operand numbered; raise KeyError for an unknown one."""
        taken: dict[str, int] = {}
        steps = []
        for name in operations:
            operands = []
            meaning = OPERATIONS[name]
            for local, shape in meaning.operands.items():
                taken[local] = taken.get(local, 0) + 1
                count = taken[local]
                operands.append((local, Operand(local if count == 1 else f"{local}{count}", shape)))
            steps.append(Step(name, meaning, tuple(operands)))
        return cls(tuple(steps))
