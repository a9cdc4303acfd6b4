"""The configurations of fp32 operands: in full precision, as tf32, and as three products in tf32."""

from __future__ import annotations

from dataclasses import replace

from generator.language.model import Tile, Variant
from generator.plan.configurations import divided
from generator.plan.resources import through_registers

# tf32 with an operand that is not contiguous along K and that Hopper's `wgmma` cannot read from registers: transposing
# it for `wgmma` takes longer than `mma.sync`, which the compiler uses for two warps or fewer than 64 rows.
_TRANSPOSED_TF32 = (
    Tile(64, 128, 32, warps=2, stages=3),
    Tile(128, 64, 32, warps=2, stages=4),
    Tile(64, 64, 32, warps=2, stages=3),
    Tile(32, 128, 32, warps=4, stages=3),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 32, 128, warps=4, stages=4),
)
# tf32 where only the operand of the matrix unit's rows is not contiguous along K: `wgmma` reads that operand from
# registers, and each step waits for its products. Each of the first was the fastest, or up to 2 % behind it, at one or
# more of 10 sizes with M from 64 to 4096 on an H200. The last two, for few rows of C, use `mma.sync`.
_REGISTER_TF32 = (
    Tile(128, 128, 32, warps=8, stages=4),
    Tile(128, 128, 32, warps=4, stages=4),
    Tile(64, 128, 64, warps=4, stages=4),
    Tile(64, 64, 64, warps=4, stages=6),
    Tile(64, 64, 64, warps=4, stages=4),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 32, 128, warps=4, stages=4),
)
# The same for an exchanged product, where the rows of the matrix unit are columns of C.
_REGISTER_EXCHANGED_TF32 = (
    *(replace(tile, m=tile.n, n=tile.m) for tile in _REGISTER_TF32[:5]),
    Tile(32, 64, 64, warps=4, stages=6),
    Tile(16, 64, 64, warps=4, stages=8),
)
# Three products in tf32: a step divides its operands into high and low parts, in registers, so that several programs
# on a multiprocessor gain more than a large tile. Each was the fastest, or near it, at some of 12 sizes on an H100.
_TILED_TF32X3 = (
    Tile(128, 128, 32, warps=8, stages=3),
    Tile(64, 128, 64, warps=4, stages=2),
    Tile(64, 128, 32, warps=4, stages=3),
    Tile(128, 64, 32, warps=4, stages=3),
    Tile(64, 64, 64, warps=4, stages=3),
    Tile(64, 64, 64, warps=4, stages=2),
    Tile(64, 64, 32, warps=4, stages=3),
    Tile(32, 64, 64, warps=4, stages=3),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 128, 32, warps=4, stages=3),
    Tile(16, 64, 64, warps=4, stages=3),
    Tile(16, 64, 32, warps=2, stages=3),
    Tile(16, 32, 128, warps=4, stages=3),
)
# fp32 without tf32 does not use the matrix unit: the number of registers limits the tile.
_TILED_FP32 = (
    Tile(128, 128, 32, warps=8, stages=3),
    Tile(128, 128, 16, warps=4, stages=3),
    Tile(64, 128, 32, warps=4, stages=3),
    Tile(64, 64, 16, warps=2, stages=3),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 32, 64, warps=2, stages=3),
)
# A kernel in front makes B row-major, which pays for many rows of C.
_DECODED_FP32 = _TILED_FP32[:-1]
_EXCHANGED_FP32 = (
    Tile(64, 128, 32, warps=4, stages=3),
    Tile(64, 64, 16, warps=2, stages=3),
    Tile(32, 128, 32, warps=4, stages=3),
    Tile(32, 64, 32, warps=2, stages=3),
    Tile(16, 64, 64, warps=4, stages=3),
    Tile(16, 64, 64, warps=2, stages=4),
)

# Lanes share K, for few rows of C: each tile was the fastest, or near it, at some of 15 sizes with M from 1 to 17 on an
# H100. Where B is row-major, lanes share its columns too.
_SUMMED = (
    Tile(8, 8, 128, warps=4, stages=3),
    Tile(8, 4, 256, warps=4, stages=3),
    Tile(4, 8, 128, warps=4, stages=3),
    Tile(4, 4, 128, warps=4, stages=3),
    Tile(2, 8, 256, warps=4, stages=3),
    Tile(1, 16, 256, warps=4, stages=3),
    Tile(1, 8, 256, warps=4, stages=3),
    Tile(1, 4, 512, warps=4, stages=3),
)
_SUMMED_BY_ROW = (
    Tile(8, 64, 16, warps=4, stages=1),
    Tile(2, 64, 32, warps=4, stages=1),
    Tile(2, 128, 16, warps=4, stages=1),
    Tile(1, 128, 32, warps=4, stages=1),
    Tile(1, 128, 16, warps=4, stages=1),
    Tile(1, 32, 128, warps=4, stages=1),
)
# fp32 and tf32x3 hold their operands in registers, beside a partial sum for the workspace: the tiles are smaller.
_STREAM_TF32 = (
    Tile(64, 128, 32, warps=4, stages=4),
    Tile(64, 64, 64, warps=4, stages=4),
    Tile(16, 64, 64, warps=4, stages=4),
)
_STREAM_FP32 = _TILED_FP32[3:]
_STREAM_EXCHANGED_FP32 = _EXCHANGED_FP32[1::2]
_SPLIT_TF32X3 = (
    *divided(
        (
            Tile(64, 64, 64, warps=4, stages=2),
            Tile(64, 64, 32, warps=4, stages=3),
            Tile(32, 64, 64, warps=4, stages=3),
            Tile(16, 64, 64, warps=4, stages=3),
        )
    ),
    Tile(16, 64, 64, warps=4, stages=3, split=16),
)


def of_32_bits(v: Variant) -> tuple[Tile, ...] | None:
    """The configurations for a variant with fp32 operands; None if those of 16 bits do, with the same bytes along K."""
    precision, exchanged = v.multiplied.dtype.precision, v.product == "exchanged"
    tiles: tuple[Tile, ...]
    if v.product == "summed":
        by_row = v.layout.b == "row"
        tiles = _SUMMED_BY_ROW if by_row else _SUMMED
        return divided(tiles, (4, 16, 32) if by_row else (2, 4, 8)) if v.traits.splits else tiles
    if precision == "tf32x3" and v.traits.splits:
        return _SPLIT_TF32X3
    if v.traits.divides_k:
        of_fp32 = _STREAM_EXCHANGED_FP32 if exchanged else _STREAM_FP32
        tiles = of_fp32 if precision == "ieee" else _STREAM_TF32
        return divided(tiles) if v.traits.splits else tiles
    if precision == "ieee":
        return _EXCHANGED_FP32 if exchanged else _DECODED_FP32 if v.traits.decodes else _TILED_FP32
    if not v.traits.plain:
        return None
    if precision == "tf32x3":
        return None if exchanged else _TILED_TF32X3
    if through_registers(v):
        return _REGISTER_EXCHANGED_TF32 if exchanged else _REGISTER_TF32
    return None if (v.layout.a, v.layout.b) == ("row", "column") else _TRANSPOSED_TF32
