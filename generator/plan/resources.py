"""Registers, tensor memory and matrix instructions of one program of a tile, as Triton compiles it for a target.

The compile level of `verify` compares these formulas with compiled kernels. `memory` has those of shared memory.
"""

from __future__ import annotations

import itertools

from generator.epilogue.gated_units import CONCATENATED, INTERLEAVED
from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant, block_sizes
from generator.language.storage import Storage
from generator.language.targets import TARGETS
from generator.language.vocabulary import SWIZZLE

#: Columns of tensor memory, each with 128 lanes of 32 bits (PTX ISA, "Tensor Memory").
TENSOR_MEMORY = 512
#: The scales along K that a word of tensor memory has, and the rows of a product that is multiplied by them.
SCALES_OF_WORD = 4
SCALED_ROWS = 128
#: The bytes of a row of a block that a descriptor copies, at least (CUDA driver API, cuTensorMapEncodeTiled).
SHORTEST_COPY = 16
#: The rows of the matrix units of Hopper and Blackwell.
MATRIX_ROWS = 64


def shallowest(v: Variant) -> int:
    """The least elements along K of a step: what one instruction of the matrix unit reads, or a word of its scales."""
    if v.dtype.native:
        return max(SCALES_OF_WORD * storage.block.along for storage in v.dtype.stored if storage.block is not None)
    return ELEMENTS[v.dtype.stored_a.multiplied].step


def copies_too_little(v: Variant, storage: Storage, k: int) -> bool:
    """Whether a descriptor of an operand that is contiguous along K would copy too few bytes in a step of `k`."""
    along_k = {"a": v.layout.a == "row", "b": v.layout.b == "column"}[storage.letter]
    return v.loading.descriptors and along_k and storage.bytes(k) < SHORTEST_COPY


def widths(v: Variant, tile: Tile) -> tuple[int, ...]:
    """The columns of each block of a tile, powers of two."""
    return block_sizes(tile.n, v.traits.blocks) if v.traits.side == "n" else (tile.n,)


def heights(v: Variant, tile: Tile) -> tuple[int, ...]:
    """The rows of each block of a tile, powers of two."""
    return block_sizes(tile.m, v.traits.blocks) if v.traits.side == "m" else (tile.m,)


def accumulated_columns(v: Variant, tile: Tile) -> tuple[int, ...]:
    """The columns of each accumulator of the same rows: a gated linear unit needs two columns for each column of C."""
    columns = widths(v, tile)
    if v.epilogue.order == INTERLEAVED:
        return tuple(2 * n for n in columns)
    return columns if v.epilogue.order is None else tuple(n for n in columns for _ in range(2))


def largest_tensor(v: Variant, tile: Tile) -> int:
    """The elements of the largest tensor of a program: an operand tile, an accumulator or a partial sum."""
    m, n = max(heights(v, tile)), max(accumulated_columns(v, tile))
    partial = 2 * tile.n if v.epilogue.order is not None and v.traits.workspace else n
    return max(m * max(partial, n * sums_along_k(v, tile)), m * tile.k, tile.k * n)


def widest_band(v: Variant, tile: Tile) -> int:
    """The most tile rows or columns of a band whose tiles can be counted in 32 bits, however long the band is."""
    return tile.n if SWIZZLE[v.swizzle].band == "GROUP_M" else tile.m


def sums_along_k(v: Variant, tile: Tile) -> int:
    """The sums of an element of C behind the loop over K: a summed product has one for each index of a step."""
    return tile.k if v.product == "summed" else 1


def matrix_rows(v: Variant, tile: Tile) -> int:
    """The rows of the tile's matrix product as the matrix unit computes it, the fewest where it computes several."""
    return min(accumulated_columns(v, tile) if v.product == "exchanged" else heights(v, tile))


def through_registers(v: Variant) -> str | None:
    """The operand, "a" or "b", that the matrix unit reads from registers; None if it reads both from shared memory.

    The matrix units of Hopper and Blackwell read tf32 from shared memory only if it is contiguous along K. They can
    also read the operand of their rows from registers, or tensor memory: A, or B in an exchanged product.
    """
    if v.dtype.precision != "tf32" or not v.loading.pointers or not (v.traits.tiled and v.traits.looped):
        return None
    across = {"a": v.layout.a != "row", "b": v.layout.b != "column"}
    rows, columns = ("b", "a") if v.product == "exchanged" else ("a", "b")
    return rows if across[rows] and not across[columns] else None


def in_registers(v: Variant) -> str | None:
    """The operand, "a" or "b", that the matrix unit reads from registers, for this or because it is converted there."""
    rows = v.dtype.stored_b if v.product == "exchanged" else v.dtype.stored_a
    return rows.letter if rows.converted else through_registers(v)


def converts_as_loaded(v: Variant) -> bool:
    """Whether a converted B can stay in the registers that load it, K being multiplied in an order that suits them."""
    alone = v.dtype.stored_b.converted and v.dtype.stored_a.packed == 1
    return alone and v.product == "exchanged" and v.layout.b == "column"


def keeps_registers(v: Variant) -> bool:
    """Whether a converted B stays there in every tile: pointers copy A in that order."""
    return converts_as_loaded(v) and v.loading.pointers


