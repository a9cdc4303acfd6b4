"""Kernels for few rows of fp32, whose K lanes share, and for many rows, which decode B first: tiles, costs."""

import pytest

from generator.cost import analytic
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout, Tile
from generator.plan import default_configurations, legality
from generator.plan.default_configurations import defaults
from generator.plan.devices import DEVICES
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


TILE = Tile(128, 256, 64, warps=8, stages=3)


def stored(word="int4", block=(128, 1), **axes):
    dtype = Dtype("bf16", word, "fp32", "bf16", None).scaled_by({"b": block})
    return variant(schedule="decoded", **({"dtype": dtype} | axes))


def test_what_is_multiplied_is_dense():
    for letters, dense in (("rcr", "rcr"), ("rrr", "rrr"), ("rsr", "rcr")):
        v = stored(layout=Layout.of(letters)).multiplied
        assert v == variant(dtype=Dtype.of("bf16"), layout=Layout.of(dense), schedule="persistent") and v.dtype.plain
    for letters in ("rcr", "csr"):
        # The scalar units read rows of B.
        v = stored(dtype=FP32, layout=Layout.of(letters)).multiplied
        assert v == variant(dtype=FP32, layout=Layout.of(f"{letters[0]}rr"), schedule="persistent")
    whole = variant(schedule="split_k")
    assert whole.multiplied is whole


def test_configurations_are_those_of_large_dense_tiles():
    assert TILE in defaults(stored()) and defaults(stored(block=(32, 1))) == defaults(stored())
    assert all(legality.why_no_row_on(stored(), tile, "sm90") is None for tile in defaults(stored()))
    assert legality.shared_memory(stored(), TILE, "sm90") == legality.shared_memory(stored().multiplied, TILE, "sm90")
    # The kernel that decodes needs memory, too.
    assert legality.shared_memory(stored(), Tile(16, 16, 16, warps=1, stages=1), "sm90") == 32768


def seconds(v, m, tile=TILE):
    row = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "num_stages": tile.stages}
    return analytic.seconds(v, row, (m, 8192, 8192), DEVICES["nvidia_h200"])


def test_its_cost_is_that_of_the_dense_product_and_of_the_bytes_of_both_bs():
    v = stored()
    more = seconds(v, 4096) - seconds(v.multiplied, 4096)
    assert more == pytest.approx(8192 * 8192 * 2.5 / 3.4e12 + 2e-6, rel=0.01)
    assert "K * 2 * N * " in analytic.comparable_body(stored(epilogue=chain_of(("swiglu",))))[-1]
    assert analytic.cost_body(v) == analytic.cost_body(v.multiplied)


def test_it_pays_for_many_rows():
    """On an H200 decoding was faster from about 1024 rows on, and a row-major copy of an fp32 B from about 100."""
    fused, tile = variant(dtype=stored().dtype, product="exchanged"), Tile(128, 64, 128, warps=4)
    assert seconds(stored(), 4096) < seconds(fused, 4096, tile)
    assert seconds(stored(), 64) > seconds(fused, 64, tile)
    tile, as_it_lies = Tile(64, 64, 16, warps=2), variant(dtype=FP32)
    assert seconds(stored(dtype=FP32), 1024, tile) < seconds(as_it_lies, 1024, tile)
    assert seconds(stored(dtype=FP32), 16, tile) > seconds(as_it_lies, 16, tile)
