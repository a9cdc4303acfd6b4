"""Tiles of two and three blocks: what a spec may ask of them, and which rows they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generator.emit.render import kernel_sources
from generator.language.built_in import BUILT_IN, chain_of
from generator.language.dtypes import DTYPE_SHORTHANDS
from generator.language.model import Dtype, Tile, Variant
from generator.lowering.kernel_lowering import view
from generator.plan import default_configurations, legality
from generator.plan.configurations import row_of_tile
from generator.plan.resources import heights, matrix_instruction, tensor_memory, widths
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import BASE, family_of, mistakes_of, variant

PAIRED = BASE + "schedule: paired\nload: descriptor\nstore: pointer\n"


BLOCKS = Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]})
COLUMNS = Dtype.of("fp8e4m3").scaled_by({"a": [1, 0], "b": [0, 1]})
WEIGHTS = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]})


def paired(**axes: object) -> Variant:
    return variant(**({"schedule": "paired", "load": "descriptor", "store": "pointer"} | axes))


@pytest.mark.parametrize(("n", "left", "right"), [(160, 128, 32), (192, 128, 64), (48, 32, 16), (144, 128, 16)])
def test_the_wider_part_is_at_the_left(n: int, left: int, right: int) -> None:
    tile = Tile(64, n, 64, warps=4)
    assert widths(paired(), tile) == (left, right)
    assert legality.why_no_row(paired(), tile) is None


@pytest.mark.parametrize("size", [size for size in range(16, 273, 16) if size.bit_count() in (2, 3)])
def test_the_blocks_of_a_size_are_powers_of_two_from_16_on(size: int) -> None:
    schedule = {2: "paired", 3: "tripled"}[size.bit_count()]
    columns, rows = paired(schedule=schedule), paired(schedule=f"{schedule}_m", product="exchanged")
    wide, high = Tile(64, size, 64, warps=8), Tile(size, 64, 64, warps=8)
    blocks = widths(columns, wide)
    assert blocks == heights(rows, high) == tuple(sorted(blocks, reverse=True)) and sum(blocks) == size
    assert all(block.bit_count() == 1 and block >= 16 for block in blocks)
    assert legality.why_no_row(columns, wide) is None and legality.why_no_row(rows, high) is None
    row = row_of_tile(rows, high)
    assert [row[name] for name in rows.traits.columns] == list(blocks[:-1])


@pytest.mark.parametrize(
    ("schedule", "n", "reason"),
    [
        ("paired", 128, "n is 128, and paired needs a sum of two different powers of two, such as 160 = 128 + 32"),
        ("paired", 1, "n is 1, and paired needs a sum of two different powers of two, such as 160 = 128 + 32"),
        (
            "paired",
            208,
            "n is 208, and paired needs a sum of two different powers of two, such as 160 = 128 + 32; use tripled",
        ),
        (
            "tripled",
            160,
            "n is 160, and tripled needs a sum of three different powers of two, such as 208 = 128 + 64 + 16; "
            "use paired",
        ),
        ("paired_m", 160, "n is 160, and paired_m needs a power of two"),
        ("paired", 136, "m and n are 64 and 128 + 8, and the matrix unit needs at least 16 of each"),
        ("tiled", 160, "n is 160, and tiled needs a power of two; use paired"),
        ("split_k", 96, "n is 96, and split_k needs a power of two; use paired"),
    ],
)
def test_a_row_that_the_schedule_cannot_have_is_refused(schedule: str, n: int, reason: str) -> None:
    m = 80 if schedule == "paired_m" else 64
    assert legality.why_no_row(paired(schedule=schedule), Tile(m, n, 64, warps=4)) == reason


def test_rows_of_a_direct_product_are_multiplied_by_one_instruction() -> None:
    told = "m is 64 + 16, and the matrix unit of sm90 has 64 rows; use 'product: exchanged'"
    few, many = Tile(80, 128, 64, warps=4), Tile(192, 128, 64, warps=8)
    direct, exchanged = paired(schedule="paired_m"), paired(schedule="paired_m", product="exchanged")
    assert legality.why_no_row_on(direct, few, "sm90") == told
    assert legality.why_no_row_on(direct, many, "sm90") is None
    assert legality.why_no_row_on(exchanged, few, "sm90") is None
    assert legality.why_no_row_on(paired(schedule="paired_m", load="pointer"), few, "sm80") is None


@pytest.mark.parametrize(
    ("n", "reason"),
    [
        (128, None),
        (192, None),
        (256, None),
        (160, "n is 128 + 32, too few columns of C for the 64 rows of the matrix unit in an exchanged product"),
        (64, "n is 32 + 32, too few columns of C for the 64 rows of the matrix unit in an exchanged product"),
    ],
)
def test_each_width_of_an_exchanged_product_fills_the_rows_of_the_matrix_unit(n: int, reason: str | None) -> None:
    assert legality.why_no_row(paired(product="exchanged"), Tile(64, n, 64, warps=4)) == reason


def test_the_widths_of_an_exchanged_tile_share_a_scale_of_b() -> None:
    blocks = paired(product="exchanged", dtype=BLOCKS)
    assert legality.why_not(blocks) is None
    assert legality.why_no_row(blocks, Tile(128, 128, 128, warps=4)) is None
    assert legality.why_not_on(blocks, "sm90") is None
    assert "use tiled or persistent" in (legality.why_not_on(blocks, "sm100") or "")
    assert legality.why_not_on(paired(product="exchanged", dtype=Dtype.of("fp8e4m3")), "sm100") is None
    stored = "{a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}"
    family = family_of(PAIRED.replace("fp16", stored) + "product: exchanged\n")
    (source,) = kernel_sources(family.spec, family.kernels)
    assert "acc_left += tl.dot(b_left.T, a.T) * (a_scale * b_scale)[None, :]" in source
    assert source.count("tl.load(b_scale_ptrs") == 2


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"store": "as_load"}, "use 'store: pointer'"),
        ({"dtype": Dtype.of("fp32")}, "too few for two products; use tiled"),
        ({"load": "block_pointer"}, "paired handles no block pointers"),
    ],
)
def test_what_it_cannot_be_combined_with_is_told(axes: dict[str, object], words: str) -> None:
    assert words in (legality.why_not(paired(**axes)) or "")
    assert legality.why_not(paired()) is None


@pytest.mark.parametrize("schedule", ["paired", "paired_m", "tripled", "tripled_m"])
@pytest.mark.parametrize(
    "axes",
    [
        {"load": "pointer"},
        {"dtype": BLOCKS},
        {"dtype": COLUMNS},
        {"dtype": WEIGHTS, "product": "exchanged"},
        {"batch": "strided"},
        {"batch": "grouped"},
        {"epilogue": chain_of(("swiglu",))},
        {"epilogue": chain_of(("save",))},
    ],
    ids=str,
)
def test_what_blocks_may_be_combined_with(schedule: str, axes: dict[str, object]) -> None:
    v = paired(schedule=schedule, **axes)
    assert legality.why_not(v) is None and legality.why_not_on(v, "sm90") is None
    rows = default_configurations.defaults(v)
    assert rows and all(legality.why_no_row(v, row) is None for row in rows)
    assert any(legality.why_no_row_on(v, row, "sm90") is None for row in rows)


def test_sums_over_a_tile_are_refused() -> None:
    reason = "row_sum is reduced tile by tile, and a tile of paired has several accumulators; use tiled"
    told = mistakes_of(PAIRED.replace("paired", "[paired, tiled]") + "epilogue: bias+row_sum\n")
    assert told == [f"family.yaml:4:12: schedule: 'paired' survives in no variant: {reason}"]


def test_rows_of_one_table_go_to_the_schedules_that_can_have_them() -> None:
    rows = "tile: [{m: 64, n: 160, k: 64, warps: 4}, {m: 64, n: 128, k: 64, warps: 4}]\n"
    family = family_of(PAIRED.replace("paired", "[paired, tiled]") + rows)
    found = {kernel.variant.schedule: [tile.n for tile in kernel.tiles] for kernel in family.kernels}
    assert found == {"paired": [160], "tiled": [128]}
    (one,) = (kernel for kernel in family.kernels if kernel.variant.schedule == "paired")
    assert '"BLOCK_N": 160, "BLOCK_K": 64, "GROUP_M": 8, "LEFT_N": 128' in view(one).configs.partition("\n")[0]


@pytest.mark.parametrize(("n", "nearest"), [(240, "224, 256"), (478, "448, 512"), (15, "8, 16"), (100, "96, 112")])
def test_four_powers_of_two_and_narrow_ones_are_told_at_their_place(n: int, nearest: str) -> None:
    wanted = f"expected a power of two, or two or three together, as 208 is, found {n}; nearest: {nearest}"
    rows = f"tile: [{{m: 64, n: {n}, k: 64, warps: 4}}]\n", f"tile: [{{m: {n}, n: 64, k: 64, warps: 4}}]\n"
    assert mistakes_of(PAIRED + rows[0]) == [f"family.yaml:7:19: tile.n: {wanted}"]
    assert mistakes_of(PAIRED + rows[1]) == [f"family.yaml:7:12: tile.m: {wanted}"]


TILES = """tile:
  - {m: 272, n: 128, k: 64, warps: 8, stages: 4}
  - {m: 208, n: 128, k: 64, warps: 8, stages: 5}
  - {m: 128, n: 160, k: 64, warps: 4, stages: 5}
  - {m: 128, n: 208, k: 64, warps: 8, stages: 5}
