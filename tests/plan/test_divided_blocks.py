"""Tiles of several blocks whose K is divided: what asks for them, and what they may be combined with."""

from __future__ import annotations

import pytest

from generator.emit.render import kernel_sources
from generator.language.built_in import chain_of
from generator.language.dtypes import DTYPE_SHORTHANDS
from generator.language.model import Dtype, Tile
from generator.plan import default_configurations, legality
from generator.plan.configurations import row_of_tile
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import BASE, family_of, mistakes_of, variant

SPLIT = BASE + "schedule: split_k\nload: descriptor\nstore: pointer\nproduct: exchanged\ntargets: [sm90]\n"
DIVIDED = ("split_k_paired", "split_k_paired_m", "split_k_tripled", "split_k_tripled_m")
WEIGHTS = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]})


def kernels_of(text: str) -> dict[str, list[tuple[int, int, int]]]:
    return {
        kernel.variant.schedule: [(tile.m, tile.n, tile.split) for tile in kernel.tiles]
        for kernel in family_of(text).kernels
    }


def rows(*tiles: str) -> str:
    return "tile:\n" + "".join(f"  - {{{tile}, k: 64, warps: 8, stages: 3}}\n" for tile in tiles)


def test_lists_of_blocks_ask_for_accumulators_in_tiled_and_split_k() -> None:
    tiles = rows("m: [256, 16], n: 128", "m: 64, n: [64, 128]", "m: 64, n: 64", "m: [128, 64, 16], n: 64, split: 3")
    both = {"tiled": [(64, 64, 4)], "paired": [(64, 192, 4)], "paired_m": [(272, 128, 4)]}
    tiled = SPLIT.replace("split_k", "tiled")
    assert kernels_of(tiled + tiles.replace(", split: 3", "")) == {**both, "tripled_m": [(208, 64, 4)]}
    found = kernels_of(SPLIT.replace("split_k", "[tiled, split_k]") + tiles)
    assert found == {**both, "split_k": [(64, 64, 4)], "split_k_tripled_m": [(208, 64, 3)]}
    assert not family_of(tiled + rows("m: [256, 16], n: 128")).spec.warnings


def test_a_sum_is_read_with_a_warning_that_has_the_list() -> None:
    (warning,) = family_of(SPLIT.replace("split_k", "paired") + rows("m: 272, n: 128")).spec.warnings
    assert (warning.line, warning.message[-18:]) == (10, "write m: [256, 16]")


@pytest.mark.parametrize("blocks", ["[64, 64]", "[128]", "[]", "[128, 64, 32, 16]", "[128, 48]", "[a, b]"])
def test_a_list_of_no_blocks_is_refused(blocks: str) -> None:
    told = mistakes_of(SPLIT + rows(f"m: 64, n: {blocks}"))
    assert told and all("tile.n: expected" in line for line in told)


@pytest.mark.parametrize("schedule", DIVIDED)
@pytest.mark.parametrize(
    "axes",
    [
        {"load": "pointer"},
        {"load": "descriptor"},
        {"load": "descriptor", "store": "pointer", "dtype": WEIGHTS, "product": "exchanged"},
        {"epilogue": chain_of(("swiglu",))},
        {"epilogue": chain_of(("save",))},
        {"epilogue": chain_of(("row_sum",))},
    ],
    ids=str,
)
def test_what_they_may_be_combined_with(schedule: str, axes: dict[str, object]) -> None:
    v = variant(schedule=schedule, **axes)
    assert legality.why_not(v) is None and legality.why_not_on(v, "sm90") is None
    tiles = default_configurations.defaults(v)
    assert tiles and all(legality.why_no_row(v, tile) is None for tile in tiles)
    assert any(legality.why_no_row_on(v, tile, "sm90") is None for tile in tiles)


@pytest.mark.parametrize("schedule", DIVIDED)
@pytest.mark.parametrize("product", ["direct", "exchanged"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPE_SHORTHANDS if dtype not in ("fp32", "tf32x3")])
def test_every_row_of_their_tables_fits_the_reference_device(dtype: str, product: str, schedule: str) -> None:
    v = variant(dtype=Dtype.of(dtype), product=product, schedule=schedule, load="descriptor", store="pointer")
    tiles = default_configurations.defaults(v)
    assert {tile.split for tile in tiles} == {2, 3, 4}
    assert all(legality.why_no_row(v, tile) is None for tile in tiles)
    assert all(legality.why_no_row_on(v, tile, "sm90") is None for tile in tiles)


def test_the_loop_needs_as_much_shared_memory_as_where_k_is_whole() -> None:
    tile = Tile(272, 128, 64, warps=8, stages=4)
    whole, divided = (
        variant(schedule=word, load="descriptor", store="pointer", product="exchanged")
        for word in ("paired_m", "split_k_paired_m")
    )
    assert shared_memory(divided, tile, "sm90") == shared_memory(whole, tile, "sm90")
    assert row_of_tile(divided, tile)["TOP_M"] == 256 and row_of_tile(divided, tile)["SPLIT"] == 4


def test_the_second_kernel_knows_no_blocks_and_is_as_wide_as_the_widest() -> None:
    text = SPLIT.replace("exchanged", "direct").replace("store: pointer\n", "") + rows("m: 64, n: 112")
    family = family_of(text)
    (source,) = kernel_sources(family.spec, family.kernels)
    first, _, second = source.partition("_sum(\n    ")
    for statement in (
        "offs_n = column + tl.arange(0, LEFT_N)",
        "offs_n = middle_column + tl.arange(0, MIDDLE_N)",
        "offs_n = right + tl.arange(0, BLOCK_N - LEFT_N - MIDDLE_N)",
    ):
        assert first.count(statement) == 1, statement
    assert first.count("tl.store(") == 3
    assert "(cdiv(M, 16) * cdiv(N, LEFT_N),)" in second and '"BLOCK_N": LEFT_N' in second
    assert "described(out, 16, LEFT_N)" in second and "LEFT_N" not in second.partition("CALL = ")[0]


@pytest.mark.parametrize("masking", ["none", "k"])
def test_sums_of_blocks_of_columns_are_masked_though_the_tile_divides_n(masking: str) -> None:
    """192 columns are one tile of the first kernel and one and a half of the second."""
    text = SPLIT.replace("exchanged", "direct").replace("load: descriptor\nstore: pointer", f"masking: {masking}")
    family = family_of(text + rows("m: 64, n: 192", "m: 192, n: 64"))
    sources = dict(
        zip([kernel.variant.schedule for kernel in family.kernels], kernel_sources(family.spec, family.kernels))
    )
    for schedule, masked in (("split_k_paired", True), ("split_k_paired_m", False)):
        first, _, second = sources[schedule].partition("_sum(\n    ")
        assert "in_n" not in first and ("in_n = offs_n < N" in second) is masked
