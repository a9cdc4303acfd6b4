"""How a kernel accumulates products of operand tiles, up to the whole sum that the epilogue starts from."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from generator.epilogue.gated_units import CONCATENATED
from generator.language.elements import ELEMENTS
from generator.lowering.lines import INDENT, bracketed
from generator.lowering.stored_operands import Conversion, Factor, conversion, product_of
from generator.lowering.tile_factors import TileFactors
from generator.plan.resources import in_registers, through_registers


@dataclass(frozen=True)
class Accumulation(TileFactors):
    """A kernel's accumulators, one or a gate's two, and the statements that clear, fill and hand them on."""

    @property
    def acc(self) -> str:
        return ELEMENTS[self.v.dtype.acc].triton

    @property
    def dot_options(self) -> str:
        dtype = self.v.dtype
        if dtype.stored_a.multiplied_bits == 32:
            return f', input_precision="{dtype.precision}"'
        deepest = max(tile.k for tile in self.kernel.tiles)
        if dtype.precision == "full" and self.step_factors:
            # The sum of a step is one of fp32 as soon as it is scaled.
            return ", max_num_imprecise_acc=128" if deepest > 128 else ""
        if dtype.precision == "full":
            return f", max_num_imprecise_acc={'BLOCK_K' if deepest <= 128 else 'BLOCK_K if BLOCK_K < 128 else 128'}"
        return f", out_dtype=tl.{self.acc}" if dtype.acc != "fp32" else ""

    @property
    def exchanged(self) -> bool:
        """Whether the accumulator holds the transposed of C's tile."""
        return self.v.product == "exchanged"

    @property
    def summed(self) -> bool:
        """Whether an element of the accumulator is for one index of a step along K, rather than for all."""
        return self.v.product == "summed"

    @property
    def shared_step(self) -> bool:
        """Whether a group's last step along K may hold elements of the next one, since descriptors know no groups."""
        return self.descriptors and self.v.products.divided == "K"

    def until(self, last: str) -> str:
        """Where the loop along K stops that sums up to `last`: a rest that is shared with the next group is apart."""
        return "K - rest" if self.shared_step else last

    def loop(self, first: str, last: str) -> str:
        """What the loop along K goes over. Without `tl.dot` Triton pipelines a loop only by a number of stages."""
        steps = f"{first}, {self.until(last)}, BLOCK_K"
        return f"tl.range({steps}, num_stages=num_stages)" if self.summed else f"range({steps})"

    @property
    def transposed(self) -> str:
        """What the accumulator holds, where it is not the tile itself."""
        return " C^T = B^T A^T" if self.exchanged else ""

    @property
    def beside(self) -> str:
        """What is to say of a tile whose columns are two blocks, or whose sums are not whole."""
        if self.summed:
            return "; each index of a step has a sum of its own"
        if not self.blocks:
            return ""
        many = {2: "two", 3: "three"}[len(self.blocks)]
        if self.a.parts:
            return f"; A's rows are {many} blocks"
        return f"; B's columns are {many} blocks{'' if self.exchanged else ' of different widths'}"

    @property
    def _products(self) -> tuple[tuple[tuple[str, str], tuple[str, str]], ...]:
        """The piece of A and the strip of B of each accumulator."""
        return tuple(itertools.product(self.pieces, self.strips))

    @property
    def sums(self) -> tuple[str, ...]:
        """The accumulators of a product, one for each strip of B and piece of A."""
        return tuple(f"acc{strip}{piece}" for (piece, _), (strip, _) in self._products)

    @property
    def columns_of_b(self) -> tuple[tuple[str, str], ...]:
        """For a single element, each accumulator with the column of B that it sums."""
        return tuple(zip(self.sums, self.b.places("n")))

    @property
    def clear(self) -> str:
        """The statements that make accumulators of nothing."""
        along = ", BLOCK_K" if self.summed else ""
        shapes = [f"{n}, {m}" if self.exchanged else f"{m}, {n}{along}" for (_, m), (_, n) in self._products]
        dtype = "float32" if self.step_factors else self.acc
        lines = [f"{acc} = tl.zeros(({shape}), tl.{dtype})" for acc, shape in zip(self.sums, shapes)]
        if self.adds_rows_of_a and not self._zeros_by_step:
            lines += [f"a_sum{end} = tl.zeros(({rows},), tl.float32)" for end, rows in self.pieces]
        return "\n".join(lines)

    @property
    def multiply(self) -> str:
        """The statements that add the products of operand tiles to the accumulators."""
        lines = []
        if held := through_registers(self.v):
            names = [f"{held}{end}" for end, _ in (self.strips if held == "b" else self.pieces)]
            lines = [f"# Clearing the bits that tf32 drops puts {held.upper()} into registers: there any layout works."]
            lines += [f"{x} = ({x}.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)" for x in names]
        if self.adds_rows_of_a:
            lines += [self._add_rows_of_a(end) for end, _ in self.pieces]
        turned = ".T" if self.exchanged != self.b.flipped else ""
        for (piece, _), (end, _) in self._products:
            acc = f"acc{end}{piece}"
            tiles = f"b{end}{turned}, a{piece}.T" if self.exchanged else f"a{piece}, b{end}{turned}"
            if self.summed:
                lines.append(f"{acc} += a[:, None, :] * b{end}.T[None, :, :]")
            elif self.v.dtype.native:
                lines.append(f"{acc} = {self._dot_scaled(end, turned)}")
            elif self.step_factors:
                product = f"tl.dot({tiles}{self.dot_options})"
                lines += self._scaled(piece, end, product, self.step_factors, add=True)
            else:
                depth = 2 * INDENT if self.v.traits.looped else INDENT
                items = f"{tiles}, {acc}{self.dot_options}".split(", ")
                head = f"{acc} = tl.dot("
                dot = bracketed(head, items, ")", depth).splitlines()
                if len(dot) == 3 and " < 128 else " in dot[1]:
                    # Before a comment a formatter gives each argument a line.
                    dot = [head, *(f"    {item}," for item in items), ")"]
                # With `min` it would be another kernel, to be proved again.
                lines += [line + "  # noqa: FURB136" * (" < 128 else " in line) for line in dot]
        return "\n".join(lines)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The accumulators that each step must wait for: of products that read an operand from registers.

        ptxas before CUDA 13.3 writes the next operand into those registers while an asynchronous product of Hopper
        still reads them (https://github.com/triton-lang/triton/issues/9433). A step waits for a sum that it uses.
        """
        looped = self.tiled and self.v.traits.looped
        return self.sums if looped and in_registers(self.v) and not self.step_factors else ()

    def _dot_scaled(self, end: str, turned: str) -> str:
        """The product of tiles as they are stored, by their scales, and the sum before."""
        a, b = (storage.element.format for storage in self.v.dtype.stored)
        return f'tl.dot_scaled(a, a_scale, "{a}", b{end}{turned}, b_scale{end}, "{b}", acc{end})'

    @property
    def conversions(self) -> tuple[Conversion, ...]:
        """The tiles that a kernel converts to the type in which they are multiplied."""
        a, b = self.v.dtype.stored
        conversions = [conversion(a, f"a{end}", rows) for end, rows in self.pieces] if a.converted else []
        if b.converted:
            indices = [x.name for x in self.metadata] or [""] * len(self.b.tiles)
            named = zip(self.strips, indices, strict=True)
            lead = "lead" * b.fragments
            conversions += [
                conversion(b, f"b{end}", lines, self.b.shuffle, index, lead) for (end, lines), index in named
            ]
        return tuple(conversions)

    @property
    def reordered(self) -> tuple[str, ...]:
        """The statements that put A's tile, if it is small, and B's in B's order of K, where A is not copied in it."""
        shuffle = self.b.shuffle
        if shuffle is None or not shuffle.wide:
            return ()
        loaded = [shuffle.ordered(f"b{end}", lines) for end, lines in self.strips]
        rows = [line for end, lines in self.pieces for line in shuffle.ordered(f"a{end}", lines, paired=False)]
        return (
            "# Few rows: the order of K in which the matrix unit reads what a thread loads of B together.",
            f"if {shuffle.few}:",
            *(f"    {line}" for line in rows),
            *(f"    {grouped}" for grouped, _ in loaded),
            *(shaped for _, shaped in loaded),
        )

    @property
    def lead(self) -> str | None:
        """The word that a step sets in the pairs that it decodes, where that is a variable of the kernel."""
        own = (tile for tile in self.conversions if tile.lead_name or (tile.shuffle and tile.shuffle.wide))
        words = {tile.lead_of_pairs for tile in own}
        return next(iter(words), None)

    @property
    def scaled_elements(self) -> tuple[str, ...]:
        """The statements that multiply the elements of a step by scales of their type."""
        lines, triton = [], ELEMENTS[self.v.dtype.stored_b.multiplied].triton
        for end, _ in self.strips if self.element_factors else ():
            scale = next(x for x in self.element_factors if x.end in ("", end))
            lines.append(f"b{end} = b{end} * {scale.name}.to(tl.{triton}){'[:, None]' * scale.vector}")
        return tuple(lines)

    @property
    def adds_rows_of_a(self) -> bool:
        """Whether the rows of A are summed, because zero points are subtracted from sums."""
        return self.v.dtype.zeros

    @property
    def scaling(self) -> tuple[str, ...]:
        """The statements behind the loop for the factors of all of K."""
        if not self.whole_factors:
            return ()
        convert = ".to(tl.float32)" if not ELEMENTS[self.v.dtype.acc].floating and not self.step_factors else ""
        parts = [
            self._scaled(piece, end, f"acc{end}{piece}{convert}", self.whole_factors)
            for (piece, _), (end, _) in self._products
        ]
        return tuple(line for lines in parts for line in lines)

    @property
    def _zeros_by_step(self) -> bool:
        return any(factor.zero for factor in self.step_factors)

    def _add_rows_of_a(self, piece: str) -> str:
        """The statement that sums the rows of a piece of A's tile."""
        own = (factor for factor in self.step_factors if factor.letter == "a" and factor.end in ("", piece))
        scale = next((f" * {factor.name}" for factor in own), "")
        if self._zeros_by_step:
            return f"a_sum{piece} = tl.sum(a{piece}.to(tl.float32), 1)"
        return f"a_sum{piece} += tl.sum(a{piece}.to(tl.float32), 1){scale}"

    def _scaled(
        self, piece: str, end: str, product: str, factors: tuple[Factor, ...], *, add: bool = False
    ) -> list[str]:
        """The statements that make of a product, or add to the accumulator, what its factors leave of it.

        The product is of a piece of A and a strip of B.
        """
        own = [factor for factor in factors if factor.end in ("", piece if factor.letter == "a" else end)]
        scales = [factor for factor in own if not factor.zero]
        lines = []
        for zero in (factor for factor in own if factor.zero):
            rows = f"a_sum{piece}[None, :]" if self.exchanged else f"a_sum{piece}[:, None]"
            lines.append(f"product = {product} - {rows} * {zero.spread(exchanged=self.exchanged)}")
            product = "product"
        scale = product_of(scales, exchanged=self.exchanged)
        return [*lines, f"acc{end}{piece} {'+=' if add else '='} {product} * {scale}"]

    @property
    def turned(self) -> tuple[str, ...]:
        """The statements behind the sum that make accumulators of C's rows and columns, one where it is handed in."""
        form = "tl.sum({}, 2)" if self.summed else "{}.T" if self.exchanged else ""
        lines = [f"{acc} = {form.format(acc)}" for acc in self.sums if form]
        if self.schedule.workspace and self.order == CONCATENATED and not self.blocks:
            lines += joined("BLOCK_M", "2 * BLOCK_N")
        elif not self.schedule.workspace and not self.blocks:
            lines += self.parted
        return tuple(lines)

    @property
    def parted(self) -> tuple[str, ...]:
        """The statement that takes the accumulator apart whose columns are the gate's and the others by turns."""
        if self.order is None or (self.order == CONCATENATED and not self.schedule.workspace):
            return ()
        return taken_apart("BLOCK_M", "BLOCK_N")

    @property
    def handed(self) -> str:
        """The columns of a partial sum that is handed in."""
        return "BLOCK_N" if self.order is None else "2 * BLOCK_N"


def joined(rows: str, columns: str, end: str = "") -> tuple[str, str]:
    """The statement that makes one partial sum of a gate's two, of a block with this end of its names, and why."""
    why = "# One partial sum to write: columns of the gate and of x alternate."
    return why, f"acc = tl.join(acc_gate{end}, acc_up{end}).reshape(({rows}, {columns}))"


def taken_apart(rows: str, columns: str, end: str = "") -> tuple[str, str]:
    """The statement that makes a gate's two sums of one, and why."""
    return (
        "# Columns of the gate and of x alternate.",
        f"acc_gate, acc_up = acc{end}.reshape(({rows}, {columns}, 2)).split()",
    )
