"""What one program of a tile takes of a target, as Triton lays it out: formulas that the compile level measures.

They are of the plain aligned call: of others the loads are not pipelined, which takes less.
"""

from __future__ import annotations

import itertools

from generator.gates import INTERLEAVED
from generator.model import Tile, Variant
from generator.operations import MATRIX, OUT
from generator.vocabulary import ELEMENTS, SCHEDULE, TARGETS

#: Columns of 128 lanes of 32 bits (PTX ISA, "Tensor Memory").
TENSOR_MEMORY = 512

#: Barriers, 8 bytes each, with gaps to align them: the most that was seen. Tiles come in whole KiB, and none is so near
#: a target's limit that the exact number counts.
BARRIERS = 1088


def widths(v: Variant, tile: Tile) -> tuple[int, ...]:
    """What the columns of a tile are in, each a power of two."""
    return (tile.left, tile.right) if SCHEDULE[v.schedule].pairs else (tile.n,)


def _columns(v: Variant, tile: Tile) -> tuple[int, ...]:
    """The columns of each accumulator: a gate wants two columns for each of C."""
    if v.epilogue.order is None:
        return widths(v, tile)
    return (2 * tile.n,) if v.epilogue.order == INTERLEAVED else (tile.n, tile.n)


def largest_tensor(v: Variant, tile: Tile) -> int:
    """The elements of the largest tensor of a program."""
    n = max(_columns(v, tile))
    handed = 2 * tile.n if v.epilogue.order is not None and SCHEDULE[v.schedule].workspace else n
    return max(tile.m * handed, tile.m * tile.k, tile.k * n)


def matrix_rows(v: Variant, tile: Tile) -> int:
    """The rows of the matrix unit that a product fills."""
    return _columns(v, tile)[0] if v.product == "exchanged" else tile.m


def through_registers(v: Variant) -> str | None:
    """The operand, "a" or "b", that goes to the matrix unit through registers; None where both lie in shared memory.

    Hopper's and Blackwell's read tf32 in shared memory along K alone, and what fills their rows from registers, or
    tensor memory, too: A, or B where the operands are exchanged.
    """
    if v.dtype.precision != "tf32" or v.load != "pointer" or v.schedule in ("elementwise", "naive"):
        return None
    across = {"a": v.layout.a != "row", "b": v.layout.b != "column"}
    rows, columns = ("b", "a") if v.product == "exchanged" else ("a", "b")
    return rows if across[rows] and not across[columns] else None


def matrix_instruction(v: Variant, tile: Tile, target: str) -> str | None:
    """The instruction that multiplies a tile on `target`; None where it is done in plain arithmetic."""
    found = TARGETS[target]
    if v.schedule == "elementwise":
        return None
    if found.vendor == "amd" and found.lanes == 64:
        return "mfma"
    if v.dtype.precision == "ieee":
        # No other matrix unit multiplies fp32 as it is.
        return None
    if found.vendor == "amd":
        return "wmma"
    # Both want 64 rows and whole groups of four warps.
    rows = matrix_rows(v, tile)
    if found.capability in (90, 100) and rows >= 64 and tile.warps % 4 == 0:
        if found.capability == 90:
            return "wgmma"
        if ELEMENTS[v.dtype.a].floating:
            return "tcgen05"
    return "mma.sync"


