"""What a kernel multiplies: pieces of A and strips of B, and what is read beside them, their factors and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from generator.epilogue.gated_units import CONCATENATED
from generator.language.model import Variant
from generator.language.word_traits import Schedule
from generator.lowering.edges import Edges
from generator.lowering.operands import Matrix, TileBlock
from generator.lowering.stored_operands import Factor, Metadata, Strip, factor, metadata, one_of_tile, whole_blocks
from generator.plan.kernels import Kernel


@dataclass(frozen=True)
class TileFactors:
    """The pieces and strips of a program's tile, each with its scales, zero points and metadata."""

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

    @cached_property
    def metadata(self) -> tuple[Metadata, ...]:
        """What a step loads beside the operands, for each strip of B its own.

        Where the elements that are stored are along K, or scales that the matrix unit reads.
        """
        bound = "always" if self.descriptors else self.edges.bound.k
        storages = {storage.letter: storage for storage in self.v.dtype.stored}
        matrices = [(matrix, storages[matrix.name[0]]) for matrix in self.stored]
        return tuple(
            metadata(matrix, storage, strip, bound)
            for matrix, storage in matrices
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
        return not self.v.loading.pointers and (bool(self.metadata) or any(factor.vector for factor in self.factors))

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
        named = (*(factor.end for factor in self.factors), *(factor.end for factor in self.metadata))
        early = self.early_coordinates and any(end.endswith(ends) for end in named)
        return bool(ends) and (self.v.loading.pointers or early)

    @property
    def step_factors(self) -> tuple[Factor, ...]:
        """Those of each block along K that sums are multiplied by."""
        return tuple(factor for factor in self.factors if factor.along and not self.v.dtype.stored_b.scaled_alone)

    @property
    def element_factors(self) -> tuple[Factor, ...]:
        """Those of each block along K that elements of B are multiplied by."""
        return tuple(factor for factor in self.factors if factor.along and self.v.dtype.stored_b.scaled_alone)

    @property
    def whole_factors(self) -> tuple[Factor, ...]:
        """Those of all of K."""
        return tuple(factor for factor in self.factors if not factor.along)

    def _strips_of(self, letter: str) -> Iterator[Strip]:
        """What the factors of an operand are for: the rows of A, or the strips of B's columns."""
        matrix, masked, extent = (
            (self.a, self.edges.inside.m, "M") if letter == "a" else (self.b, self.edges.inside.n, "N")
        )
        for x in (replace(matrix, parts=()) if letter == "b" and self._shares_scale else matrix).strips:
            end, inside = x.end, x.inside if masked else ""
            # Where the hardware checks bounds, offsets wrap around past the edge, and stores drop the rest.
            offsets = f"{x.offsets} % {extent}" if self.descriptors and not inside else x.offsets
            if matrix.gathered:
                yield Strip(end, f"offs_a{end}", "", f"in_a{end}", times=0)
            elif matrix.pairs:
                # Descriptors leave the mask to the factors.
                yield Strip(end, f"offs_b{end}", x.start, f"in_b{end}" * (self.descriptors or bool(masked)), times=2)
            elif letter == "a" or self.order is None:
                yield Strip(end, offsets, x.start, inside)
            else:
                yield Strip(f"_gate{end}", offsets, x.start, inside)
                if self.whole_blocks:
                    yield Strip(f"_up{end}", f"offs_up{end}", "", f"in_up{end}", times=0, perhaps_one=True)
                else:
                    yield Strip(f"_up{end}", f"(N + {offsets})", f"(N + {x.start})", inside, times=0)

    @property
    def _shares_scale(self) -> bool:
        """Whether the blocks of a tile's columns have one scale together, so that it is read once."""
        b = self.v.dtype.stored_b
        return not b.sparse and b.block is not None and one_of_tile(b, self.kernel.tiles, int(self.order is None))

    @property
    def whole_blocks(self) -> int:
        """The columns that share a scale where both halves of a gate's tile have one each if they divide N, or 0."""
        return whole_blocks(self.v.dtype.stored_b, self.kernel.tiles) if self.stored and self._apart else 0

    @property
    def _offsets_of_factors(self) -> str:
        """The offsets that factors and metadata are read at."""
        return " ".join((*(factor.place for factor in self.factors), *(factor.lines for factor in self.metadata)))

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