"""


def test_paired_asks_for_the_schedule_of_each_row() -> None:
    family = family_of(PAIRED + "product: [exchanged, direct]\ntargets: [sm90]\n" + TILES)
    found = {
        (kernel.variant.schedule, kernel.variant.product): [(tile.m, tile.n) for tile in kernel.tiles]
        for kernel in family.kernels
    }
    assert found == {
        ("paired_m", "exchanged"): [(272, 128)],
        ("tripled_m", "exchanged"): [(208, 128)],
        ("paired", "direct"): [(128, 160)],
        ("tripled", "direct"): [(128, 208)],
    }


def test_what_excludes_paired_excludes_what_its_rows_ask_for() -> None:
    text = PAIRED + "product: [exchanged, direct]\ntargets: [sm90]\n" + TILES
    text += "exclude: [{schedule: paired, product: exchanged, because: of this}]\n"
    told = mistakes_of(text)
    assert len(told) == 3 and "product: 'exchanged' survives in no variant: excluded: of this" in told[0]
    assert "tile: no target can run this configuration: m is 256 + 16" in told[1]


def test_a_row_of_whole_columns_is_two_equal_halves_of_an_exchanged_product() -> None:
    rows = "tile: [{m: 128, n: 128, k: 64, warps: 4}, {m: 144, n: 64, k: 64, warps: 4}]\n"
    family = family_of(PAIRED + "product: exchanged\ntargets: [sm90]\n" + rows)
    found = {kernel.variant.schedule: [(tile.m, tile.n) for tile in kernel.tiles] for kernel in family.kernels}
    assert found == {"paired": [(128, 128)], "paired_m": [(144, 64)]}


def test_a_schedule_that_is_named_itself_is_not_asked_for_twice() -> None:
    rows = "tile: [{m: 64, n: 160, k: 64, warps: 4}, {m: 64, n: 208, k: 64, warps: 4}]\n"
    family = family_of(PAIRED.replace("paired", "[paired, tripled]") + rows)
    assert [kernel.variant.schedule for kernel in family.kernels] == ["paired", "tripled"]


def test_each_block_has_its_own_load_product_and_store() -> None:
    rows = TILES.replace("- {m: 128", "# {").replace("- {m: 272", "# {")
    family = family_of(PAIRED + f"product: exchanged\ntargets: [sm90]\nepilogue: bias_m\n{rows}")
    (source,) = kernel_sources(family.spec, family.kernels)
    for statement in (
        "bottom_row = row + TOP_M + MIDDLE_M",
        "a_middle = a_middle_desc.load([middle_row, k])",
        "acc_bottom = tl.dot(b.T, a_bottom.T, acc_bottom)",
        '"a_bottom_desc": described(a, BLOCK_M - TOP_M - MIDDLE_M, BLOCK_K),',
        "offs_m = pid_m * BLOCK_M + TOP_M + tl.arange(0, MIDDLE_M)",
    ):
        assert source.count(statement) == 1, statement
    assert source.count("bias_m = tl.load(") == source.count("tl.store(") == 3


@pytest.mark.parametrize("schedule", ["paired", "paired_m", "tripled", "tripled_m"])
@pytest.mark.parametrize("product", ["direct", "exchanged"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPE_SHORTHANDS if dtype != "fp32"])
def test_every_row_of_its_tables_fits_the_reference_device(dtype: str, product: str, schedule: str) -> None:
    v = paired(dtype=Dtype.of(dtype), product=product, schedule=schedule)
    rows = default_configurations.defaults(v)
    assert rows and all(legality.why_no_row(v, row) is None for row in rows)
    if dtype != "tf32x3":
        assert all(legality.why_no_row_on(v, row, "sm90") is None for row in rows)
    assert {matrix_instruction(v, row, "sm90") for row in rows} == {"wgmma"}


def test_its_sums_take_the_memory_of_their_own_widths() -> None:
    wide, half = Tile(128, 160, 64, warps=4, stages=4), Tile(64, 160, 64, warps=4, stages=4)
    assert tensor_memory(paired(), wide, "sm100") == 256 and tensor_memory(paired(), half, "sm100") == 128
    one = shared_memory(paired(schedule="tiled"), Tile(128, 128, 64, warps=4, stages=4), "sm90")
    assert shared_memory(paired(), wide, "sm90") == one + 32 * 64 * 2 * 4
    # Two sums of 64 rows share columns, one of 128 rows and one of 64 do not.
    rows = [tensor_memory(paired(product="exchanged"), replace(half, n=n), "sm100") for n in (128, 192)]
    assert rows == [64, 128]


def test_most_operations_stand_in_its_epilogues() -> None:
    there = {name for name in BUILT_IN if legality.why_not(paired(epilogue=chain_of((name,)))) is None}
    assert set(BUILT_IN) - there == {"row_sum", "col_sum", "row_amax", "a_sum", "b_sum", "amax", "quantize"}


@pytest.mark.parametrize(
    ("words", "tile", "schedule"),
    [
        ("schedule: paired\nproduct: exchanged\ntargets: [sm90]", "{m: 80, n: 64, k: 64, warps: 4}", "paired_m"),
        ("schedule: paired", "{m: 64, n: 208, k: 32, warps: 4}", "tripled"),
        ("schedule: split_k", "{m: 64, n: 192, k: 64, warps: 4, split: 3}", "split_k_paired"),
    ],
)
def test_gradients_have_the_schedule_that_a_row_asks_for(words: str, tile: str, schedule: str) -> None:
    family = family_of(f"{BASE}{words}\nbackward: kernels\ntile: [{tile}]\n")
    assert {kernel.variant.schedule for kernel in family.kernels} == {schedule}
    assert {kernel.variant.contract for kernel in family.kernels} > {"gemm_fp16_rcr_none"}
