"""Quantised results gone wrong: which columns a scale is found from, and where scales and elements are stored."""

from __future__ import annotations

from ..mutation import Mutation, instead
from .kernels import QUANTISED, QUANTISED_BYTES, QUANTISED_POWERS, QUANTISED_SUMS

SCALED = "block_scale = _scale_e8m0(magnitudes.to(tl.float32, bitcast=True), 7.0)"
COUNTED = "    magnitudes = tl.where(in_n[None, :], magnitudes, 0)"
FOUND = "block_scale = _scale_fp32(magnitudes.to(tl.float32, bitcast=True), 448.0)"
PLACES = "offs_blocks = pid_n * (BLOCK_N // 128) + tl.arange(0, BLOCK_N // 128)"

MUTATIONS = (
    Mutation(
        "a block has the scale of another one of its tile",
        "quantised",
        QUANTISED_BYTES,
        ((SCALED, f"{SCALED}\n    block_scale = tl.flip(block_scale, 1)"),),
        "elements that overflow, or have few bits left; the product with both is wrong",
        says="out_scale: ",
    ),
    Mutation(
        "the scale of another block is stored",
        "quantised",
        QUANTISED_BYTES,
        (("tl.store(out_scale_ptrs, block_scale", "tl.store(out_scale_ptrs, tl.flip(block_scale, 1)"),),
        "values are off by the quotient of two scales",
        says="over the scale",
    ),
    Mutation(
        "the last column has no part in the maximum of the last block",
        "quantised",
        QUANTISED,
        ((COUNTED, "    magnitudes = tl.where((offs_n + 1 < N)[None, :], magnitudes, 0)"),),
        "a last column with the largest magnitude is cut off",
        says="out_scale: ",
    ),
    Mutation(
        "the largest magnitude becomes another number than the type's largest",
        "quantised",
        QUANTISED,
        (instead(FOUND, "448.0", "440.0"),),
        "the largest numbers of the type are not used",
        says="out_scale: ",
    ),
    Mutation(
        "a scale of infinity stands for NaN",
        "quantised",
        QUANTISED,
        ((FOUND, instead(FOUND, "magnitudes", "tl.minimum(magnitudes, 0x7F800000)")[1]),),
        "a block with a NaN looks like one with infinities",
        says="out_scale: ",
    ),
    Mutation(
        "two columns change places in a byte",
        "quantised",
        QUANTISED_BYTES,
        (("quantised = even_columns | (odd_columns << 4)", "quantised = odd_columns | (even_columns << 4)"),),
        "even columns hold the values of odd ones",
        says="over the scale",
    ),
    Mutation(
        "scales are stored for blocks past the last column",
        "quantised",
        QUANTISED_BYTES,
        (("else offs_blocks < tl.cdiv(N, 32)", "else offs_blocks < N"),),
        "the first scales of the next row are overwritten",
        by="bounds",
        says="of out_scale, which has",
    ),
    Mutation(
        "scales are stored as far apart as columns",
        "quantised",
        QUANTISED,
        (instead(PLACES, "pid_n * (BLOCK_N // 128)", "pid_n * BLOCK_N"),),
        "those of the second tile are past the last block",
        by="bounds",
        says="of out_scale, which has",
    ),
    Mutation(
        "each tile stores the scales of the first",
        "quantised",
        QUANTISED,
        (instead(PLACES, "pid_n * (BLOCK_N // 128)", "0"),),
        "all others keep what was there",
        says="over the scale",
    ),
    Mutation(
        "a scale that is a power of two is rounded down",
        "quantised",
        QUANTISED_POWERS,
        (
            (
                "power = (tl.minimum(x.to(tl.int32, bitcast=True), 0x7F800000) + 0x7FFFFF) & 0x7F800000",
                "power = tl.minimum(x.to(tl.int32, bitcast=True), 0x7F800000) & 0x7F800000",
            ),
        ),
        "up to half of the range of a block is cut off",
        says="out_scale: ",
    ),
    Mutation(
        "a block of zeros has a scale of zero",
        "quantised",
        QUANTISED_SUMS,
        (("(_value_fp8e4m3(nearest) < needed)", "(_value_fp8e4m3(nearest) < needed * 0)"),),
        "its elements are NaN",
        says="out_scale: ",
    ),
)
