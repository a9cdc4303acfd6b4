"""The gradients of a chain: for each step, backwards, the derivatives that a kernel of the backward pass multiplies.

With g the gradient of what a step returns, element by element,

    gradient of the running value = g * the step's derivative by it, plus the gradient of an auxiliary output there
    gradient of an operand        = g * the step's derivative by it, summed over what the operand is broadcast along

`derivative.product` makes these products; it leaves the zeros of branches as they are. An operand [M] is summed along
N, [N] along M, [2N] along M for all 2N columns, [] and [1] over all elements, and [M, N] not at all.

A gated linear unit turns one g (M, N) into two, of `gate` and of `x`; steps before it apply to each half with the
operands of that half. Rounding between steps (`Epilogue.rounded`) has the derivative 1.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from generator.epilogue import formula
from generator.epilogue.chain import Epilogue, EpilogueOperand, Step
from generator.epilogue.derivative import derivative
from generator.epilogue.formula import GATE, X
from generator.epilogue.operations import COLUMNS, MATRIX, ROWS


@dataclass(frozen=True)
class StepGradient:
    """The derivatives of one step, each a tree over the values before the step and the step's operands.

    The names in a tree are `x`, for a gated linear unit also `gate`, and the operation's own names of its operands
    (`add`, where the launcher's keyword may be `add2`).
    """

    step: Step
    #: `x`, or `gate` and `x` -> the derivative by it.
    values: Mapping[str, ast.expr]
    #: The operation's name of an operand -> the operand, and the derivative by it. C and scalars of a call included.
    operands: Mapping[str, tuple[EpilogueOperand, ast.expr]]

    def reads_value(self, keywords: Collection[str]) -> bool:
        """Whether the gradients of the running value and of the operands `keywords` read the value before the step."""
        trees = [*self.values.values(), *(tree for o, tree in self.operands.values() if o.name in keywords)]
        return any({X, GATE} & set(formula.used(tree)) for tree in trees)


def gradients(chain: Epilogue) -> tuple[StepGradient, ...]:
    """The derivatives of the steps of `chain`, the last step first; raise `FormulaError` as `derivative` does."""
    return tuple(_gradient(step) for step in reversed(chain.steps))


def reads_sum(chain: Epilogue, keywords: Collection[str]) -> bool:
    """Whether the gradients of A, B and the operands `keywords` of `chain` read a running value.

    If so, the backward pass needs the sum A @ B, saved or computed again; `none`, `bias` and `add` never need it.
    """
    return any(gradient.reads_value(keywords) for gradient in gradients(chain))


def passes(chain: Epilogue) -> bool:
    """Whether the gradient of C is that of the sum and of each vector and matrix that is read, as with `bias`."""
    passed = gradients(chain)
    trees = [tree for each in passed for tree in (*each.values.values(), *(tree for _, tree in each.operands.values()))]
    ones = all(isinstance(tree, ast.Constant) and tree.value == 1 for tree in trees)
    return ones and not chain.outputs and all(each.shape in (ROWS, COLUMNS, MATRIX) for each in chain.operands)


def _gradient(step: Step) -> StepGradient:
    names = (GATE, X) if step.meaning.gated else (X,)
    return StepGradient(
        step,
        {name: derivative(step.tree, name) for name in names},
        {local: (operand, derivative(step.tree, local)) for local, operand in step.operands},
    )
