"""The tile tables that a spec without `tile` gets, per schedule and operand width."""

from __future__ import annotations

from dataclasses import replace

from generator.epilogue.gated_units import INTERLEAVED
from generator.epilogue.operations import COLUMNS, HALVES, ROWS
from generator.language.model import Tile, Variant
from generator.language.vocabulary import ELEMENTS
from generator.plan.memory import staged
from generator.plan.resources import through_registers

# 16-bit operands: the rows that won at some size between 8 and 8192 rows in a sweep of 17 on an H200.
_TILED_16 = (
    Tile(128, 128, 64, warps=4, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(64, 128, 64, warps=4, stages=4),
    Tile(64, 128, 128, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=4),
    Tile(16, 32, 256, warps=4, stages=4),
)
# By descriptors, where a multiprocessor has one program: it takes in 64 bytes a cycle with some 200 KB under way, which
# takes all of its memory. Each won at some of 12 sizes of 128 to 2048 rows on an H200, by up to a quarter.
_DEEP_16 = (
    Tile(128, 128, 64, warps=4, stages=6),
    Tile(64, 128, 64, warps=4, stages=9),
    Tile(64, 64, 128, warps=4, stages=7),
)
# One program a multiprocessor fills the device's matrix units with a larger tile, in bands that the L2 holds.
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
# Few rows of C, whose columns fill the matrix unit: deep stages keep the memory busy.
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
# With 8 bits the same bytes are fewer stages of a longer K; some of these win at 1 to 128 rows on an H200.
_EXCHANGED_8 = (
    Tile(16, 64, 256, warps=4, stages=8),
    Tile(16, 64, 128, warps=4, stages=10),
    Tile(16, 128, 256, warps=4, stages=5),
    Tile(64, 64, 128, warps=4, stages=8),
    Tile(64, 128, 128, warps=4, stages=8),
)
# Two widths side by side, for a grid that is a little more than a wave of powers of two: rows that were among the best
# at some of 16 such sizes on an H200, most of them by one program a multiprocessor with many loads in flight.
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
# The steps of all tiles shared out: a tile that fills a multiprocessor, smaller ones where that leaves too few steps.
_STREAM_16 = (
    Tile(128, 256, 64, warps=8, stages=3),
    Tile(128, 128, 64, warps=4, stages=4),
    Tile(64, 128, 128, warps=4, stages=4),
    Tile(64, 64, 128, warps=4, stages=4),
    Tile(16, 64, 128, warps=4, stages=4),
)
# The tables of each schedule by the bits of an element; other widths have the same bytes along K.
_TABLES = {
    name: {bits: tuple(replace(tile, k=tile.k * 16 // bits) for tile in rows) for bits in (8, 16, 32)}
    for name, rows in (
        ("tiled", _TILED_16),
        ("deep", _DEEP_16),
        ("persistent", _PERSISTENT_16),
        ("paired", _PAIRED_16),
        ("stream_k", _STREAM_16),
        ("exchanged", _EXCHANGED_16),
    )
}
# tf32 with both operands across K: Hopper's `wgmma` would have them turned around on the way to it, which takes longer
# than the older instruction, that two warps or 32 rows leave the compiler with.
_TURNED_TF32 = (
    Tile(64, 128, 32, warps=2, stages=3),
    Tile(128, 64, 32, warps=2, stages=4),
    Tile(64, 64, 32, warps=2, stages=3),
    Tile(32, 128, 32, warps=4, stages=3),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 32, 128, warps=4, stages=4),
)
# With the operand of the rows across K and the other along it, `wgmma` takes that from registers; the older instruction
# is left to few rows of C.
_HELD_TF32 = (
    Tile(128, 256, 32, warps=8, stages=4),
    Tile(128, 128, 32, warps=8, stages=6),
    Tile(128, 128, 32, warps=4, stages=6),
    Tile(64, 128, 64, warps=4, stages=4),
    Tile(64, 64, 64, warps=4, stages=6),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 32, 128, warps=4, stages=4),
)
# The same exchanged: the rows of the matrix unit are columns of C.
_HELD_EXCHANGED_TF32 = (
    *(replace(tile, m=tile.n, n=tile.m) for tile in _HELD_TF32[:5]),
    Tile(32, 64, 64, warps=4, stages=6),
    Tile(16, 64, 64, warps=4, stages=8),
)
# fp32 without tf32 runs on the scalar units: registers bound the tile, not the matrix unit.
_TILED_FP32 = (
    Tile(128, 128, 16, warps=4, stages=3),
    Tile(128, 64, 16, warps=4, stages=3),
    Tile(64, 64, 16, warps=2, stages=3),
    Tile(32, 64, 32, warps=4, stages=3),
    Tile(16, 32, 64, warps=2, stages=3),
)


def _split(tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """Each tile with its K divided over 2, 4 and 8 programs."""
    return tuple(replace(tile, split=split) for tile in tiles for split in (2, 4, 8))


# K divided: for products of few tiles and a long K.
_SPLIT_16 = _split(
    (
        Tile(128, 128, 64, warps=4, stages=4),
        Tile(64, 128, 128, warps=4, stages=4),
        Tile(64, 64, 128, warps=4, stages=4),
        Tile(16, 64, 128, warps=4, stages=4),
    )
)
_SPLIT = {bits: tuple(replace(tile, k=tile.k * 16 // bits) for tile in _SPLIT_16) for bits in (8, 16)}
# fp32 and three products in tf32 hold their operands in registers, beside a sum that is handed in: smaller tiles.
_STREAM_TF32 = (
    Tile(64, 128, 32, warps=4, stages=4),
    Tile(64, 64, 64, warps=4, stages=4),
    Tile(16, 64, 64, warps=4, stages=4),
)
_STREAM_FP32 = (Tile(64, 64, 16, warps=4, stages=3), *_TILED_FP32[3:])
# All of K in one load: k is the largest K that the row takes.
_NAIVE_16 = (
    Tile(32, 32, 64, warps=4, stages=1),
    Tile(32, 32, 128, warps=4, stages=1),
    Tile(32, 32, 256, warps=4, stages=1),
    Tile(32, 32, 512, warps=4, stages=1),
    Tile(32, 32, 1024, warps=8, stages=1),
)
_NAIVE_32 = _NAIVE_16[:4]

# The one row of a schedule that has no tile.
_ELEMENT = Tile(1, 1, 1, warps=1, stages=1)


def defaults(v: Variant) -> tuple[Tile, ...]:
    """The table for a variant's schedule, types, layout and product, largest tile first."""
    rows = tuple(row for row in _whole(v) if not _spills(v, row))
    if v.epilogue.order is None or not v.traits.tiled:
        return rows
    # Two columns of B for each of C: as much of B and of the sums as half the columns of another product.
    return tuple(dict.fromkeys(_halved(v, row) for row in rows))


def _spills(v: Variant, row: Tile) -> bool:
    """Whether the threads of a program that walks tiles have too few registers for a row.

    With vectors in the chain and sums along both sides of a tile, 128 elements a thread spill up to 4 KB by ptxas for
    sm90, and 64 next to nothing; without one of the three 128 spill less than 1 KB, most of them nothing.
    """
    reduced = {output.shape for output in v.epilogue.outputs if output.tap.reduction}
    vectors = any(operand.shape in (ROWS, COLUMNS, HALVES) for operand in v.epilogue.operands)
    return v.traits.walks_tiles and len(reduced) == 2 and vectors and row.m * row.n >= 128 * 32 * row.warps


def _halved(v: Variant, row: Tile) -> Tile:
    least = 16
    if v.product == "exchanged":
        least = 32 if v.epilogue.order == INTERLEAVED else 64
    return replace(row, n=row.n // 2) if row.n // 2 >= least else replace(row, k=max(row.k // 2, 32))


def _whole(v: Variant) -> tuple[Tile, ...]:
    """The table for a product with as many columns as B."""
    schedule, dtype = v.schedule, v.dtype
    bits = ELEMENTS[dtype.a].bits
    if not v.traits.tiled:
        return (_ELEMENT,)
    if not v.traits.looped:
        return _NAIVE_32 if bits == 32 else _NAIVE_16
    ieee = dtype.precision == "ieee"
    if bits == 32 and v.traits.divides_k:
        rows = _STREAM_FP32 if ieee else _STREAM_TF32
        return _split(rows) if v.traits.splits else rows
    if v.traits.splits:
        return _SPLIT[bits]
    if ieee:
        return _TILED_FP32
    if v.traits.plain and through_registers(v):
        return _HELD_EXCHANGED_TF32 if v.product == "exchanged" else _HELD_TF32
    if v.traits.plain and dtype.precision == "tf32" and (v.layout.a, v.layout.b) != ("row", "column"):
        return _TURNED_TF32
    if v.product == "exchanged":
        return _TABLES["exchanged"][bits] + (_EXCHANGED_8 if bits == 8 else ())
    return _TABLES[schedule][bits] + (_deep(v) if v.traits.plain and v.load == "descriptor" else ())


def _deep(v: Variant) -> tuple[Tile, ...]:
    """The rows of as many stages as there is room for: a result with a tile of its own takes that of one."""
    rows = _TABLES["deep"][ELEMENTS[v.dtype.a].bits]
    return tuple(replace(row, stages=row.stages - 1) for row in rows) if staged(v) else rows