def matrix_instruction(v: Variant, tile: Tile, target: str) -> str | None:
    """The matrix instruction that multiplies a tile on `target`; None if plain arithmetic does."""
    device = TARGETS[target]
    if not v.traits.tiled or v.product == "summed":
        return None
    if device.vendor == "amd" and device.lanes == 64:
        return "mfma"
    if v.dtype.precision == "ieee":
        # No other matrix unit multiplies fp32 in full precision.
        return None
    if device.vendor == "amd":
        return "wmma"
    # wgmma and tcgen05 need 64 rows and groups of four warps, tcgen05 one or two of them.
    rows = matrix_rows(v, tile)
    if device.capability == 90 and rows >= 64 and tile.warps % 4 == 0:
        return "wgmma"
    least = SCALED_ROWS if v.dtype.native else 64
    if device.capability == 100 and rows >= least and tile.warps in (4, 8) and v.dtype.stored_a.element.floating:
        return "tcgen05"
    # What is not scaled by tcgen05 would be converted instead.
    return None if device.capability == 100 and v.dtype.native else "mma.sync"


def serialised(v: Variant) -> bool:
    """Whether ptxas makes each product of the matrix unit wait for the one before it (sm90).

    A program that walks tiles clears its accumulators while the last products of a tile may be running. With two
    accumulators ptxas then serialises the products. On an H200 a step takes up to 2.7 times as long as where each
    program has one tile; with one accumulator it takes as long in both.
    """
    return v.traits.walks_tiles and v.epilogue.order == CONCATENATED


def scaled_in_turn(v: Variant) -> bool:
    """Whether a step scales one half of a gate's sums while the matrix unit multiplies for the other.

    A plain product has no such halves. Its tiles have sums of a step beside all accumulators, where these have one
    half's alone, so that they may be larger.
    """
    scaled = any(storage.scales_sums for storage in v.multiplied.dtype.stored)
    return v.epilogue.order == CONCATENATED and scaled and not v.dtype.stored_b.converted


def registers(tile: Tile, target: str) -> int:
    """The 32-bit registers that a thread of a program may have.

    The limits are the encoding of the instructions and the thread's share of the multiprocessor's registers.
    """
    device = TARGETS[target]
    if device.vendor == "nvidia":
        return min(255, 65536 // (32 * tile.warps))
    # A compute unit has four SIMD units. AMD's other 256 registers hold accumulators and no operands.
    each = 512 if device.lanes == 64 else 1536
    return min(256, each // -(-tile.warps // 4))


def registers_of_sums(v: Variant, tile: Tile, target: str) -> int:
    """Registers per thread for the accumulators of a tile, with 32 bits per element, as in the epilogue."""
    threads = tile.warps * TARGETS[target].lanes
    return -(-tile.m * sum(accumulated_columns(v, tile)) * sums_along_k(v, tile) // threads)


def registers_of_operands(v: Variant, tile: Tile, target: str) -> int:
    """Registers per thread for the operand tiles of a step, at least; 0 if the matrix unit reads shared memory."""
    if matrix_instruction(v, tile, target) in ("wgmma", "tcgen05") and not in_registers(v):
        return 0
    threads = tile.warps * TARGETS[target].lanes
    elements = (tile.m + sum(accumulated_columns(v, tile))) * tile.k
    return -(-elements * v.dtype.stored_a.multiplied_bits // (32 * threads))


def words_of_scales(v: Variant, tile: Tile) -> int:
    """The words of scales of a step, along K."""
    return tile.k // shallowest(v)


def tensor_memory(v: Variant, tile: Tile, target: str) -> int:
    """Columns of tensor memory that one program of `tile` needs; 0 if the accumulator is in registers."""
    if matrix_instruction(v, tile, target) != "tcgen05":
        return 0
    # An operand that does not come from shared memory takes columns beside the accumulator.
    operand = tile.k * -(-matrix_rows(v, tile) // 128) if in_registers(v) else 0
    needed, most_rows = [], 0
    for m, n in itertools.product(heights(v, tile), accumulated_columns(v, tile)):
        rows, columns = (n, m) if v.product == "exchanged" else (m, n)
        most_rows = max(most_rows, rows)
        columns *= -(-rows // 128)
        if v.dtype.precision == "tf32x3" and rows < 128:
            # The high and the low part of A take columns beside the accumulator.
            columns *= 4
        if v.traits.walks_tiles and not operand:
            # The next tile is accumulated while this one is stored.
            columns *= 2
        needed.append(max(32, columns) + operand)
    if v.dtype.native:
        # A column has a word of scales for each of 32 rows of A, or columns of B.
        lines = (tile.m, sum(accumulated_columns(v, tile)))
        needed.append(sum(-(-many // 32) * words_of_scales(v, tile) for many in lines))
    # Two accumulators of 64 rows share the 128 lanes of the same columns.
    shared = len(heights(v, tile)) * len(accumulated_columns(v, tile)) == 2 and most_rows <= 64
    together = max(needed) if shared else sum(needed)
    # The hardware allocates powers of two.
    return 1 << (together - 1).bit_length()