def tensor_memory(v: Variant, tile: Tile, target: str) -> int:
    """Columns of tensor memory that hold the accumulator of one program of `tile`, 0 where it is in registers."""
    if matrix_instruction(v, tile, target) != "tcgen05":
        return 0
    # An operand on its way through registers stands beside the accumulator.
    held = tile.k * -(-matrix_rows(v, tile) // 128) if through_registers(v) else 0
    needed = []
    for n in _columns(v, tile):
        rows, columns = (n, tile.m) if v.product == "exchanged" else (tile.m, n)
        columns *= -(-rows // 128)
        if v.dtype.precision == "tf32x3" and rows < 128:
            # The parts of A lie beside the accumulator.
            columns *= 4
        if v.schedule == "persistent" and not held:
            # The next tile is summed while this one is stored.
            columns *= 2
        needed.append(max(32, columns) + held)
    # The memory has 128 rows, so that of two accumulators of 64 one lies under the other.
    together = max(needed) if len(needed) == 2 and matrix_rows(v, tile) <= 64 else sum(needed)
    # Only powers of two are allotted.
    return 1 << (together - 1).bit_length()


def shared_memory(v: Variant, tile: Tile, target: str, *, surely: bool = False) -> int:
    """Bytes of shared memory that one program of `tile` needs on `target`, an upper bound within BARRIERS.

    The operand tiles of every stage in flight: `wgmma` and `tcgen05` read a stage from shared memory while the next
    arrives, everything else holds one stage in registers. Their result of 16 bits passes through shared memory, and
    so does that of every descriptor's store. So may, by what the compiler makes of layouts, a result beside the loads
    of the next tile, a result of 32 bits with nothing in flight, and a partial sum on the way to a workspace: `surely`
    leaves these out.
    """
    if v.schedule == "elementwise":
        return 0
    a = tile.m * tile.k * ELEMENTS[v.dtype.a].bits // 8
    n = sum(_columns(v, tile))
    b = tile.k * n * ELEMENTS[v.dtype.b].bits // 8
    instruction = matrix_instruction(v, tile, target)
    warpgroup = instruction in ("wgmma", "tcgen05")
    result = everything = tile.m * tile.n * ELEMENTS[v.dtype.out].bits // 8
    if not (v.load == "descriptor" and v.store == "as_load") and not (warpgroup and result == 2 * tile.m * tile.n):
        result = 0
    # Neighbouring columns are a thread's own in the layouts of NVIDIA's matrix units; elsewhere they meet here.
    parted = v.epilogue.order == INTERLEAVED and (v.product == "exchanged" or instruction in (None, "mfma", "wmma"))
    sums = tile.m * n * ELEMENTS[v.dtype.acc].bits // 8
    if parted:
        result, everything = max(result, sums), max(everything, sums)
    if v.schedule == "naive" or tile.stages == 1:
        # Nothing is in flight. What goes to registers takes its turn in shared memory.
        together = TARGETS[target].vendor == "nvidia" and v.load != "descriptor" and v.dtype.precision != "tf32x3"
        needed = max(a + b if together else max(a, b), result)
        if v.schedule == "naive" and (v.load == "descriptor" or warpgroup) and not surely:
            # A result of 32 bits may pass through here, too, whichever way it is stored.
            needed = max(needed, everything)
        if v.schedule == "naive" and v.load == "descriptor" and warpgroup:
            needed = max(needed, a + b + _begun_with(v, tile))
    elif v.dtype.precision == "tf32x3" and warpgroup:
        # The stage that is worked on stands as the high and low parts of the second operand.
        second = a if v.product == "exchanged" else b
        parts = max(2 * second, result if _kept_apart(v, instruction) else 0)
        if v.schedule == "persistent" and not surely:
            # As below; a descriptor's store finds the parts still there.
            parts = 2 * second + everything if v.load == "descriptor" else max(2 * second, everything)
        needed = (a + b) * (tile.stages - 1) + parts
    else:
        # Plain arithmetic reads across the lines of what lies column after column, one matrix at a time.
        lines = [operand for operand, way in ((a, v.layout.a), (b, v.layout.b)) if way == "column"]
        across = max(lines, default=0) if instruction is None and v.load == "descriptor" else 0
        apart = result if _kept_apart(v, instruction) and v.schedule != "persistent" else 0
        needed = (a + b) * (tile.stages if warpgroup else tile.stages - 1) + max(across, apart)
        if warpgroup and (held := through_registers(v)):
            # A program that walks tiles has one stage less of the other, perhaps.
            needed -= max(a, b) if surely and v.schedule == "persistent" else {"a": a, "b": b}[held]
        # Flattened, the next tile's loads are in flight while this one's result passes through, whole at the most.
        # Where the hardware still copies a result out, what warps exchange of a sum or maximum lies beside it.
        if v.schedule == "persistent" and not surely:
            needed += everything + (_exchanged(v, tile) if v.load == "descriptor" and v.store == "as_load" else 0)
        else:
            needed = max(needed, result)
        if instruction == "tcgen05" and v.load == "descriptor":
            needed += 2 * _turned(v, tile, surely)
    if SCHEDULE[v.schedule].workspace and not surely:
        if instruction not in (None, "tcgen05"):
            needed = max(needed, sums)
        if v.schedule == "stream_k" and v.load == "descriptor" and v.store == "as_load" and tile.stages > 1:
            # The hardware still copies a tile out when the loads of the next begin.
            needed += result
    return needed + (BARRIERS if v.load == "descriptor" or instruction == "tcgen05" else 0)


def _begun_with(v: Variant, tile: Tile) -> int:
    """Bytes of the matrix that the first operation adds, at most: Triton has the product begin with it as its sum."""
    shapes = {operand.shape for step in v.chain.steps[:1] for _, operand in step.operands}
    return tile.m * tile.n * 4 if shapes & {MATRIX, OUT} else 0


def staged(v: Variant) -> bool:
    """Whether a descriptor's store may hold a tile of its own in shared memory, beside those of the operands."""
    return v.load == "descriptor" and v.store == "as_load" and ELEMENTS[v.dtype.out].bits == 32


def _turned(v: Variant, tile: Tile, surely: bool) -> int:
    """Bytes of the operand tiles that `tcgen05` cannot read as descriptors bring them: tf32 that does not lie along K.

    Lines under 32 bytes may be among them. They are turned around on the way, by two of each beside those in flight.
    """
    size, tf32 = ELEMENTS[v.dtype.a].bits // 8, v.dtype.precision == "tf32"
    lines = [tile.m] if v.layout.a == "column" else []
    lines += _columns(v, tile) if v.layout.b == "row" else ()
    return sum(tile.k * line * size for line in lines if tf32 or (line * size < 32 and not surely))


def _kept_apart(v: Variant, instruction: str | None) -> bool:
    """Whether a staged result lies beside the operands: where the accumulator is stored as it is, from registers."""
    if not staged(v) or SCHEDULE[v.schedule].workspace or (instruction == "tcgen05" and v.dtype.precision != "tf32x3"):
        return False
    return _stores_accumulator(v) and v.dtype.acc == v.dtype.out


def _stores_accumulator(v: Variant) -> bool:
    """Whether the accumulator is stored as it is: as the result, or saved before the first operation."""
    outputs = [step.output for step in v.epilogue.steps]
    before = list(itertools.takewhile(lambda output: output is not None, outputs))
    return len(before) == len(outputs) or any(output and output.shape == MATRIX for output in before)


def _exchanged(v: Variant, tile: Tile) -> int:
    """Bytes through which the warps of a program add up rows or columns: a number of each warp for each of these."""
    reduced = any(output.tap.reduction for output in v.epilogue.outputs)
    return max(tile.m, tile.n) * tile.warps * 4 if reduced else 0
