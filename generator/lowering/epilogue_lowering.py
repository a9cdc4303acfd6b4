"""What follows a kernel's sum: the chain on a tile or an element, its operands and outputs, and the store of C."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

from generator.epilogue.auxiliary_outputs import ACCUMULATE
from generator.epilogue.chain import Epilogue, EpilogueOperand
from generator.epilogue.formula import GATE, X
from generator.epilogue.formula_code import to_triton
from generator.epilogue.gated_units import CONCATENATED, PLACES
from generator.epilogue.operations import ELEMENT, HALVES, MATRIX, OUT, ROWS, SCALAR
from generator.epilogue.quantisation import Quantisation
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype
from generator.language.vocabulary import SCHEDULE
from generator.language.word_traits import Products
from generator.lowering import approximate_math
from generator.lowering.accumulation import Accumulation
from generator.lowering.operands import Matrix, Vector, broadcast
from generator.lowering.outputs import OutputView, QuantisedView, output_view, stored


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


@dataclass(frozen=True)
class EpilogueView(Accumulation):
    """A kernel's sum with the steps that make the result of it, and what they read and write."""

    c: Matrix
    steps: tuple[StepView, ...]
    #: The type of the running value after the last step, and the expression that is stored.
    kind: str
    result: str
    #: Whether what follows the sum uses the coordinates of the tile's columns.
    columns_of_chain: bool
    #: How C is quantised under scales of its own; None for a C of the type that the spec says.
    quantisation: QuantisedView | None = None

    @property
    def epilogue_note(self) -> str:
        """The comment that opens the epilogue."""
        rounded = f", rounded to {self.v.out} only at the store" if self.rounds else ""
        if self.v.rounds_between:
            rounded = f", rounded to {self.v.dtype.out} before each operation as eager torch does"
        return f"Epilogue in {self.kind}, on the whole sum{rounded}."

    @property
    def store_note(self) -> str:
        if self.quantisation is not None:
            return ""
        if self.saturates:
            return f", saturated to {self.v.dtype.out}"
        if self.quantises:
            return f", saturated and rounded to {self.v.dtype.out} once"
        return f", rounding to {self.v.dtype.out} once" if self.rounds else ""

    @property
    def quantises(self) -> str | None:
        """The macro of math.j2 that makes the result's type of the running value; None where a cast does."""
        if self.v.dtype.out not in QUANTISED or (self.quantisation is not None and not self.saved):
            return None
        out = ELEMENTS[self.v.dtype.out]
        return out.saturates if self.saturates else out.quantises

    @property
    def saturates(self) -> bool:
        """Whether the running value is an integer, which the store saturates and does not round."""
        return bool(ELEMENTS[self.v.dtype.out].saturates) and not ELEMENTS[self.kind].floating

    @property
    def rounds(self) -> bool:
        """Whether the store rounds: not where the result's type has every value, as fp32 has those of fp16."""
        return self.quantisation is None and not ELEMENTS[self.v.dtype.out].holds(ELEMENTS[self.kind])

    @cached_property
    def operands(self) -> tuple[Matrix | Vector, ...]:
        """The operands of the epilogue, in the order of its steps."""
        # Those in front of a gate have a part for each half.
        read = {operand.name: operand for step in self.steps for operand in step.operands}
        return tuple(operand for name, operand in read.items() if name != self.c.name)

    @cached_property
    def outputs(self) -> tuple[OutputView, ...]:
        """What the kernel writes beside C, in the order of the chain; of what it writes in halves, the second."""
        return tuple({step.output.name: step.output for step in self.steps if step.output is not None}.values())

    @cached_property
    def saved(self) -> tuple[Matrix, ...]:
        """The outputs that lie as C does, and are written as it is but for those that are `halved`."""
        return tuple(output.matrix for output in self.outputs if not output.reduced)

    @cached_property
    def halved(self) -> tuple[Matrix, ...]:
        """Of these the ones with two columns for each of C, which are written through pointers."""
        return tuple(output.matrix for output in self.outputs if output.halved)

    @cached_property
    def parts(self) -> tuple[Matrix, ...]:
        """What tiles leave of reductions, which is written through pointers."""
        return tuple(output.matrix for output in self.outputs if output.reduced)

    @property
    def scales_of_c(self) -> tuple[Matrix, ...]:
        """The scales that the kernel writes beside C, through pointers."""
        return () if self.quantisation is None else (self.quantisation.scales,)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The M×N operands of the epilogue."""
        return tuple(o for o in self.operands if isinstance(o, Matrix))

    @cached_property
    def vectors(self) -> tuple[Vector, ...]:
        """The vectors of which there is one for each product."""
        return tuple(o for o in self.operands if isinstance(o, Vector) and o.product)

    @cached_property
    def scalars(self) -> tuple[Vector, ...]:
        return tuple(o for o in self.operands if isinstance(o, Vector) and o.shape == SCALAR)


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
