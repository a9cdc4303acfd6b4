"""Shared memory of one program, in bytes: an upper bound for every launch of a configuration, and a lower bound.

A program uses shared memory in two phases. The loop over K holds operand tiles: as many of each as there are stages if
they can be copied asynchronously, else one. The epilogue converts layouts, which passes values between threads through
shared memory: the result before wide stores, matrices of the epilogue after wide loads, partial sums. The larger phase
counts. Where a program walks tiles, the first loads of the next tile are in flight during the epilogue, so the two
phases are added. Where a second kernel adds partial sums, its epilogue is bounded like one in the first kernel.

Which conversions pass through shared memory is the compiler's choice and differs between versions of Triton. The upper
bound counts each conversion that was seen to do so in some launch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from generator.epilogue.gated_units import INTERLEAVED
from generator.epilogue.operations import MATRIX
from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant
from generator.language.storage import Storage
from generator.language.targets import TARGETS
from generator.plan.resources import (
    SCALES_OF_WORD,
    accumulated_columns,
    heights,
    in_registers,
    keeps_registers,
    matrix_instruction,
    words_of_scales,
)

#: Bytes of barriers, 8 each, with gaps to align them: the most that was seen. Tiles have whole KiB, and none is so near
#: a target's limit that the exact number matters.
BARRIERS = 1088

#: Elements of B in a program of the kernel that decodes it, and the bits of the widest values that pass through shared
#: memory on the way to wide stores.
DECODED = 8192
_WIDEST_DECODED = 32
#: Bytes of an asynchronous copy, at least (PTX ISA, "cp.async").
_SHORTEST_COPY = 4


def shared_memory(v: Variant, tile: Tile, target: str, *, surely: bool = False) -> int:
    """Bytes of shared memory that one program of `tile` needs on `target` at most; with `surely`, at least.

    The lower bound is for launches with aligned operands, compiled by any version of Triton.
    """
    if not v.traits.tiled:
        return 0
    program = _Program(v.multiplied, tile, target)
    if surely:
        return program.lower_bound
    return max(program.upper_bound, DECODED * _WIDEST_DECODED // 8 if v.traits.decodes else 0)


def copied_ahead(v: Variant, tile: Tile, target: str) -> bool:
    """Whether tiles of A or B are copied to shared memory ahead of their step in launches with aligned operands."""
    program = _Program(v.multiplied, tile, target)
    return any(program.is_pipelined(operand) for operand in program.operands)


def registers_of_loads(v: Variant, tile: Tile, target: str) -> int:
    """Registers per thread that may hold tiles of later steps, of the operands that are not always copied ahead."""
    program = _Program(v.multiplied, tile, target)
    bytes = sum(operand.bytes for operand in program.operands if not program.is_pipelined(operand))
    return bytes * (tile.stages - 1) // (4 * tile.warps * TARGETS[target].lanes) if program.looped else 0


def staged(v: Variant) -> bool:
    """Whether the store by a descriptor may need a tile of its own in shared memory, beside the operand tiles."""
    copied = v.loading.descriptors and v.store == "as_load" and not v.traits.joins
    return copied and ELEMENTS[v.out].bits == 32


@dataclass(frozen=True)
class _Operand:
    """The tile of A or B that a step of the loop over K reads: its size, and its layout in memory."""

    bytes: int
    #: Bits of an element.
    bits: int
    layout: str
    #: The layout that is contiguous along K.
    contiguous_layout: str
    #: Whether it is converted in registers, and the bytes of the tile that the matrix unit then reads.
    converted: bool
    multiplied_bytes: int

    @property
    def contiguous(self) -> bool:
        """Whether the operand is always contiguous along K."""
        return self.layout == self.contiguous_layout

    @property
    def never_contiguous(self) -> bool:
        """Whether the operand is never contiguous along K; for a strided operand the call decides."""
        return self.layout not in (self.contiguous_layout, "strided")


def _operand(storage: Storage, elements: int, layout: str, contiguous: str, widest: int) -> _Operand:
    multiplied = elements * storage.multiplied_bits // 8
    # Beside elements of 8 bits, the matrix unit reads each of 4 bits from a byte of its own.
    bytes = elements * widest // 8 if storage.native else storage.bytes(elements)
    return _Operand(bytes, storage.bits, layout, contiguous, storage.converted, multiplied)


@dataclass(frozen=True)
class _Program:
    """One program that computes `tile` on `target`; every size is in bytes."""

    v: Variant
    tile: Tile
    target: str

    @cached_property
    def instruction(self) -> str | None:
        return matrix_instruction(self.v, self.tile, self.target)

    @property
    def reads_shared_memory(self) -> bool:
        """Whether the matrix unit reads operands from shared memory, not from registers."""
        return self.instruction in ("wgmma", "tcgen05")

    @property
    def descriptors(self) -> bool:
        return self.v.loading.descriptors

    @property
    def copies_result(self) -> bool:
        """Whether the hardware copies the result from shared memory to C."""
        return self.descriptors and self.v.store == "as_load"

    @property
    def overlaps(self) -> bool:
        """Whether loads of the next tile are in flight while a result is stored."""
        return self.v.traits.walks_tiles and self.looped

    @cached_property
    def operands(self) -> tuple[_Operand, _Operand]:
        v, tile = self.v, self.tile
        a, b = v.dtype.stored
        columns = sum(accumulated_columns(v, tile))
        return (
            _operand(a, tile.m * tile.k, v.layout.a, "row", max(a.bits, b.bits)),
            _operand(b, tile.k * columns, v.layout.b, "column", max(a.bits, b.bits)),
        )

    # The loop over K.

    @property
    def looped(self) -> bool:
        """Whether loads of later steps may be in flight."""
        return self.v.traits.looped and self.tile.stages > 1

    def may_be_pipelined(self, operand: _Operand) -> bool:
        """Whether tiles of later steps may be copied to shared memory asynchronously."""
        if not self.looped or self.descriptors or self.amd:
            return self.looped
        each = max(operand.bits // 8, operand.bytes // (32 * self.tile.warps))
        if each < _SHORTEST_COPY:
            return False
        # wgmma reads 8-bit operands along K only. Transposing leaves no 4 bytes contiguous for an asynchronous copy.
        read_so = self.instruction == "wgmma" and operand.bits == 8 and not operand.converted
        return not (read_so and operand.never_contiguous)

    def is_pipelined(self, operand: _Operand) -> bool:
        """Whether tiles of later steps are always copied asynchronously if addresses and sizes are aligned."""
        if operand.bytes // (TARGETS[self.target].lanes * self.tile.warps) < _SHORTEST_COPY:
            return False
        if self.amd and self.v.product == "summed":
            # Registers hold what a matrix product does not read.
            return False
        transposed = operand.never_contiguous and operand.bits > 8 and self.v.product == "direct"
        return self.may_be_pipelined(operand) and (operand.contiguous or transposed)

    @property
    def buffers(self) -> int:
        """The number of tiles of a pipelined operand in shared memory at once."""
        # A tile that is read from shared memory stays there until the product is done; others are in registers by then.
        return self.tile.stages if self.reads_shared_memory else self.tile.stages - 1

    def most_buffers(self, operand: _Operand) -> int:
        """The tiles of an operand in shared memory at once, at most."""
        tiles = self.buffers if self.may_be_pipelined(operand) else 1
        # Some AMD targets multiply 8-bit elements as 16-bit ones: a tile that is not pipelined may take twice as much.
        widened = self.amd and self.looped and operand.bits == 8 and not self.is_pipelined(operand)
        return max(tiles, 2) if widened else tiles

    @cached_property
    def loop(self) -> int:
        """Bytes of the loop over K at most: operand tiles, scratch for transposing them, and a staged result."""
        a, b = self.operands
        x3 = self.v.dtype.precision == "tf32x3"
        if x3 and self.reads_shared_memory and self.looped:
            # The stage being multiplied is stored as the high and the low part of the second operand.
            parts = 2 * (a if self.v.product == "exchanged" else b).bytes
            return (a.bytes + b.bytes) * (self.tile.stages - 1) + max(parts, self.staged_result)
        sizes = [operand.bytes * self.most_buffers(operand) for operand in self.operands]
        if not self.looped and (self.amd or (self.descriptors and not self.reads_shared_memory)) and not x3:
            # Both operands pass through the same memory on the way to registers.
            held = max(sizes)
        else:
            held = sum(sizes)
        if self.amd and b.converted and self.v.dtype.stored_b.multiplied_bits == 8:
            # The tile of B changes registers. Of B none may be copied ahead, and of A then one more.
            held = max(held - b.bytes, a.bytes * self.tile.stages) + b.multiplied_bytes
        read = in_registers(self.v) if self.looped else None
        for name, operand in (("a", a), ("b", b)) if self.reads_shared_memory else ():
            if name == read:
                # Where several products read it, its last tile stays as long as the others.
                held -= 0 if self.v.traits.pairs else operand.bytes
            elif operand.converted:
                # It is stored again for the matrix unit, and its own bytes are in registers by then.
                held += operand.multiplied_bytes - (operand.bytes if self.looped else 0)
        if self.v.dtype.sparse and not keeps_registers(self.v):
            # Elements among zeros change registers.
            held += b.multiplied_bytes
        return held + max(self.transposing, self.staged_result)

    @cached_property
    def transposing(self) -> int:
        """Bytes of scratch for transposing operands whose layout the instruction cannot read."""
        if self.instruction is None:
            if not (self.looped and self.descriptors):
                return 0
            # Plain arithmetic reads rows of A and columns of B, one matrix at a time; an exchanged product transposes
            # both.
            if self.v.product == "exchanged":
                return sum(x.bytes for x in self.operands if x.layout != "column")
            return max((x.bytes for x in self.operands if x.layout != "row"), default=0)
        if self.instruction == "tcgen05" and self.descriptors:
            # tf32 operands, and those with lines under 32 bytes: two tiles of each beside the tiles in flight.
            tf32 = self.v.dtype.precision == "tf32"
            return 2 * sum(line * self.tile.k * bits // 8 for line, bits in self.lines if tf32 or line * bits < 256)
        if self.instruction == "mma.sync" and not self.descriptors:
            moved = (operand for operand in self.operands if operand.bits == 8 and not operand.contiguous)
            return sum(operand.bytes for operand in moved if not operand.converted)
        return 0

    @property
    def lines(self) -> list[tuple[int, int]]:
        """The elements of a line and the bits of an element, of each operand tile that is not contiguous along K."""
        a, b = self.operands
        rows = [(m, a.bits) for m in heights(self.v, self.tile)] if not a.contiguous else []
        return rows + ([(n, b.bits) for n in accumulated_columns(self.v, self.tile)] if not b.contiguous else [])

    @property
    def amd(self) -> bool:
        return TARGETS[self.target].vendor == "amd"

    @property
    def staged_result(self) -> int:
        """Bytes of a result that has memory beside the operands until the hardware has copied it to C."""
        return self.result if self.looped and not self.overlaps and _stages_beside(self.v, self.instruction) else 0

    # The epilogue.

    @property
    def result(self) -> int:
        """Bytes of a tile of C."""
        return self.tile.m * self.tile.n * ELEMENTS[self.v.out].bits // 8

    @property
    def result_32(self) -> int:
        """Bytes of a tile of C with 32 bits per element."""
        return self.tile.m * self.tile.n * 4

    @property
    def accumulators(self) -> int:
        """Bytes of the accumulators."""
        return self.tile.m * sum(accumulated_columns(self.v, self.tile)) * ELEMENTS[self.v.dtype.sum].bits // 8

    @property
    def converts_by_halves(self) -> bool:
        """Whether 32-bit values are converted half at a time: those of `mma.sync` for a row-major C, 64 per thread."""
        t = self.tile
        many = min(t.m, t.n) >= 64 and t.m * t.n >= 64 * 32 * t.warps
        return self.instruction == "mma.sync" and self.v.layout.c == "row" and many

    @property
    def reads_matrices(self) -> bool:
        """Whether the epilogue reads matrices that may be converted with 32 bits per element."""
        shapes = {operand.shape for operand in self.v.epilogue.operands}
        reads = self.v.epilogue.reads_out
        wide = self.instruction == "tcgen05" or self.v.product == "exchanged" or ELEMENTS[self.v.out].bits != 16
        return MATRIX in shapes or (reads and wide)

    @cached_property
    def conversion(self) -> int:
        """Bytes of the largest layout conversion of a tile after the loop, at most."""
        v = self.v
        saved = any(not output.reduced for output in v.epilogue.outputs) or v.epilogue.reads_out
        plain = not (self.reads_matrices or saved or v.rounds_between or not v.traits.repeatable)
        large = min(self.tile.m, self.tile.n) >= 64
        one_accumulator = not v.traits.pairs and v.epilogue.order is None
        if self.amd and plain and large and ELEMENTS[v.dtype.acc].bits != 16 and v.epilogue.order != INTERLEAVED:
            # AMD's accumulators are stored in their own layout.
            bytes_needed = 0
        elif self.reads_matrices:
            bytes_needed = self.result_32
        elif self.converts_by_halves and plain and one_accumulator and not self.copies_result:
            bytes_needed = min(self.result, self.result_32 // 2)
        else:
            bytes_needed = max(self.result, self.result_32 // 2 if ELEMENTS[v.dtype.acc].bits == 16 else 0)
        split = v.product == "exchanged" or self.instruction is None
        if (v.epilogue.order == INTERLEAVED and split) or v.traits.workspace:
            bytes_needed = max(bytes_needed, self.accumulators)
        return bytes_needed

    @cached_property
    def vector_conversion(self) -> int:
        """Bytes in which vectors change layout, and in which warps reduce rows or columns together."""
        reduced = any(output.reduced for output in self.v.epilogue.outputs) or self.v.quantised is not None
        if self.amd and not reduced:
            return 0
        # A kernel that adds partial sums has the default of four warps.
        warps = max(self.tile.warps, 4) if self.v.traits.joins else self.tile.warps
        return max(self.tile.m, self.tile.n) * (warps if reduced else 1) * 4

    @property
    def factors(self) -> int:
        """Bytes in which scales and zero points of a step change layout, beside the loads in flight.

        Those that the matrix unit reads are loaded as tiles, ahead as the operands are.
        """
        if self.v.dtype.native:
            lines = self.tile.m + sum(accumulated_columns(self.v, self.tile))
            return lines * words_of_scales(self.v, self.tile) * SCALES_OF_WORD * (self.buffers + 1)
        count = sum(1 + storage.zeros for storage in self.v.dtype.stored if storage.scaled_by_step)
        return count * max(self.tile.m, self.tile.n) * 16 * self.v.traits.blocks

    @cached_property
    def conversion_in_flight(self) -> int:
        """As `conversion`, for launches with all loads of the loop in flight: those whose copies no mask prevents."""
        halved = self.instruction == "wgmma" or self.converts_by_halves
        if self.reads_matrices and self.v.product == "direct" and halved:
            return max(self.result, self.result_32 // 2)
        return self.conversion

    @cached_property
    def upper_bound(self) -> int:
        """Bytes that the program needs in any launch, at most."""
        loop, after = self.loop + self.factors, max(self.conversion, self.vector_conversion)
        if self.reads_matrices and not self.amd and not self.v.traits.joins:
            # A sum of one step has no loop, and the matrices of the epilogue are read before the product.
            after = max(after, self.result_32 + sum(operand.bytes for operand in self.operands))
        if not self.v.traits.looped and not self.amd:
            loop += self.vector_conversion
        if self.copies_result:
            # Warps reduce rows or columns while the hardware is still copying a result.
            after += self.vector_conversion
        if self.overlaps:
            loop += max(self.conversion_in_flight, self.vector_conversion)
            loop += self.vector_conversion if self.copies_result else 0
        elif self.v.traits.walks_steps and self.copies_result and self.looped:
            # The loads of the next tile begin while the hardware is still copying a result.
            loop = max(loop, after) + self.result
        return max(loop, after) + (BARRIERS if self.descriptors or self.instruction == "tcgen05" else 0)

    @cached_property
    def lower_bound(self) -> int:
        """Bytes that the program needs in every launch with aligned operands, at least."""
        if self.v.dtype.precision == "tf32x3" or (self.amd and self.v.dtype.stored_b.converted):
            return 0
        # A scaled product waits for its scales in tensor memory, and then has one stage less.
        buffers = self.buffers - self.v.dtype.native
        sizes = [operand.bytes * buffers for operand in self.operands if self.is_pipelined(operand)]
        if (in_registers(self.v) or self.v.dtype.stored_b.converted) and sizes:
            # The operand that is read from registers has one stage less; where programs walk tiles, perhaps the other.
            fewer = sum if self.v.dtype.stored_a.converted else max
            return max(0, sum(sizes) - fewer(operand.bytes for operand in self.operands))
        return sum(sizes)


def _stages_beside(v: Variant, instruction: str | None) -> bool:
    """Whether a staged result has memory beside the operands: where registers hold the accumulator and it is stored."""
    if not staged(v) or v.traits.workspace or (instruction == "tcgen05" and v.dtype.precision != "tf32x3"):
        return False
    # The rows of the accumulator are the contiguous lines of what is copied.
    same_order = (v.layout.c == "row") == (v.product == "direct")
    return same_order and _stores_accumulator(v) and v.dtype.sum == v.dtype.out


def _stores_accumulator(v: Variant) -> bool:
    """Whether the accumulator is stored unchanged: as the result, or saved before the first operation."""
    outputs = [step.output for step in v.epilogue.steps]
    before = list(itertools.takewhile(lambda output: output is not None, outputs))
    return len(before) == len(outputs) or any(output and not output.reduced for output in before)
