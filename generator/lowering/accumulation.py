"""How a kernel accumulates products of operand tiles, up to the whole sum that the epilogue starts from."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

from generator.epilogue.gated_units import CONCATENATED
from generator.language.elements import ELEMENTS
from generator.language.model import Variant
from generator.language.word_traits import Schedule
from generator.lowering.blocks import TileBlock
from generator.lowering.edges import Edges
from generator.lowering.lines import INDENT, bracketed
from generator.lowering.operands import Matrix
from generator.lowering.stored_operands import (
    Conversion,
    Factor,
    Metadata,
    Strip,
    conversion,
    factor,
    metadata,
    one_of_tile,
    product_of,
    whole_blocks,
)
from generator.plan.kernels import Kernel
from generator.plan.resources import in_registers, through_registers


@dataclass(frozen=True)
class Accumulation:
    """A kernel's accumulators, one or a gate's two, and the statements that clear, fill and hand them on."""

    kernel: Kernel
    a: Matrix
    b: Matrix
    #: The scales and zero points of A and B.
    stored: tuple[Matrix, ...]
    edges: Edges

    @property
    def v(self) -> Variant:
        return self.kernel.variant.multiplied

    @property
    def tiled(self) -> bool:
        """Whether a program computes a tile, rather than one element."""
        return self.v.traits.tiled

    @property
    def schedule(self) -> Schedule:
        return self.kernel.variant.traits

    @property
    def descriptors(self) -> bool:
        return self.v.loading.descriptors

    @property
    def acc(self) -> str:
        return ELEMENTS[self.v.dtype.acc].triton

    @property
    def acc_word(self) -> str:
        return self.v.dtype.acc

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
    def blocks(self) -> tuple[TileBlock, ...]:
        """The blocks of a tile that have an accumulator of their own; none where it is one."""
        return self.a.parts or self.b.parts

    @property
    def order(self) -> str | None:
        """The order of the two columns of B that a gate makes one of; None where there is no gate."""
        return self.v.epilogue.order

    @property
    def _apart(self) -> bool:
        """Whether the two columns of B that a gate makes one of are loaded apart."""
        return self.order == CONCATENATED or (self.order is not None and not self.tiled)

    @property
    def strips(self) -> tuple[tuple[str, str], ...]:
        """What B's columns of a tile are loaded in: the end of each one's names, and its columns."""
        halves = ("_gate", "_up") if self._apart else ("",)
        return tuple((f"{half}{strip.end}", strip.size) for strip in self.b.strips for half in halves)

    @property
    def pieces(self) -> tuple[tuple[str, str], ...]:
        """What A's rows of a tile are loaded in: the end of each one's names, and its rows."""
        return tuple((strip.end, strip.size) for strip in self.a.strips)

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
                lines += bracketed(f"{acc} = tl.dot(", items, ")", depth).splitlines()
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
        found = [conversion(a, f"a{end}", rows) for end, rows in self.pieces] if a.converted else []
        if b.converted:
            indices = [x.name for x in self.metadata] or [""] * len(self.b.tiles)
            named = zip(self.strips, indices, strict=True)
            lead = "lead" * b.fragments
            found += [conversion(b, f"b{end}", lines, self.b.shuffle, index, lead) for (end, lines), index in named]
        return tuple(found)

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

    @cached_property
    def metadata(self) -> tuple[Metadata, ...]:
        """What a step loads beside the operands, for each strip of B its own.

        Where the elements that are stored are along K, or scales that the matrix unit reads.
        """
        bound = "always" if self.descriptors else self.edges.bound.k
        storages = {storage.letter: storage for storage in self.v.dtype.stored}
        found = [(matrix, storages[matrix.name[0]]) for matrix in self.stored]
        return tuple(
            metadata(matrix, storage, strip, bound)
            for matrix, storage in found
            if storage.native or matrix.name == storage.index
            for strip in self._strips_of(storage.letter)
        )

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """The scales and zero points of a tile, for each strip of B its own."""
        storages = {storage.letter: storage for storage in self.v.dtype.stored}
        tiles = self.kernel.tiles
        return tuple(
            factor(matrix, storages[matrix.name[0]], strip, tiles)
            for matrix in self.stored
            if matrix.name != storages[matrix.name[0]].index and not self.v.dtype.native
            for strip in self._strips_of(matrix.name[0])
        )

    @property
    def early_coordinates(self) -> bool:
        """Whether factors or metadata need coordinates of rows and columns before a loop that loads by descriptors."""
        return not self.v.loading.pointers and (bool(self.metadata) or any(found.vector for found in self.factors))

    @property
    def early_edges(self) -> Edges:
        """The edges that those coordinates are of: where a tile is several blocks, of the side that they share."""
        if not self.blocks:
            return self.edges
        return replace(self.edges, needs_m=False) if self.a.parts else replace(self.edges, needs_n=False)

    @property
    def early_blocks(self) -> bool:
        """Whether loads, factors or metadata need the rows or columns of each block before the loop."""
        ends = tuple(part.end for part in self.blocks)
        named = (*(found.end for found in self.factors), *(found.end for found in self.metadata))
        early = self.early_coordinates and any(end.endswith(ends) for end in named)
        return bool(ends) and (self.v.loading.pointers or early)

    @property
    def step_factors(self) -> tuple[Factor, ...]:
        """Those of each block along K that sums are multiplied by."""
        return tuple(found for found in self.factors if found.along and not self.v.dtype.stored_b.scaled_alone)

    @property
    def element_factors(self) -> tuple[Factor, ...]:
        """Those of each block along K that elements of B are multiplied by."""
        return tuple(found for found in self.factors if found.along and self.v.dtype.stored_b.scaled_alone)

    @property
    def scaled_elements(self) -> tuple[str, ...]:
        """The statements that multiply the elements of a step by scales of their type."""
        found, triton = [], ELEMENTS[self.v.dtype.stored_b.multiplied].triton
        for end, _ in self.strips if self.element_factors else ():
            scale = next(x for x in self.element_factors if x.end in ("", end))
            found.append(f"b{end} = b{end} * {scale.name}.to(tl.{triton}){'[:, None]' * scale.vector}")
        return tuple(found)

    @property
    def whole_factors(self) -> tuple[Factor, ...]:
        """Those of all of K."""
        return tuple(found for found in self.factors if not found.along)

    @property
    def adds_rows_of_a(self) -> bool:
        """Whether the rows of A are summed, because zero points are subtracted from sums."""
        return self.v.dtype.zeros

    @property
    def scaling(self) -> tuple[str, ...]:
        """The statements behind the loop for the factors of all of K."""
        if not self.whole_factors:
            return ()
        convert = ".to(tl.float32)" if not ELEMENTS[self.acc_word].floating and not self.step_factors else ""
        found = [
            self._scaled(piece, end, f"acc{end}{piece}{convert}", self.whole_factors)
            for (piece, _), (end, _) in self._products
        ]
        return tuple(line for lines in found for line in lines)

    def _strips_of(self, letter: str) -> tuple[Strip, ...]:
        """What the factors of an operand are for: the rows of A, or the strips of B's columns."""
        inside = self.edges.inside
        if letter == "a" and self.a.gathered:
            return (Strip("", "offs_a", "", "in_a", times=0),)
        if letter == "a" and self.a.parts:
            return tuple(self._of_rows(part) for part in self.a.parts)
        if letter == "b" and self.b.parts and not self._shares_scale:
            return tuple(strip for part in self.b.parts for strip in self._of_columns(part))
        if letter == "a":
            return (Strip("", self._within("offs_m", inside.m, "M"), "pid_m * BLOCK_M", inside.m),)
        if self.b.pairs:
            return (Strip("", "offs_b", "2 * pid_n * BLOCK_N", self._pairs_inside("in_b"), times=2),)
        first, offsets = "pid_n * BLOCK_N", self._within("offs_n", inside.n, "N")
        if self.order is None:
            return (Strip("", offsets, first, inside.n),)
        return (Strip("_gate", offsets, first, inside.n), self._second_half("_up", offsets, first, inside.n))

    @property
    def _shares_scale(self) -> bool:
        """Whether the blocks of a tile's columns have one scale together, so that it is read once."""
        b = self.v.dtype.stored_b
        return not b.sparse and b.block is not None and one_of_tile(b, self.kernel.tiles, int(self.order is None))

    def _of_rows(self, part: TileBlock) -> Strip:
        """A block of A's rows as its factors are for it."""
        inside = f"in{part.end}" if self.edges.inside.m else ""
        if self.a.gathered:
            return Strip(part.end, f"offs_a{part.end}", "", f"in_a{part.end}", times=0)
        return Strip(part.end, self._within(f"offs{part.end}", inside, "M"), part.start, inside)

    def _of_columns(self, part: TileBlock) -> tuple[Strip, ...]:
        """A block of B's columns as its factors are for it, or both halves of one with two columns for each of C."""
        inside = f"in{part.end}" if self.edges.inside.n else ""
        if self.b.pairs:
            end = part.end
            return (Strip(end, f"offs_b{end}", f"2 * ({part.start})", self._pairs_inside(f"in_b{end}"), times=2),)
        offsets = self._within(f"offs{part.end}", inside, "N")
        if self.order is None:
            return (Strip(part.end, offsets, part.start, inside),)
        gate = Strip(f"_gate{part.end}", offsets, part.start, inside)
        return gate, self._second_half(f"_up{part.end}", offsets, part.start, inside)

    def _pairs_inside(self, mask: str) -> str:
        """The mask of columns of B that are neighbours two by two, which descriptors leave to their factors."""
        return mask if self.descriptors or self.edges.inside.n else ""

    def _second_half(self, end: str, offsets: str, first: str, inside: str) -> Strip:
        """The columns behind those of a gate, from column N of B on, as their factors are for them."""
        if self.whole_blocks:
            return Strip(end, f"offs{end}", "", f"in{end}", times=0, perhaps_one=True)
        return Strip(end, f"(N + {offsets})", f"(N + {first})", inside, times=0)

    @property
    def whole_blocks(self) -> int:
        """The columns that share a scale where both halves of a gate's tile have one each if they divide N, or 0."""
        return whole_blocks(self.v.dtype.stored_b, self.kernel.tiles) if self.stored and self._apart else 0

    @property
    def _offsets_of_factors(self) -> str:
        """The offsets that factors and metadata are read at."""
        return " ".join((*(found.place for found in self.factors), *(found.lines for found in self.metadata)))

    @property
    def reads_columns(self) -> bool:
        """Whether factors or metadata are read at the columns of C."""
        return "offs_n" in self._offsets_of_factors

    @property
    def columns_of_factors(self) -> tuple[str, ...]:
        """The statements that say which columns of B have factors, and which of them exist, where no load says it."""
        lines, listed = [], list[tuple[str, str, str]]()
        if self.whole_blocks:
            lines = ["# The second half has one scale, too, where N is a multiple of the columns that share one."]
            parts = [(part.end, part.start, part.size) for part in self.b.parts] or [("", "pid_n * BLOCK_N", "BLOCK_N")]
            listed = [(f"_up{end}", f"N + {start}", f"1 if WHOLE_BLOCKS else {size}") for end, start, size in parts]
        elif self.descriptors and self.b.pairs and "offs_b" in self._offsets_of_factors:
            listed = [(f"_b{strip.end}", strip.start, strip.size) for strip in self.b.strips]
        for end, start, size in listed:
            lines += [f"offs{end} = {start} + tl.arange(0, {size})", f"in{end} = offs{end} < {self.b.width}"]
        return tuple(lines)

    def _within(self, offsets: str, inside: str, extent: str) -> str:
        """The offsets; where the hardware checks bounds, they wrap around past the edge, and stores drop the rest."""
        return f"{offsets} % {extent}" if self.descriptors and not inside else offsets

    @property
    def _zeros_by_step(self) -> bool:
        return any(found.zero for found in self.step_factors)

    def _add_rows_of_a(self, piece: str) -> str:
        """The statement that sums the rows of a piece of A's tile."""
        own = (found for found in self.step_factors if found.letter == "a" and found.end in ("", piece))
        scale = next((f" * {found.name}" for found in own), "")
        if self._zeros_by_step:
            return f"a_sum{piece} = tl.sum(a{piece}.to(tl.float32), 1)"
        return f"a_sum{piece} += tl.sum(a{piece}.to(tl.float32), 1){scale}"

    def _scaled(
        self, piece: str, end: str, product: str, factors: tuple[Factor, ...], *, add: bool = False
    ) -> list[str]:
        """The statements that make of a product, or add to the accumulator, what its factors leave of it.

        The product is of a piece of A and a strip of B.
        """
        own = [found for found in factors if found.end in ("", piece if found.letter == "a" else end)]
        scales = [found for found in own if not found.zero]
        lines = []
        for zero in (found for found in own if found.zero):
            rows = f"a_sum{piece}[None, :]" if self.exchanged else f"a_sum{piece}[:, None]"
            lines.append(f"product = {product} - {rows} * {zero.spread(exchanged=self.exchanged)}")
            product = "product"
        scale = product_of(scales, exchanged=self.exchanged)
        return [*lines, f"acc{end}{piece} {'+=' if add else '='} {product} * {scale}"]

    @property
    def turned(self) -> tuple[str, ...]:
        """The statements behind the sum that make accumulators of C's rows and columns, one where it is handed in."""
        made = "tl.sum({}, 2)" if self.summed else "{}.T" if self.exchanged else ""
        lines = [f"{acc} = {made.format(acc)}" for acc in self.sums if made]
        if self.schedule.workspace and self.order == CONCATENATED and not self.blocks:
            lines.append("# One partial sum to write: columns of the gate and of x alternate.")
            lines.append("acc = tl.join(acc_gate, acc_up).reshape((BLOCK_M, 2 * BLOCK_N))")
        elif not self.schedule.workspace and not self.blocks:
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
