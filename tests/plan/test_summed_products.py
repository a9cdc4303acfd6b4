"""Products whose K lanes share, for few rows of fp32: which variants, tiles and bands have them."""

import pytest

from generator.language.model import Dtype, Layout, Tile
from generator.plan import default_configurations, legality
from generator.plan.resources import largest_tensor, matrix_instruction, registers_of_sums
from tests.helpers.support import variant

FP32 = Dtype.of("fp32")
SUMMED = variant(dtype=FP32, product="summed")


@pytest.mark.parametrize("schedule", ["tiled", "split_k", "split_k_atomic"])
@pytest.mark.parametrize("target", ["sm80", "sm90", "sm100", "gfx942"])
def test_every_gpu_multiplies_so_without_a_matrix_unit(schedule, target):
    v = variant(dtype=FP32, product="summed", schedule=schedule)
    assert legality.why_not(v) is None and legality.why_not_on(v, target) is None
    tiles = default_configurations.defaults(v)
    assert tiles and all(matrix_instruction(v, tile, target) is None for tile in tiles)
    for tile in tiles:
        assert legality.why_no_row(v, tile) is None and legality.why_no_row_on(v, tile, target) is None, tile


def test_a_tile_may_have_one_row():
    row = Tile(1, 4, 512, warps=4, group=4)
    assert legality.why_no_row(SUMMED, row) is None
    direct = legality.why_no_row(variant(dtype=FP32), row) or ""
    assert direct.startswith("m and n are 1 and 4, and the matrix unit needs at least 16")


def test_each_index_of_a_step_has_a_register():
    tile = Tile(8, 8, 256, warps=4)
    assert registers_of_sums(SUMMED, tile, "sm90") == 8 * 8 * 256 // 128
    assert largest_tensor(SUMMED, tile) == 8 * 8 * 256
    assert "its accumulators need 256 registers per thread" in (
        legality.why_no_row_on(SUMMED, Tile(8, 16, 256, warps=4), "sm90") or ""
    )
    assert "Triton allows 1048576" in (legality.why_no_row(SUMMED, Tile(64, 64, 512, warps=4)) or "")


def test_row_major_columns_are_shared_too():
    by_row = default_configurations.defaults(variant(dtype=FP32, product="summed", layout=Layout.of("rrr")))
    assert min(tile.n for tile in by_row) >= 32
    assert max(tile.n for tile in default_configurations.defaults(SUMMED)) == 16


@pytest.mark.parametrize(
    ("swizzle", "letter"), [("grouped", "n"), ("chiplet", "n"), ("grouped_n", "m"), ("linear", "")]
)
def test_a_default_band_has_no_more_tiles_than_32_bits_count(swizzle, letter):
    v = variant(dtype=FP32, product="summed", swizzle=swizzle)
    assert legality.why_no_row(v, Tile(8, 4, 64, warps=4, group=16)) is None
    if not letter:
        return
    narrow = [tile for tile in default_configurations.defaults(v) if tile.group != 8]
    assert narrow and all(tile.group == (tile.n if letter == "n" else tile.m) for tile in narrow)
