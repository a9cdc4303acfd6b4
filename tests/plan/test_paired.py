"""Tiles of two widths: what a spec may ask of them, and which rows they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generator.emit.render import kernel_sources
from generator.language.built_in import BUILT_IN, chain_of
from generator.language.dtypes import DTYPE_SHORTHANDS
from generator.language.model import Dtype, Tile, Variant
from generator.lowering.kernel_lowering import view
from generator.plan import default_configurations, legality
from generator.plan.resources import matrix_instruction, tensor_memory
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
    assert (tile.left, tile.right) == (left, right)
    assert legality.why_no_row(paired(), tile) is None


@pytest.mark.parametrize(
    ("schedule", "n", "reason"),
    [
        ("paired", 128, "n is 128, and paired needs a sum of two different powers of two, such as 160 = 128 + 32"),
        ("paired", 1, "m and n are 64 and 0 + 1, and the matrix unit needs at least 16 of each"),
        ("paired", 136, "m and n are 64 and 128 + 8, and the matrix unit needs at least 16 of each"),
        ("tiled", 160, "n is 160, and tiled needs a power of two; only tiles of paired have two widths"),
        ("split_k", 96, "n is 96, and split_k needs a power of two; only tiles of paired have two widths"),
    ],
)
def test_a_row_that_the_schedule_cannot_have_is_refused(schedule: str, n: int, reason: str) -> None:
    assert legality.why_no_row(paired(schedule=schedule), Tile(64, n, 64, warps=4)) == reason


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
    told = "n is 256, and a tile of paired has one scale of b, which is for 128"
    assert legality.why_no_row(blocks, Tile(128, 256, 128, warps=4)) == told
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
        ({"load": "pointer"}, "use 'load: descriptor'"),
        ({"store": "as_load"}, "use 'store: pointer'"),
        ({"dtype": Dtype.of("fp32")}, "too few for two products; use tiled"),
        ({"dtype": BLOCKS}, "use 'product: exchanged'"),
        ({"dtype": COLUMNS, "product": "exchanged"}, "share a scale of b, and one is for 1; use tiled"),
        ({"dtype": WEIGHTS, "product": "exchanged"}, "use tiled, persistent or split_k"),
        ({"batch": "strided"}, "use tiled or persistent"),
        ({"epilogue": chain_of(("swiglu",))}, "use tiled or persistent"),
    ],
)
def test_what_it_cannot_be_combined_with_is_told(axes: dict[str, object], words: str) -> None:
    assert words in (legality.why_not(paired(**axes)) or "")
    assert legality.why_not(paired()) is None


def test_sums_over_a_tile_are_refused() -> None:
    reason = "row_sum is reduced tile by tile, and a tile of paired has two accumulators; use tiled"
    told = mistakes_of(PAIRED.replace("paired", "[paired, tiled]") + "epilogue: bias+row_sum\n")
    assert told == [f"family.yaml:4:12: schedule: 'paired' survives in no variant: {reason}"]


def test_rows_of_one_table_go_to_the_schedules_that_can_have_them() -> None:
    rows = "tile: [{m: 64, n: 160, k: 64, warps: 4}, {m: 64, n: 128, k: 64, warps: 4}]\n"
    family = family_of(PAIRED.replace("paired", "[paired, tiled]") + rows)
    found = {kernel.variant.schedule: [tile.n for tile in kernel.tiles] for kernel in family.kernels}
    assert found == {"paired": [160], "tiled": [128]}
    (one,) = (kernel for kernel in family.kernels if kernel.variant.schedule == "paired")
    assert '"BLOCK_N": 160, "BLOCK_K": 64, "GROUP_M": 8, "LEFT_N": 128' in view(one).configs[0]


@pytest.mark.parametrize(("n", "nearest"), [(100, "64, 128"), (224, "128, 256")])
def test_three_powers_of_two_are_told_at_their_place(n: int, nearest: str) -> None:
    wanted = f"tile.n: expected a power of two or two of them together, as 160 is, found {n}; nearest: {nearest}"
    assert mistakes_of(PAIRED + f"tile: [{{m: 64, n: {n}, k: 64, warps: 4}}]\n") == [f"family.yaml:7:19: {wanted}"]


@pytest.mark.parametrize("product", ["direct", "exchanged"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPE_SHORTHANDS if dtype != "fp32"])
def test_every_row_of_its_tables_fits_the_reference_device(dtype: str, product: str) -> None:
    v = paired(dtype=Dtype.of(dtype), product=product)
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
    others = {name for name, operation in BUILT_IN.items() if operation.gated}
    assert set(BUILT_IN) - there == others | {"row_sum", "col_sum", "row_amax"}
