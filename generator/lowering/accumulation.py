"""How a kernel accumulates products of operand tiles, up to the whole sum that the epilogue starts from."""

from __future__ import annotations

from dataclasses import dataclass

from generator.epilogue.gated_units import CONCATENATED
from generator.language.model import Variant
from generator.language.vocabulary import ELEMENTS, Schedule
from generator.lowering.operands import Matrix
from generator.plan.kernels import Kernel
from generator.plan.resources import through_registers


@dataclass(frozen=True)
class Accumulation:
    """A kernel's accumulators, one or a gate's two, and the statements that clear, fill and hand them on."""

    kernel: Kernel
    a: Matrix
    b: Matrix

    @property
    def v(self) -> Variant:
        return self.kernel.variant

    @property
    def tiled(self) -> bool:
        """Whether a program computes a tile, rather than one element."""
        return self.v.traits.tiled

    @property
    def schedule(self) -> Schedule:
        return self.v.traits

    @property
    def descriptors(self) -> bool:
        return self.v.load == "descriptor"

    @property
    def acc(self) -> str:
        return ELEMENTS[self.v.dtype.acc].triton

    @property
    def acc_word(self) -> str:
        return self.v.dtype.acc

    @property
    def dot_options(self) -> str:
        dtype = self.v.dtype
        if dtype.stored_a.multiplied == "fp32":
            return f', input_precision="{dtype.precision}"'
        if dtype.precision == "full":
            deepest = max(tile.k for tile in self.kernel.tiles)
            return f", max_num_imprecise_acc={'BLOCK_K' if deepest <= 128 else 'BLOCK_K if BLOCK_K < 128 else 128'}"
        return f", out_dtype=tl.{self.acc}" if dtype.acc != "fp32" else ""

    @property
    def exchanged(self) -> bool:
        """Whether the accumulator holds the transposed of C's tile."""
        return self.v.product == "exchanged"

    @property
    def transposed(self) -> str:
        """What the accumulator holds, where it is not the tile itself."""
        return " C^T = B^T A^T" if self.exchanged else ""

    @property
    def order(self) -> str | None:
        """The order of the two columns of B that a gate makes one of; None where there is no gate."""
        return self.v.epilogue.order

    @property
    def strips(self) -> tuple[tuple[str, str], ...]:
        """What B's columns of a tile are loaded in: the end of each one's names, and its columns."""
        if self.schedule.pairs:
            return (("_left", "LEFT_N"), ("_right", "BLOCK_N - LEFT_N"))
        columns = f"{self.b.pairs}BLOCK_N"
        apart = self.order == CONCATENATED or (self.order is not None and not self.tiled)
        return (("_gate", columns), ("_up", columns)) if apart else (("", columns),)

    @property
    def sums(self) -> tuple[str, ...]:
        """The accumulators of a product, one for each strip of B."""
        return tuple(f"acc{end}" for end, _ in self.strips)

    @property
    def columns_of_b(self) -> tuple[tuple[str, str], ...]:
        """For a single element, each accumulator with the column of B that it sums."""
        return tuple(zip(self.sums, self.b.places("n")))

    @property
    def clear(self) -> str:
        """The statements that make accumulators of nothing."""
        shapes = ((end, f"{n}, BLOCK_M" if self.exchanged else f"BLOCK_M, {n}") for end, n in self.strips)
        return "\n".join(f"acc{end} = tl.zeros(({shape}), tl.{self.acc})" for end, shape in shapes)

    @property
    def multiply(self) -> str:
        """The statements that add the products of operand tiles to the accumulators."""
        lines = []
        if held := through_registers(self.v):
            names = [f"b{end}" for end, _ in self.strips] if held == "b" else ["a"]
            lines = [f"# Clearing the bits that tf32 drops puts {held.upper()} into registers: there any layout works."]
            lines += [f"{x} = ({x}.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)" for x in names]
        turned = "" if self.b.flipped else ".T"
        for end, _ in self.strips:
            tiles = f"b{end}{turned}, a.T" if self.exchanged else f"a, b{end}"
            lines.append(f"acc{end} = tl.dot({tiles}, acc{end}{self.dot_options})")
        return "\n".join(lines)

    @property
    def turned(self) -> tuple[str, ...]:
        """The statements behind the sum that make accumulators of C's rows and columns, one where it is handed in."""
        lines = [f"{acc} = {acc}.T" for acc in self.sums] if self.exchanged else []
        if self.schedule.workspace and self.order == CONCATENATED:
            lines.append("# One partial sum to write: columns of the gate and of x alternate.")
            lines.append("acc = tl.join(acc_gate, acc_up).reshape((BLOCK_M, 2 * BLOCK_N))")
        elif not self.schedule.workspace:
            lines += self.parted
        return tuple(lines)

    @property
    def parted(self) -> tuple[str, ...]:
        """The statement that takes the accumulator apart whose columns are the gate's and the others by turns."""
        if self.order is None or (self.order == CONCATENATED and not self.schedule.workspace):
            return ()
        why = "# Columns of the gate and of x alternate."
        return (why, "acc_gate, acc_up = acc.reshape((BLOCK_M, BLOCK_N, 2)).split()")

    @property
    def handed(self) -> str:
        """The columns of a partial sum that is handed in."""
        return "BLOCK_N" if self.order is None else "2 * BLOCK_N"
