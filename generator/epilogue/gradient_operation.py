"""`grad(OP)`: the running value times the derivative of an operation at an operand, as a backward pass needs it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from generator.epilogue import formula, formula_code
from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.derivative import derivative, product
from generator.epilogue.formula import FormulaError, X
from generator.epilogue.operations import MATRIX, EpilogueOperation, Settings
from generator.epilogue.quantisation import Quantisation

#: The word in a chain, and the operand that is given the value before the operation.
GRAD, PREACT = "grad", "preact"


@dataclass(frozen=True)
class GradientOperation(EpilogueOperation):
    """`x * OP'(preact)`: `formula` and `scalars` are those of OP, the operand `preact` is [M, N]."""

    @property
    def of(self) -> EpilogueOperation:
        """OP, which is not marked as built in."""
        return EpilogueOperation(self.formula, {}, self.scalars)

    def tree(self, settings: Settings = ()) -> ast.expr:
        slope = formula_code.to_text(derivative(self.of.tree(settings), X), {X: ast.Name(PREACT)})
        if PREACT not in formula.used(slope):
            raise FormulaError(f"has the derivative {ast.unparse(slope)} everywhere: {PREACT} would not be read", 1)
        return product(ast.Name(X), slope)

    def check(self) -> None:
        self.of.check()
        if not self.bounds:
            self.tree()


def gradient_name(operation: str) -> str:
    """The name of the gradient of `operation` in chains and manifests."""
    return f"{GRAD}({operation})"


def gradient_of(operation: EpilogueOperation) -> GradientOperation:
    """The gradient of an operation for which `why_no_gradient` is None."""
    return GradientOperation(operation.formula, {PREACT: MATRIX}, operation.scalars)


def why_no_gradient(operation: EpilogueOperation) -> str | None:
    """Why a chain cannot have the gradient of `operation`, or None."""
    if isinstance(operation, AuxiliaryOutput):
        return "is an output, which leaves the running value unchanged"
    if isinstance(operation, Quantisation):
        return "stores C in another type, which has no derivative"
    if operation.gated:
        return "is a gated linear unit, which has two derivatives"
    if operation.operands:
        return f"has the operand {next(iter(operation.operands))!r}, and {GRAD} is for operations without operands"
    return f"has a scalar {PREACT!r}, the name of the gradient's operand" if PREACT in operation.scalars else None
