"""The configurations of a spec without `tile`, by schedule and operand width."""

from __future__ import annotations

import math
from dataclasses import replace

import yaml

from generator.epilogue.gated_units import INTERLEAVED
from generator.epilogue.operations import COLUMNS, HALVES, ROWS
from generator.files.package_data import data
from generator.language.model import Tile, Variant, block_sizes
from generator.language.vocabulary import undivided
from generator.plan.configurations import divided
from generator.plan.resources import scaled_in_turn, through_registers, widest_band
from generator.plan.shared_memory import staged


def _read() -> dict[str, tuple[Tile, ...]]:
    """The tables of configurations by name."""
    tables = yaml.safe_load(data("plan", "default_configurations.yaml").read_text(encoding="utf-8"))
    return {
        name: tuple(
            Tile(m, n, k, warps, group[0] if group else Tile.group, stages) for m, n, k, warps, stages, *group in rows
        )
        for name, rows in tables.items()
    }


_TABLES = _read()


def _of_bits(bits: int, tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """The configurations for 16 bits, with as many bytes along K for elements of so many bits."""
    return tuple(replace(tile, k=tile.k * 16 // bits) for tile in tiles)


def _of_product(v: Variant, name: str) -> tuple[Tile, ...]:
    """The table of this name, or its own for an exchanged product."""
    return _TABLES[f"{name} exchanged" if v.product == "exchanged" else name]


def _stored(v: Variant) -> tuple[Tile, ...]:
    """The configurations of operands that are converted, or scaled step by step."""
    exchanged = v.product == "exchanged"
    if v.dtype.sparse and exchanged:
        tiles = (*_of_product(v, "converted"), *_of_product(v, "sparse"))
    elif v.dtype.stored_b.converted:
        tiles = _of_product(v, "converted")
        if not any(storage.scales_sums for storage in v.dtype.stored):
            tiles = (*_of_product(v, "converted whole"), *tiles)
        if v.dtype.stored_b.multiplied_bits == 8:
            tiles = _of_bits(8, tiles)
    else:
        tiles = _of_product(v, "scaled by step")
        if scaled_in_turn(v) and not exchanged:
            tiles = (*_TABLES["scaled in turn"], *tiles)
    return divided(tiles) if v.traits.splits else tiles


# For elements of 8 bits, those that measurements on an H200 call for; the last ones are for few rows.
_SPLIT_8 = (
    *(Tile(128, 256, 128, warps=8, stages=4, split=split) for split in (2, 3)),
    *(Tile(128, 128, 128, warps=8, stages=6, split=split) for split in (2, 3, 6)),
    *(Tile(64, 128, 128, warps=4, stages=8, split=split) for split in (2, 3)),
    *(Tile(64, 64, 256, warps=4, stages=6, split=split) for split in (2, 8, 16)),
    *(Tile(16, 64, 256, warps=4, stages=6, split=split) for split in (2, 8)),
)
#: The most stages of a configuration whose steps are shortened.
_MOST_STAGES = 8
# The only configuration of a schedule without tiles.
_ELEMENT = Tile(1, 1, 1, warps=1, stages=1)


def defaults(v: Variant) -> tuple[Tile, ...]:
    """The configurations for a variant's schedule, types, layout and product, largest tile first."""
    # Tiles of a symmetric result are at least as wide as high.
    wide = (replace(x, m=min(x.m, x.n), n=max(x.m, x.n)) if v.symmetric else x for x in _ungated(v))
    narrowed = (replace(tile, group=min(tile.group, widest_band(v, tile))) for tile in wide)
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


def _ungated(v: Variant) -> tuple[Tile, ...]:
    """The configurations of a product in which C has as many columns as B."""
    schedule, dtype = v.schedule, v.multiplied.dtype
    bits = dtype.stored_a.multiplied_bits
    if not v.traits.tiled:
        return (_ELEMENT,)
    if not v.traits.looped:
        return _TABLES["naive"][: 4 if bits == 32 else None]
    if dtype.native:
        return divided(_TABLES["scaled"]) if v.traits.splits else _TABLES["scaled"]
    if v.traits.pairs:
        return _of_several(v, bits)
    if dtype.stored_b.converted or any(storage.scales_sums for storage in dtype.stored):
        return _stored(v)
    own = _of_32_bits(v) if bits == 32 else None
    if own is not None:
        return own
    if v.traits.splits:
        return _SPLIT_8 if bits == 8 else divided(_TABLES["split_k"])
    if v.product == "exchanged":
        return _of_bits(bits, _TABLES["exchanged"]) + (_TABLES["exchanged of 8 bits"] if bits == 8 else ())
    # Nothing was measured of a schedule without a table: those of the schedule that does the same by its traits.
    alike = "persistent" if v.traits.walks_tiles else "stream_k" if v.traits.walks_steps else "tiled"
    tiles = _of_bits(bits, _TABLES.get(schedule, _TABLES[alike]))
    if v.traits.plain and v.loading.descriptors:
        return (*tiles, *(_TABLES["promoted"] if dtype.precision == "full" else ()), *_deep(v))
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
    tiles = _of_bits(bits, _of_product(v, v.schedule))
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


def _of_32_bits(v: Variant) -> tuple[Tile, ...] | None:
    """The configurations for a variant with fp32 operands; None if those of 16 bits do, with the same bytes along K."""
    precision, exchanged = v.multiplied.dtype.precision, v.product == "exchanged"
    if v.product == "summed":
        by_row = v.layout.b == "row"
        tiles = _TABLES["summed by row" if by_row else "summed"]
        return divided(tiles, (4, 16, 32) if by_row else (2, 4, 8)) if v.traits.splits else tiles
    if precision == "tf32x3" and v.traits.splits:
        return (*divided(_TABLES["tf32x3 split_k"]), Tile(16, 64, 64, warps=4, stages=3, split=16))
    if v.traits.divides_k:
        of_fp32 = _TABLES["fp32 exchanged"][1::2] if exchanged else _TABLES["fp32"][3:]
        tiles = of_fp32 if precision == "ieee" else _TABLES["tf32 stream_k"]
        return divided(tiles) if v.traits.splits else tiles
    if precision == "ieee":
        # A kernel in front makes B row-major, which pays for many rows of C.
        return _of_product(v, "fp32")[: -1 if v.traits.decodes else None]
    if not v.traits.plain:
        return None
    if precision == "tf32x3":
        return None if exchanged else _TABLES["tf32x3"]
    if through_registers(v):
        return _of_product(v, "tf32 registers")
    return None if (v.layout.a, v.layout.b) == ("row", "column") else _TABLES["tf32 transposed"]


def _deep(v: Variant) -> tuple[Tile, ...]:
    """The configurations with as many stages as fit: one less if the result is staged in shared memory."""
    tiles = _of_bits(v.dtype.stored_a.multiplied_bits, _TABLES["deep"])
    return tuple(replace(tile, stages=tile.stages - 1) for tile in tiles) if staged(v) else tiles
