"""Shared memory of one program, by the parts that Triton lays out: a bound that no launch of a row passes.

Two phases take memory. The loop over K holds operand tiles: as many of each as there are stages, where their loads can
be copied asynchronously, else one. What follows it passes values between threads: the result on its way to wide
stores, matrices of the chain on their way from wide loads, partial sums. Where a program walks tiles the first loads of
the next one are in flight meanwhile, so that both are added; elsewhere the larger counts.

Which values pass depends on what the compiler makes of layouts, and differs from version to version: each is counted
where it was seen to pass in some launch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from generator.epilogue.gated_units import INTERLEAVED
from generator.epilogue.operations import MATRIX
from generator.language.model import Tile, Variant
from generator.language.vocabulary import ELEMENTS, TARGETS
from generator.plan.resources import accumulated_columns, matrix_instruction, through_registers

#: Barriers, 8 bytes each, with gaps to align them: the most that was seen. Tiles come in whole KiB, and none is so near
#: a target's limit that the exact number counts.
BARRIERS = 1088

#: Bytes of an asynchronous copy, at least (PTX ISA, "cp.async").
_SHORTEST_COPY = 4


def shared_memory(v: Variant, tile: Tile, target: str, *, surely: bool = False) -> int:
    """Bytes of shared memory that one program of `tile` needs on `target` at most; `surely`, at least.

    At least means: of a launch whose operands are aligned, by any version of Triton.
    """
    if not v.traits.tiled:
        return 0
    program = _Program(v, tile, target)
    return program.certain if surely else program.bound


def copied_ahead(v: Variant, tile: Tile, target: str) -> bool:
    """Whether tiles of an operand are copied to shared memory ahead of their step, where operands are aligned."""
    program = _Program(v, tile, target)
    return any(program.is_pipelined(operand) for operand in program.operands)


def registers_of_loads(v: Variant, tile: Tile, target: str) -> int:
    """Registers of each thread that may hold tiles of later steps: of operands that are not surely copied ahead."""
    program = _Program(v, tile, target)
    bytes = sum(operand.bytes for operand in program.operands if not program.is_pipelined(operand))
    return bytes * (tile.stages - 1) // (4 * tile.warps * TARGETS[target].lanes) if program.looped else 0


def staged(v: Variant) -> bool:
    """Whether a descriptor's store may hold a tile of its own in shared memory, beside those of the operands."""
    return v.load == "descriptor" and v.store == "as_load" and ELEMENTS[v.dtype.out].bits == 32


@dataclass(frozen=True)
class _Operand:
    """The tile of A or B that a step of the loop takes in: bytes, and how it lies."""

    name: str
    bytes: int
    bits: int
    layout: str
    #: The layout in which elements along K are neighbours.
    natural: str

    @property
    def along(self) -> bool:
        """Whether elements along K are neighbours for certain."""
        return self.layout == self.natural

    @property
    def across(self) -> bool:
        """Whether they are not, for certain; of strided operands the call decides."""
        return self.layout not in (self.natural, "strided")


