"""What follows a kernel's sum, as its template reads it: the chain, its operands and outputs, and the store of C."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from generator.epilogue.operations import SCALAR
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.lowering.accumulation import Accumulation
from generator.lowering.epilogue_lowering import StepView
from generator.lowering.operands import Matrix, Vector
from generator.lowering.outputs import OutputView
from generator.lowering.quantised import QuantisedView


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
