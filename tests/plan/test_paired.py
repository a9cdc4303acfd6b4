"""Tiles of two and three blocks, with a whole K and a divided one: what a spec may ask of them, and their rows."""

from dataclasses import replace

import pytest

from generator.emit.render import kernel_source
from generator.language.built_in import BUILT_IN, chain_of
from generator.language.dtypes import DTYPE_SHORTHANDS
from generator.language.model import Dtype, Tile
from generator.plan import default_configurations, legality
from generator.plan.configurations import row_of_tile
from generator.plan.resources import heights, matrix_instruction, tensor_memory, widths
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import BASE, family_of, variant


def paired(**axes):
    return variant(**({"schedule": "paired", "load": "descriptor", "store": "pointer"} | axes))


@pytest.mark.parametrize("size", [size for size in range(16, 273, 16) if size.bit_count() in (2, 3)])
def test_the_blocks_of_a_size_are_powers_of_two_from_16_on(size):
    schedule = {2: "paired", 3: "tripled"}[size.bit_count()]
    columns, rows = paired(schedule=schedule), paired(schedule=f"{schedule}_m", product="exchanged")
    wide, high = Tile(64, size, 64, warps=8), Tile(size, 64, 64, warps=8)
    blocks = widths(columns, wide)
    assert blocks == heights(rows, high) == tuple(sorted(blocks, reverse=True)) and sum(blocks) == size
    assert all(block.bit_count() == 1 and block >= 16 for block in blocks)
    assert legality.why_no_row(columns, wide) is None and legality.why_no_row(rows, high) is None
    row = row_of_tile(rows, high)
    assert [row[name] for name in rows.traits.sizes_of_blocks] == list(blocks[:-1])


def test_the_widths_of_an_exchanged_tile_share_a_scale_of_b():
    blocks = paired(product="exchanged", dtype=Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]}))
    assert legality.why_not(blocks) is None
    assert legality.why_no_row(blocks, Tile(128, 128, 128, warps=4)) is None
    assert legality.why_not_on(blocks, "sm90") is None
    assert "use tiled or persistent" in (legality.why_not_on(blocks, "sm100") or "")
    assert legality.why_not_on(paired(product="exchanged", dtype=Dtype.of("fp8e4m3")), "sm100") is None


@pytest.mark.parametrize("schedule", ["paired", "paired_m", "tripled", "tripled_m"])
@pytest.mark.parametrize("product", ["direct", "exchanged"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPE_SHORTHANDS if dtype not in ("fp32", "tf32x3")])
def test_every_row_of_its_tables_fits_the_reference_device(dtype, product, schedule):
    v = paired(dtype=Dtype.of(dtype), product=product, schedule=schedule)
    for each in (v, replace(v, schedule=f"split_k_{schedule}")):
        rows = default_configurations.defaults(each)
        assert rows and all(legality.why_no_row_on(each, row, "sm90") is None for row in rows)
        assert {matrix_instruction(each, row, "sm90") for row in rows} == {"wgmma"}


def test_most_operations_stand_in_its_epilogues():
    there = {name for name in BUILT_IN if legality.why_not(paired(epilogue=chain_of((name,)))) is None}
    assert set(BUILT_IN) - there == {"row_sum", "col_sum", "row_amax", "amax", "quantize"}


def test_its_sums_take_the_memory_of_their_own_widths():
    wide, half = Tile(128, 160, 64, warps=4, stages=4), Tile(64, 160, 64, warps=4, stages=4)
    assert tensor_memory(paired(), wide, "sm100") == 256 and tensor_memory(paired(), half, "sm100") == 128
    one = shared_memory(paired(schedule="tiled"), Tile(128, 128, 64, warps=4, stages=4), "sm90")
    assert shared_memory(paired(), wide, "sm90") == one + 32 * 64 * 2 * 4
    # Two sums of 64 rows share columns, one of 128 rows and one of 64 do not.
    rows = [tensor_memory(paired(product="exchanged"), replace(half, n=n), "sm100") for n in (128, 192)]
    assert rows == [64, 128]


SPLIT = BASE + "schedule: split_k\nload: descriptor\nstore: pointer\nproduct: exchanged\ntargets: [sm90]\n"


def rows(*tiles):
    return "tile:\n" + "".join(f"  - {{{tile}, k: 64, warps: 8, stages: 3}}\n" for tile in tiles)


def test_the_loop_needs_as_much_shared_memory_as_where_k_is_whole():
    tile, words = Tile(272, 128, 64, warps=8, stages=4), ("paired_m", "split_k_paired_m")
    whole, divided = (variant(schedule=x, load="descriptor", store="pointer", product="exchanged") for x in words)
    assert shared_memory(divided, tile, "sm90") == shared_memory(whole, tile, "sm90")
    row = row_of_tile(divided, tile)
    assert row["TOP_M"] == 256 and row["SPLIT"] == 4
    assert {tile.split for tile in default_configurations.defaults(divided)} == {2, 3, 4}


@pytest.mark.parametrize("masking", ["none", "k"])
def test_sums_of_blocks_of_columns_are_masked_though_the_tile_divides_n(masking):
    """192 columns are one tile of the first kernel and one and a half of the second."""
    text = SPLIT.replace("exchanged", "direct").replace("load: descriptor\nstore: pointer", f"masking: {masking}")
    family = family_of(text + rows("m: 64, n: 192", "m: 192, n: 64"))
    for kernel in family.kernels:
        source = kernel_source(family.spec, kernel)
        first, _, second = source.partition("_sum(\n    ")
        masked = kernel.variant.schedule == "split_k_paired"
        assert "in_n" not in first and ("in_n = offs_n < N" in second) is masked
