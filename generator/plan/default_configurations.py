"""The configurations of a spec without `tile`, by schedule and operand width."""

from __future__ import annotations

import math
from dataclasses import replace

from generator.epilogue.gated_units import INTERLEAVED
from generator.epilogue.operations import COLUMNS, HALVES, ROWS
from generator.language.model import Tile, Variant, block_sizes
from generator.language.vocabulary import undivided
from generator.plan.configurations import divided
from generator.plan.configurations_of_32_bits import of_32_bits
from generator.plan.resources import scaled_in_turn, widest_band
from generator.plan.shared_memory import staged

# 16-bit operands. Each was the fastest at one or more of 17 values of M from 8 to 8192, measured on an H200.
_TILED_16 = (
    Tile(128, 128, 64, warps=4, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(64, 128, 64, warps=4, stages=4),
    Tile(64, 128, 128, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=4),
    Tile(16, 32, 256, warps=4, stages=4),
)
# Descriptor loads with one program per multiprocessor: a multiprocessor loads 64 bytes per cycle only with about 200 KB
# in flight, which takes all of its shared memory. Each was the fastest, by up to 25 %, at one or more of 12 sizes with
# M from 128 to 2048 on an H200.
_DEEP_16 = (
    Tile(128, 128, 64, warps=4, stages=6),
    Tile(64, 128, 64, warps=4, stages=9),
    Tile(64, 64, 128, warps=4, stages=7),
)
# One program per multiprocessor: larger tiles keep the matrix units busy, and bands of tiles fit in the L2.
_PERSISTENT_16 = (
    Tile(128, 256, 64, warps=8, stages=3),
    Tile(128, 256, 64, warps=8, stages=3, group=16),
    Tile(128, 128, 64, warps=4, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(128, 128, 64, warps=4, stages=6),
    Tile(64, 256, 64, warps=4, stages=4),
    Tile(64, 128, 128, warps=4, stages=4),
    Tile(64, 128, 64, warps=4, stages=4),
    Tile(128, 64, 64, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=4),
)
# A kernel in front decodes B, which pays for many rows of C: large tiles.
_DECODED_16 = (
    Tile(128, 256, 64, warps=8, stages=3),
    Tile(256, 128, 64, warps=8, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(128, 128, 64, warps=4, stages=3),
    Tile(64, 256, 64, warps=4, stages=4),
    Tile(64, 128, 64, warps=4, stages=4),
)
# Few rows of C, so that its columns fill the rows of the matrix unit; many stages keep enough loads in flight.
_EXCHANGED_16 = (
    Tile(16, 64, 256, warps=4, stages=5),
    Tile(16, 64, 256, warps=4, stages=4),
    Tile(16, 128, 64, warps=4, stages=6),
    Tile(32, 64, 256, warps=4, stages=4),
    Tile(32, 64, 128, warps=4, stages=6),
    Tile(32, 64, 128, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(64, 128, 64, warps=4, stages=3),
)
# 8-bit operands: the table above, scaled to the same bytes along K, has few stages of a long K. These have more stages;
# some are the fastest for M from 1 to 128 on an H200.
_EXCHANGED_8 = (
    Tile(16, 64, 256, warps=4, stages=8),
    Tile(16, 64, 128, warps=4, stages=10),
    Tile(16, 128, 256, warps=4, stages=5),
    Tile(64, 64, 128, warps=4, stages=8),
    Tile(64, 128, 128, warps=4, stages=8),
)
# Of fp8 whose sums are promoted. Three programs fit on a multiprocessor: while one of them adds its products to the sum
# in fp32, the matrix unit multiplies for the others.
_PROMOTED = (Tile(64, 128, 128, warps=4, stages=3),)
# Tiles of two widths side by side, for sizes at which tiles of powers of two make slightly more than one wave. Each was
# among the fastest at one or more of 16 such sizes on an H200; most have one program per multiprocessor and many loads
# in flight.
_PAIRED_16 = (
    Tile(128, 288, 64, warps=8, stages=4),
    Tile(128, 192, 64, warps=4, stages=4),
    Tile(128, 160, 64, warps=4, stages=6),
    Tile(128, 144, 64, warps=4, stages=6),
    Tile(128, 144, 64, warps=4, stages=3),
    Tile(128, 80, 128, warps=4, stages=4),
    Tile(64, 192, 64, warps=4, stages=6),
    Tile(64, 160, 64, warps=4, stages=6),
    Tile(64, 144, 64, warps=4, stages=4),
    Tile(64, 80, 64, warps=4, stages=6),
    Tile(64, 80, 128, warps=4, stages=6),
    Tile(64, 96, 128, warps=4, stages=5),
    Tile(64, 48, 128, warps=4, stages=4),
)
# Rows of an exchanged product, of which the matrix unit takes any multiple of 16: one tile holds all rows of C, so that
# each element of B is read once. Tried on an H100 at 144 to 320 rows; the rest of the table is by the same rule.
_PAIRED_M_EXCHANGED_16 = (
    Tile(272, 128, 64, warps=8, stages=4),
    Tile(160, 128, 64, warps=4, stages=6),
    Tile(160, 128, 64, warps=8, stages=6),
    Tile(144, 128, 64, warps=4, stages=6),
    Tile(192, 128, 64, warps=8, stages=5),
    Tile(144, 64, 64, warps=4, stages=8),
    Tile(80, 128, 64, warps=4, stages=8),
    Tile(96, 128, 64, warps=4, stages=7),
)
_TRIPLED_M_EXCHANGED_16 = (
    Tile(208, 128, 64, warps=8, stages=5),
    Tile(224, 128, 64, warps=8, stages=5),
    Tile(176, 128, 64, warps=8, stages=5),
    Tile(112, 128, 64, warps=4, stages=7),
)
# The same of a direct product, where each block fills the rows of the matrix unit.
_PAIRED_M_16 = (Tile(192, 128, 64, warps=8, stages=5),)
_TRIPLED_16 = (
    Tile(128, 208, 64, warps=8, stages=5),
    Tile(128, 176, 64, warps=8, stages=5),
    Tile(64, 224, 64, warps=4, stages=6),
    Tile(64, 208, 64, warps=4, stages=6),
)
_TRIPLED_M_16 = (Tile(448, 64, 64, warps=8, stages=3),)
_TRIPLED_EXCHANGED_16 = (Tile(64, 448, 64, warps=8, stages=3),)
# Two equal widths of an exchanged product: fp8 whose sums are promoted to fp32, of one half of a tile while the matrix
# unit multiplies the other. The first was the fastest at 33 of 54 sizes with 200 rows or more on an H200.
_PAIRED_EXCHANGED_16 = (
    Tile(128, 128, 64, warps=4, stages=3),
    Tile(64, 128, 64, warps=4, stages=3),
)
# The steps along K of all tiles are divided over the programs: one tile that fills a multiprocessor, and smaller ones
# for sizes at which it leaves too few steps.
_STREAM_16 = (
    Tile(128, 256, 64, warps=8, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(64, 128, 128, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=4),
)


def _of_bits(bits: int, tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """The configurations for 16 bits, with as many bytes along K for elements of so many bits."""
    return tuple(replace(tile, k=tile.k * 16 // bits) for tile in tiles)


# The table of each schedule by the bits of an element.
_TABLES = {
    name: {bits: _of_bits(bits, tiles) for bits in (8, 16, 32)}
    for name, tiles in (
        ("tiled", _TILED_16),
        ("deep", _DEEP_16),
        ("persistent", _PERSISTENT_16),
        ("paired", _PAIRED_16),
        ("paired exchanged", _PAIRED_EXCHANGED_16),
        ("paired_m", _PAIRED_M_16),
        ("paired_m exchanged", _PAIRED_M_EXCHANGED_16),
        ("tripled", _TRIPLED_16),
        ("tripled exchanged", _TRIPLED_EXCHANGED_16),
        ("tripled_m", _TRIPLED_M_16),
        ("tripled_m exchanged", _TRIPLED_M_EXCHANGED_16),
        ("stream_k", _STREAM_16),
        ("decoded", _DECODED_16),
        ("exchanged", _EXCHANGED_16),
    )
}
# B is converted. An exchanged product reads it from registers, and is for any number of rows of C: the rows of the
# matrix unit are columns of C. A step waits for its conversion: few stages leave room for several programs, which
# wait in turn.
_CONVERTED_EXCHANGED = (
    Tile(128, 128, 128, warps=8, stages=3),
    Tile(128, 64, 128, warps=4, stages=3),
    Tile(64, 128, 128, warps=4, stages=3),
    Tile(64, 64, 128, warps=4, stages=3),
    Tile(32, 128, 128, warps=4, stages=3),
    Tile(32, 64, 128, warps=4, stages=4),
    Tile(16, 128, 128, warps=4, stages=3),
    Tile(16, 64, 128, warps=4, stages=3),
)
# Where two of four are stored, a step is of whole words of positions. Few rows wait for memory alone.
_SPARSE_EXCHANGED = (
    *_CONVERTED_EXCHANGED,
    Tile(64, 64, 128, warps=4, stages=5),
    Tile(32, 64, 128, warps=4, stages=6),
    Tile(16, 64, 128, warps=4, stages=6),
    Tile(16, 64, 256, warps=4, stages=4),
)
# In a direct product it is stored in shared memory again.
_CONVERTED = (
    Tile(128, 128, 64, warps=8, stages=4),
    Tile(64, 128, 64, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=5),
)
# A sum for each step beside the accumulator needs twice the registers, so that large tiles have more warps.
_SCALED_8 = (
    Tile(128, 128, 128, warps=8, stages=4),
    Tile(64, 128, 128, warps=4, stages=6),
    Tile(64, 128, 128, warps=4, stages=4),
    Tile(64, 128, 128, warps=4, stages=3),
    Tile(64, 64, 128, warps=4, stages=6),
)
# A gate has one half's sum of a step beside its accumulators: twice the columns of a plain product fit. With 128 rows
# they take 5 to 17 % longer (1024 to 8192 rows, an H100).
_SCALED_IN_TURN_8 = (
    Tile(64, 256, 128, warps=8, stages=4),
    Tile(64, 256, 128, warps=8, stages=2),
)
_SCALED_EXCHANGED_8 = (
    Tile(64, 128, 128, warps=8, stages=5),
    Tile(64, 64, 128, warps=4, stages=6),
    Tile(32, 64, 128, warps=4, stages=8),
    Tile(16, 128, 128, warps=4, stages=6),
    Tile(16, 64, 128, warps=4, stages=8),
)
# A scaled product has 128 rows, and steps of 128 elements along K or more, whose scales are whole words.
_SCALED_PRODUCT = (
    Tile(128, 256, 128, warps=8, stages=4),
    Tile(128, 128, 256, warps=8, stages=3),
    Tile(128, 128, 128, warps=4, stages=3),
    Tile(128, 64, 256, warps=4, stages=4),
    Tile(128, 32, 256, warps=4, stages=4),
)
# Without scales of each step one accumulator holds the sum, so that tiles may be larger, or more stages fit. In an
# exchanged product a step waits for its products, while those of the other programs on a multiprocessor go on.
_CONVERTED_WHOLE = (Tile(256, 128, 64, warps=8, stages=3), Tile(128, 256, 64, warps=8, stages=3))
_CONVERTED_WHOLE_EXCHANGED = (
    Tile(256, 64, 64, warps=4, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=4),
)


def _stored(v: Variant) -> tuple[Tile, ...]:
    """The configurations of operands that are converted, or scaled step by step."""
    exchanged = v.product == "exchanged"
    tiles: tuple[Tile, ...]
    if v.dtype.sparse and exchanged:
        tiles = _SPARSE_EXCHANGED
    elif v.dtype.stored_b.converted:
        tiles = _CONVERTED_EXCHANGED if exchanged else _CONVERTED
        if not any(storage.scales_sums for storage in v.dtype.stored):
            tiles = (*(_CONVERTED_WHOLE_EXCHANGED if exchanged else _CONVERTED_WHOLE), *tiles)
        if v.dtype.stored_b.multiplied_bits == 8:
            tiles = _of_bits(8, tiles)
    else:
        tiles = _SCALED_EXCHANGED_8 if exchanged else _SCALED_8
        if scaled_in_turn(v) and not exchanged:
            tiles = (*_SCALED_IN_TURN_8, *tiles)
    return divided(tiles) if v.traits.splits else tiles


# K divided over programs: for products with few tiles and a long K.
_SPLIT_16 = divided(
    (
        Tile(128, 128, 64, warps=4, stages=4),
        Tile(64, 128, 128, warps=4, stages=4),
        Tile(64, 64, 128, warps=4, stages=4),
        Tile(16, 64, 128, warps=4, stages=4),
    )
)
# For elements of 8 bits, those that measurements on an H200 call for; the last ones are for few rows.
_SPLIT_8 = (
    *(Tile(128, 256, 128, warps=8, stages=4, split=split) for split in (2, 3)),
    *(Tile(128, 128, 128, warps=8, stages=6, split=split) for split in (2, 3, 6)),
    *(Tile(64, 128, 128, warps=4, stages=8, split=split) for split in (2, 3)),
    *(Tile(64, 64, 256, warps=4, stages=6, split=split) for split in (2, 8, 16)),
    *(Tile(16, 64, 256, warps=4, stages=6, split=split) for split in (2, 8)),
)
_SPLIT = {8: _SPLIT_8, 16: _SPLIT_16}
# All of K in one load: k is the largest K that the configuration accepts.
_NAIVE_16 = (
    Tile(32, 32, 64, warps=4, stages=1),
    Tile(32, 32, 128, warps=4, stages=1),
    Tile(32, 32, 256, warps=4, stages=1),
    Tile(32, 32, 512, warps=4, stages=1),
    Tile(32, 32, 1024, warps=8, stages=1),
)
_NAIVE_32 = _NAIVE_16[:4]

#: The most stages of a configuration whose steps are shortened.
_MOST_STAGES = 8
# The only configuration of a schedule without tiles.
_ELEMENT = Tile(1, 1, 1, warps=1, stages=1)


def defaults(v: Variant) -> tuple[Tile, ...]:
    """The configurations for a variant's schedule, types, layout and product, largest tile first."""
    narrowed = (replace(tile, group=min(tile.group, widest_band(v, tile))) for tile in _of_result(v))
    tiles = tuple(dict.fromkeys(_of_blocks(v, tile) for tile in narrowed if not _spills(v, tile)))
    if v.epilogue.order is not None and v.traits.tiled:
        # A gated linear unit reads two columns of B for each column of C: half the columns need the same resources.
        tiles = tuple(dict.fromkeys(halved(v, tile) for tile in tiles))
    return tuple(dict.fromkeys(of_scales(v, tile) for tile in tiles))


def of_scales(v: Variant, tile: Tile) -> Tile:
    """`tile` with the columns that share a scale of a quantised result, and for more columns fewer rows, if it can."""
    if v.quantised is None or tile.n % v.quantised.block == 0 or not v.traits.tiled:
        return tile
    # Below 64 rows Hopper's matrix instruction cannot be used: then steps are shorter, so that operands need no more.
    n = v.quantised.block
    m = max(tile.m * tile.n // n, min(tile.m, 64))
    more = -(-m * n // (tile.m * tile.n))
    if more > 1 and scaled_in_turn(v):
        # Each step is scaled, so that shorter ones would take longer: more warps hold the sums.
        return replace(
            tile, n=n, m=m, warps=max(tile.warps, min(tile.warps * more, 8)), stages=max(tile.stages // more, 2)
        )
    return replace(tile, n=n, m=m, k=tile.k if more == 1 else min(tile.k, max(tile.k // 2, 64)))


def _of_blocks(v: Variant, tile: Tile) -> Tile:
    """`tile` with so few elements along K that a step has one scale of each operand, and then with more stages."""
    scaled = [storage.block for storage in v.multiplied.dtype.stored if storage.scaled_by_step]
    k = math.gcd(tile.k, *(block.along for block in scaled if block is not None))
    return tile if k == tile.k else replace(tile, k=k, stages=min(tile.stages * tile.k // k, _MOST_STAGES))


def _spills(v: Variant, tile: Tile) -> bool:
    """Whether a program that walks tiles has too few registers per thread for `tile`.

    With vector operands in the epilogue and reductions over both rows and columns, 128 elements of C per thread spill
    up to 4 KB (ptxas, sm90), and 64 elements almost nothing. If one of these three conditions is missing, 128 elements
    spill less than 1 KB, and mostly nothing. Where B is converted to 8 bits and a step has scales of rows and columns,
    64 elements spill 1.2 KB if there are more threads than columns, each of which then holds the scales of several.
    """
    if not v.traits.walks_tiles:
        return False
    elements = tile.m * tile.n // (32 * tile.warps)
    if v.dtype.stored_b.converted and v.dtype.stored_b.multiplied_bits == 8 and elements >= 64:
        columns = tile.n if v.epilogue.order is None else tile.n // 2
        return all(storage.scales_sums for storage in v.dtype.stored) and 32 * tile.warps > columns
    reduced = {output.shape for output in v.epilogue.outputs if output.reduced}
    vectors = any(operand.shape in (ROWS, COLUMNS, HALVES) for operand in v.epilogue.operands)
    return len(reduced) > 1 and vectors and elements >= 128


def halved(v: Variant, tile: Tile) -> Tile:
    """`tile` with half its columns, or with half its K where the columns would be too few for the matrix unit."""
    least = 16
    if v.product == "exchanged":
        least = 32 if v.epilogue.order == INTERLEAVED else 64
    fewest = min(block_sizes(tile.n, v.traits.blocks if v.traits.side == "n" else 1))
    if fewest // 2 < least and fewest < tile.n and tile.m >= 128:
        return replace(tile, m=tile.m // 2)
    return replace(tile, n=tile.n // 2) if fewest // 2 >= least else replace(tile, k=max(tile.k // 2, 32))


def _of_result(v: Variant) -> tuple[Tile, ...]:
    """The configurations of a product in which C has as many columns as B; of a symmetric C, those that it can have."""
    return tuple(_wide(tile) for tile in _ungated(v)) if v.symmetric else _ungated(v)


def _wide(tile: Tile) -> Tile:
    """`tile`, or the same with rows and columns exchanged: tiles of a symmetric result are at least as wide as high."""
    return replace(tile, m=min(tile.m, tile.n), n=max(tile.m, tile.n))


def _ungated(v: Variant) -> tuple[Tile, ...]:
    """The configurations of a product in which C has as many columns as B."""
    schedule, dtype = v.schedule, v.multiplied.dtype
    bits = dtype.stored_a.multiplied_bits
    if not v.traits.tiled:
        return (_ELEMENT,)
    if not v.traits.looped:
        return _NAIVE_32 if bits == 32 else _NAIVE_16
    if dtype.native:
        return divided(_SCALED_PRODUCT) if v.traits.splits else _SCALED_PRODUCT
    if v.traits.pairs:
        return _of_several(v, bits)
    if dtype.stored_b.converted or any(storage.scales_sums for storage in dtype.stored):
        return _stored(v)
    own = of_32_bits(v) if bits == 32 else None
    if own is not None:
        return own
    if v.traits.splits:
        return _SPLIT[bits]
    if v.product == "exchanged":
        return _TABLES["exchanged"][bits] + (_EXCHANGED_8 if bits == 8 else ())
    # Nothing was measured of a schedule without a table: those of the schedule that does the same by its traits.
    alike = "persistent" if v.traits.walks_tiles else "stream_k" if v.traits.walks_steps else "tiled"
    tiles = _TABLES.get(schedule, _TABLES[alike])[bits]
    if v.traits.plain and v.loading.descriptors:
        return (*tiles, *(_PROMOTED if dtype.precision == "full" else ()), *_deep(v))
    return tiles


#: Of those tables the configurations whose K is divided, and into how many parts: one tile has all rows of C, so that
#: few tiles leave a third or more of the device idle.
_FEW_DIVIDED, _PARTS_OF_SEVERAL = 3, (2, 3, 4)
#: The registers per thread for two sums of an element, of which one is for a step, beside which operands find room.
_MOST_REGISTERS_OF_SUMS = 160


def _of_several(v: Variant, bits: int) -> tuple[Tile, ...]:
    """The configurations whose rows or columns are several blocks."""
    if v.traits.splits:
        one = replace(v, schedule=undivided(v.traits) or v.schedule)
        return divided(_of_several(one, bits)[:_FEW_DIVIDED], _PARTS_OF_SEVERAL)
    tiles = _TABLES[f"{v.schedule} exchanged" if v.product == "exchanged" else v.schedule][bits]
    dtype = v.multiplied.dtype
    by_step = any(storage.scales_sums for storage in dtype.stored)
    if v.schedule == "paired" and not dtype.stored_b.converted:
        # Under scales the smaller one was not measured.
        return tiles[:1] if by_step and v.product == "exchanged" else tiles
    if not (by_step or dtype.precision == "full"):
        return tiles
    # A sum of each step beside the accumulator needs twice the registers.
    return tuple(dict.fromkeys(_of_eight_warps(v, tile) for tile in tiles))


def _of_eight_warps(v: Variant, tile: Tile) -> Tile:
    """`tile` with eight warps, and with so little of the side that is one block that two sums fit into registers."""
    tile = replace(tile, warps=8)
    other, least = ("n", 64 if v.product == "exchanged" else 16) if v.traits.side == "m" else ("m", 16)
    while 2 * tile.m * tile.n > _MOST_REGISTERS_OF_SUMS * 32 * tile.warps and getattr(tile, other) > least:
        tile = replace(tile, **{other: getattr(tile, other) // 2})
    return tile


def _deep(v: Variant) -> tuple[Tile, ...]:
    """The configurations with as many stages as fit: one less if the result is staged in shared memory."""
    tiles = _TABLES["deep"][v.dtype.stored_a.multiplied_bits]
    return tuple(replace(tile, stages=tile.stages - 1) for tile in tiles) if staged(v) else tiles