@dataclass(frozen=True)
class _Program:
    """One program of a tile on a target."""

    v: Variant
    tile: Tile
    target: str

    @cached_property
    def instruction(self) -> str | None:
        return matrix_instruction(self.v, self.tile, self.target)

    @property
    def from_memory(self) -> bool:
        """Whether the matrix unit reads operands in shared memory, rather than from registers."""
        return self.instruction in ("wgmma", "tcgen05")

    @property
    def descriptors(self) -> bool:
        return self.v.load == "descriptor"

    @property
    def copies_out(self) -> bool:
        """Whether the hardware copies the result out of shared memory."""
        return self.descriptors and self.v.store == "as_load"

    @property
    def walks(self) -> bool:
        """Whether the loads of the next tile are in flight while a result is stored."""
        return self.v.traits.walks_tiles and self.looped

    @cached_property
    def operands(self) -> tuple[_Operand, _Operand]:
        v, tile = self.v, self.tile
        bits = ELEMENTS[v.dtype.a].bits
        columns = sum(accumulated_columns(v, tile))
        return (
            _Operand("a", tile.m * tile.k * bits // 8, bits, v.layout.a, "row"),
            _Operand("b", tile.k * columns * bits // 8, bits, v.layout.b, "column"),
        )

    # The loop over K.

    @property
    def looped(self) -> bool:
        """Whether loads of later steps are in flight."""
        return self.v.traits.looped and self.tile.stages > 1

    def may_be_pipelined(self, operand: _Operand) -> bool:
        """Whether tiles of later steps may be on their way to shared memory."""
        if not self.looped or self.descriptors or self.amd:
            return self.looped
        each = max(operand.bits // 8, operand.bytes // (32 * self.tile.warps))
        if each < _SHORTEST_COPY:
            return False
        # wgmma reads 8 bits along K alone; turned around on the way, neighbours are no neighbours any more.
        return not (self.instruction == "wgmma" and operand.bits == 8 and operand.across)

    def is_pipelined(self, operand: _Operand) -> bool:
        """Whether they are for certain, where addresses and sizes are aligned."""
        if operand.bytes // (TARGETS[self.target].lanes * self.tile.warps) < _SHORTEST_COPY:
            return False
        turned = operand.across and operand.bits > 8 and self.v.product == "direct"
        return self.may_be_pipelined(operand) and (operand.along or turned)

    @property
    def ahead(self) -> int:
        """The tiles of an operand that are held at once."""
        # Read in shared memory, a tile is held until the product is done; else it is in registers by then.
        return self.tile.stages if self.from_memory else self.tile.stages - 1

    def held(self, operand: _Operand) -> int:
        """The tiles of an operand that are held at once, at most."""
        tiles = self.ahead if self.may_be_pipelined(operand) else 1
        # Some of AMD's multiply 8 bits as 16, and what is not loaded ahead may pass through memory as such.
        wide = self.amd and self.looped and operand.bits == 8 and not self.is_pipelined(operand)
        return max(tiles, 2) if wide else tiles

    @cached_property
    def loop(self) -> int:
        """Bytes of the operand tiles that the loop holds, and of what they are turned around in, at most."""
        a, b = self.operands
        x3 = self.v.dtype.precision == "tf32x3"
        if x3 and self.from_memory and self.looped:
            # The stage that is worked on stands as the high and low parts of the second operand.
            parts = 2 * (a if self.v.product == "exchanged" else b).bytes
            return (a.bytes + b.bytes) * (self.tile.stages - 1) + max(parts, self.kept_apart)
        ways = [operand.bytes * self.held(operand) for operand in self.operands]
        if not self.looped and (self.amd or (self.descriptors and not self.from_memory)) and not x3:
            # Each passes through the same memory on its way to registers.
            held = max(ways)
        else:
            held = sum(ways)
        if self.from_memory and self.looped and (name := through_registers(self.v)):
            held -= {"a": a.bytes, "b": b.bytes}[name]
        return held + max(self.turned, self.kept_apart)

    @cached_property
    def turned(self) -> int:
        """Bytes of scratch in which operands are transposed, where their own layout cannot be read."""
        across = [operand for operand in self.operands if not operand.along]
        if self.instruction is None:
            if not (self.looped and self.descriptors):
                return 0
            # Plain arithmetic reads across the lines of what lies column after column, one matrix at a time; exchanged
            # products have both turned.
            if self.v.product == "exchanged":
                return sum(x.bytes for x in self.operands if x.layout != "column")
            return max((x.bytes for x in self.operands if x.layout != "row"), default=0)
        if self.instruction == "tcgen05" and self.descriptors:
            # Lines under 32 bytes may be among them; by two of each beside those in flight.
            tf32 = self.v.dtype.precision == "tf32"
            return 2 * sum(line * self.tile.k * bits // 8 for line, bits in self.lines if tf32 or line * bits < 256)
        if self.instruction == "mma.sync" and not self.descriptors:
            return sum(operand.bytes for operand in across if operand.bits == 8)
        return 0

    @property
    def lines(self) -> list[tuple[int, int]]:
        """Of the operand tiles that do not lie along K, the elements of a line, and the bits of one."""
        a, b = self.operands
        found = [(self.tile.m, a.bits)] if not a.along else []
        return found + ([(n, b.bits) for n in accumulated_columns(self.v, self.tile)] if not b.along else [])

    @property
    def amd(self) -> bool:
        return TARGETS[self.target].vendor == "amd"

    @property
    def kept_apart(self) -> int:
        """Bytes of a result that lies beside the operands until the hardware has copied it out."""
        return self.result if self.looped and not self.walks and _kept_apart(self.v, self.instruction) else 0

    # What follows it.

    @property
    def result(self) -> int:
        """Bytes of the result's tile."""
        return self.tile.m * self.tile.n * ELEMENTS[self.v.dtype.out].bits // 8

    @property
    def words(self) -> int:
        """Bytes of a tile of C in 32 bits."""
        return self.tile.m * self.tile.n * 4

    @property
    def sums(self) -> int:
        """Bytes of the accumulators."""
        return self.tile.m * sum(accumulated_columns(self.v, self.tile)) * ELEMENTS[self.v.dtype.acc].bits // 8

    @property
    def by_halves(self) -> bool:
        """Whether values of 32 bits pass in two turns: those of `mma.sync` for rows of C, where a thread has many."""
        t = self.tile
        many = min(t.m, t.n) >= 64 and t.m * t.n >= 64 * 32 * t.warps
        return self.instruction == "mma.sync" and self.v.layout.c == "row" and many

    @property
    def one_sum(self) -> bool:
        """Whether there is one accumulator, as wide as the result."""
        return len(accumulated_columns(self.v, self.tile)) == 1 and self.v.epilogue.order is None

    @property
    def matrices(self) -> bool:
        """Whether the chain reads matrices whose elements may have 32 bits on the way."""
        shapes = {operand.shape for operand in self.v.epilogue.operands}
        reads = self.v.epilogue.reads_out
        late = self.instruction == "tcgen05" or self.v.product == "exchanged" or ELEMENTS[self.v.dtype.out].bits != 16
        return MATRIX in shapes or (reads and late)

    @cached_property
    def passed(self) -> int:
        """Bytes that pass between threads behind the loop, at most."""
        v = self.v
        saved = any(output.shape == MATRIX for output in v.epilogue.outputs) or v.epilogue.reads_out
        plain = not (self.matrices or saved or v.rounds_between or not v.traits.repeatable)
        large = min(self.tile.m, self.tile.n) >= 64
        if self.amd and plain and large and v.dtype.acc != "fp16" and v.epilogue.order != INTERLEAVED:
            # AMD's accumulators are stored in their own layout.
            passed = 0
        elif self.matrices:
            passed = self.words
        elif self.by_halves and plain and self.one_sum and not self.copies_out:
            passed = min(self.result, self.words // 2)
        else:
            passed = max(self.result, self.words // 2 if v.dtype.acc == "fp16" else 0)
        parted = v.product == "exchanged" or self.instruction is None
        if (v.epilogue.order == INTERLEAVED and parted) or v.traits.workspace:
            passed = max(passed, self.sums)
        return passed

    @cached_property
    def exchanged(self) -> int:
        """Bytes of vectors that pass from one layout to another, and through which warps add up rows or columns."""
        reduced = any(output.tap.reduction for output in self.v.epilogue.outputs)
        if self.amd and not reduced:
            return 0
        return max(self.tile.m, self.tile.n) * (self.tile.warps if reduced else 1) * 4

    @cached_property
    def passed_in_flight(self) -> int:
        """As `passed`, with all loads of the loop in flight: not those that masks keep from being copied."""
        if self.matrices and self.v.product == "direct" and (self.instruction == "wgmma" or self.by_halves):
            return max(self.result, self.words // 2)
        return self.passed

    @cached_property
    def bound(self) -> int:
        held, passed = self.loop, max(self.passed, self.exchanged)
        if self.matrices and not self.amd:
            # A sum of one step has no loop, and the chain's matrices are read before it.
            passed = max(passed, self.words + sum(operand.bytes for operand in self.operands))
        if not self.v.traits.looped and not self.amd:
            held += self.exchanged
        if self.copies_out:
            # The hardware still copies a result out while warps exchange what they have of a sum.
            passed += self.exchanged
        if self.walks:
            held += max(self.passed_in_flight, self.exchanged) + (self.exchanged if self.copies_out else 0)
        elif self.v.traits.walks_steps and self.copies_out and self.looped:
            # The hardware still copies a tile out when the loads of the next begin.
            held = max(held, passed) + self.result
        return max(held, passed) + (BARRIERS if self.descriptors or self.instruction == "tcgen05" else 0)

    @cached_property
    def certain(self) -> int:
        if self.v.dtype.precision == "tf32x3":
            return 0
        held = {operand.name: operand.bytes * self.ahead for operand in self.operands if self.is_pipelined(operand)}
        if through_registers(self.v) and held:
            # One stage less of what goes through registers; where programs walk tiles, perhaps of the other.
            return max(0, sum(held.values()) - max(operand.bytes for operand in self.operands))
        return sum(held.values())


def _kept_apart(v: Variant, instruction: str | None) -> bool:
    """Whether a staged result lies beside the operands: where the accumulator is stored as it is, from registers."""
    if not staged(v) or v.traits.workspace or (instruction == "tcgen05" and v.dtype.precision != "tf32x3"):
        return False
    # Rows of the accumulator are rows of what is copied.
    lies = (v.layout.c == "row") == (v.product == "direct")
    return lies and _stores_accumulator(v) and v.dtype.acc == v.dtype.out


def _stores_accumulator(v: Variant) -> bool:
    """Whether the accumulator is stored as it is: as the result, or saved before the first operation."""
    outputs = [step.output for step in v.epilogue.steps]
    before = list(itertools.takewhile(lambda output: output is not None, outputs))
    return len(before) == len(outputs) or any(output and output.shape == MATRIX for output in before)
