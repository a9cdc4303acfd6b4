"""The steps of an epilogue as a kernel spells them, on a tile or an element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from generator.epilogue.auxiliary_outputs import ACCUMULATE
from generator.epilogue.chain import Epilogue, EpilogueOperand
from generator.epilogue.formula import GATE, X
from generator.epilogue.formula_code import to_triton
from generator.epilogue.gated_units import CONCATENATED, PLACES
from generator.epilogue.operations import ELEMENT, HALVES, MATRIX, OUT, ROWS, SCALAR
from generator.epilogue.quantisation import Quantisation
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype
from generator.language.vocabulary import SCHEDULE
from generator.language.word_traits import Products
from generator.lowering import approximate_math
from generator.lowering.operands import Matrix, Vector, broadcast
from generator.lowering.outputs import OutputView, output_view, stored


@dataclass(frozen=True)
class StepView:
    """One epilogue step: its operands, the lines that give `x` its new value, and the helpers that it calls.

    An auxiliary output has an output instead of lines. C is among the operands where it is read.
    """

    operands: tuple[Matrix | Vector, ...]
    lines: tuple[str, ...]
    helpers: tuple[str, ...]
    #: Columns before its statements.
    depth: int
    output: OutputView | None = None


@cache
def step_views(
    epilogue: Epilogue, dtype: Dtype, c: Matrix, products: Products, schedule: str, math: str
) -> tuple[tuple[StepView, ...], str, str]:
    """The epilogue's steps as a kernel spells them, on a tile or an element, the type after them, and what is stored.

    The matrices among the operands share the layout of `c`, and lie as it does for the `products` of a call. `math` is
    what `fast.math_of` says.
    """
    sum_type = dtype.sum
    values = {X: "acc"} if epilogue.gate is None else {GATE: "acc_gate", X: "acc_up"}
    steps: list[StepView] = []
    depth = SCHEDULE[schedule].indent
    exact = dtype.whole and epilogue.exact
    whole = not ELEMENTS[sum_type].floating and all(step.keeps_integers(exact=exact) for step in epilogue.steps)
    for step in epilogue.steps:
        if isinstance(step.meaning, Quantisation):
            # It is no step of the chain's arithmetic, but how the kernel stores what the chain has computed.
            return tuple(steps), sum_type, stored(values[X], sum_type, "fp32", whole=False)
        if step.output is not None:
            places = PLACES[epilogue.order or CONCATENATED] if step.output.gated else {X: "{}"}
            for half, form in places.items():
                output = output_view(step.output, c, values[half], sum_type, dtype.out, whole=whole, place=form)
                steps.append(StepView((), (), (), depth, output))
            continue
        stays = not ELEMENTS[sum_type].floating and step.keeps_integers(exact=exact)
        if not stays and sum_type != "fp32":
            values, sum_type = {name: f"{text}.to(tl.float32)" for name, text in values.items()}, "fp32"
        spellings = {local: _broadcast(operand, schedule) for local, operand in step.operands}
        functions = approximate_math.functions(approximate_math.takes(step, math), dtype.out)
        helpers = approximate_math.helpers(step.tree, functions)
        operands = tuple(replace(_operand(operand, c, products), whole=exact) for _, operand in step.operands)
        if step.operation == ACCUMULATE:
            read = replace(c, when=epilogue.beta, like=values[X], whole=exact)
            operands = (*(x for x in operands if x.name != c.name), read)
        if step is epilogue.gate or GATE not in values:
            lines = to_triton(step.tree, {**values, **spellings}, integer=stays, functions=functions)
            steps.append(StepView(operands, lines, helpers, depth))
            values = {X: X}
            continue
        for half, form in PLACES[epilogue.order or CONCATENATED].items():
            halves = {X: values[half], **spellings}
            lines = to_triton(step.tree, halves, integer=stays, functions=functions, target=half)
            # What both halves share is loaded once.
            loaded = tuple(_part(o, form) for o in operands if half == GATE or o.shape == HALVES)
            steps.append(StepView(loaded, lines, helpers, depth))
        values = {GATE: GATE, X: X}
    return tuple(steps), sum_type, stored(values[X], sum_type, dtype.out, whole=whole)


def _broadcast(operand: EpilogueOperand, schedule: str) -> str:
    if not SCHEDULE[schedule].tiled:
        return operand.name
    return broadcast(operand.name, operand.shape)


def _operand(operand: EpilogueOperand, c: Matrix, products: Products) -> Matrix | Vector:
    if operand.shape == OUT:
        return c
    if operand.shape == MATRIX:
        lies = c.number, c.first_row, c.first_column
        return Matrix(operand.name, operand.name, "M", "N", c.layout, *lies)
    if operand.shape in (SCALAR, ELEMENT):
        return Vector(operand.name, operand.shape)
    first = c.first_row if operand.shape == ROWS else ""
    return Vector(operand.name, operand.shape, product="" if first else products.number, first=first)


def _part(operand: Matrix | Vector, form: str) -> Matrix | Vector:
    """What one half of a product takes of an operand in front of a gate."""
    return replace(operand, place=form) if isinstance(operand, Vector) and operand.shape == HALVES else operand
