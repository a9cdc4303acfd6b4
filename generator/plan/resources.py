"""What one program of a tile takes of a target, as Triton lays it out: formulas that the compile level measures.

Shared memory has a module of its own, `memory`.
"""

from __future__ import annotations

from generator.epilogue.gated_units import INTERLEAVED
from generator.language.model import Tile, Variant
from generator.language.vocabulary import ELEMENTS, TARGETS

#: Columns of 128 lanes of 32 bits (PTX ISA, "Tensor Memory").
TENSOR_MEMORY = 512


def widths(v: Variant, tile: Tile) -> tuple[int, ...]:
    """What the columns of a tile are in, each a power of two."""
    return (tile.left, tile.right) if v.traits.pairs else (tile.n,)


def accumulated_columns(v: Variant, tile: Tile) -> tuple[int, ...]:
    """The columns of each accumulator: a gate wants two columns for each of C."""
    if v.epilogue.order is None:
        return widths(v, tile)
    return (2 * tile.n,) if v.epilogue.order == INTERLEAVED else (tile.n, tile.n)


def largest_tensor(v: Variant, tile: Tile) -> int:
    """The elements of the largest tensor of a program."""
    n = max(accumulated_columns(v, tile))
    handed = 2 * tile.n if v.epilogue.order is not None and v.traits.workspace else n
    return max(tile.m * handed, tile.m * tile.k, tile.k * n)


def matrix_rows(v: Variant, tile: Tile) -> int:
    """The rows of the matrix unit that a product fills."""
    return accumulated_columns(v, tile)[0] if v.product == "exchanged" else tile.m


def through_registers(v: Variant) -> str | None:
    """The operand, "a" or "b", that goes to the matrix unit through registers; None where both lie in shared memory.

    Hopper's and Blackwell's read tf32 in shared memory along K alone, and what fills their rows from registers, or
    tensor memory, too: A, or B where the operands are exchanged.
    """
    if v.dtype.precision != "tf32" or v.load != "pointer" or not (v.traits.tiled and v.traits.looped):
        return None
    across = {"a": v.layout.a != "row", "b": v.layout.b != "column"}
    rows, columns = ("b", "a") if v.product == "exchanged" else ("a", "b")
    return rows if across[rows] and not across[columns] else None


def matrix_instruction(v: Variant, tile: Tile, target: str) -> str | None:
    """The instruction that multiplies a tile on `target`; None where it is done in plain arithmetic."""
    found = TARGETS[target]
    if not v.traits.tiled:
        return None
    if found.vendor == "amd" and found.lanes == 64:
        return "mfma"
    if v.dtype.precision == "ieee":
        # No other matrix unit multiplies fp32 as it is.
        return None
    if found.vendor == "amd":
        return "wmma"
    # Both want 64 rows and whole groups of four warps, the later one or two of them.
    rows = matrix_rows(v, tile)
    if found.capability == 90 and rows >= 64 and tile.warps % 4 == 0:
        return "wgmma"
    if found.capability == 100 and rows >= 64 and tile.warps in (4, 8) and ELEMENTS[v.dtype.a].floating:
        return "tcgen05"
    return "mma.sync"


def registers(tile: Tile, target: str) -> int:
    """Registers of 32 bits that a thread of a program may have: by its instructions' encoding, and its share of all."""
    found = TARGETS[target]
    if found.vendor == "nvidia":
        return min(255, 65536 // (32 * tile.warps))
    # A compute unit has four units that compute; AMD's other 256 hold sums of the matrix unit and no operands.
    each = 512 if found.lanes == 64 else 1536
    return min(256, each // -(-tile.warps // 4))


def registers_of_sums(v: Variant, tile: Tile, target: str) -> int:
    """Registers that the sums of a tile take of each thread: in 32 bits, as the epilogue has them."""
    threads = tile.warps * TARGETS[target].lanes
    return -(-tile.m * sum(accumulated_columns(v, tile)) // threads)


def registers_of_operands(v: Variant, tile: Tile, target: str) -> int:
    """Registers that a step's operand tiles take of each thread at least, where they are in registers; else 0."""
    if matrix_instruction(v, tile, target) in ("wgmma", "tcgen05") and not through_registers(v):
        return 0
    threads = tile.warps * TARGETS[target].lanes
    elements = (tile.m + sum(accumulated_columns(v, tile))) * tile.k
    return -(-elements * ELEMENTS[v.dtype.a].bits // (32 * threads))


def tensor_memory(v: Variant, tile: Tile, target: str) -> int:
    """Columns of tensor memory that hold the accumulator of one program of `tile`, 0 where it is in registers."""
    if matrix_instruction(v, tile, target) != "tcgen05":
        return 0
    # An operand on its way through registers stands beside the accumulator.
    held = tile.k * -(-matrix_rows(v, tile) // 128) if through_registers(v) else 0
    needed = []
    for n in accumulated_columns(v, tile):
        rows, columns = (n, tile.m) if v.product == "exchanged" else (tile.m, n)
        columns *= -(-rows // 128)
        if v.dtype.precision == "tf32x3" and rows < 128:
            # The parts of A lie beside the accumulator.
            columns *= 4
        if v.traits.walks_tiles and not held:
            # The next tile is summed while this one is stored.
            columns *= 2
        needed.append(max(32, columns) + held)
    # The memory has 128 rows, so that of two accumulators of 64 one lies under the other.
    together = max(needed) if len(needed) == 2 and matrix_rows(v, tile) <= 64 else sum(needed)
    # Only powers of two are allotted.
    return 1 << (together - 1).bit_length()
