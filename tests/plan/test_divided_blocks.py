"""Tiles of several blocks whose K is divided: what asks for them, and what they may be combined with."""

from __future__ import annotations

import pytest

from generator.emit.render import kernel_sources
from generator.language.model import Tile
from generator.plan import default_configurations
from generator.plan.configurations import row_of_tile
from generator.plan.shared_memory import shared_memory
from tests.helpers.support import BASE, family_of, mistakes_of, variant

SPLIT = BASE + "schedule: split_k\nload: descriptor\nstore: pointer\nproduct: exchanged\ntargets: [sm90]\n"


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


def test_the_loop_needs_as_much_shared_memory_as_where_k_is_whole() -> None:
    tile, words = Tile(272, 128, 64, warps=8, stages=4), ("paired_m", "split_k_paired_m")
    whole, divided = (variant(schedule=x, load="descriptor", store="pointer", product="exchanged") for x in words)
    assert shared_memory(divided, tile, "sm90") == shared_memory(whole, tile, "sm90")
    row = row_of_tile(divided, tile)
    assert row["TOP_M"] == 256 and row["SPLIT"] == 4
    assert {tile.split for tile in default_configurations.defaults(divided)} == {2, 3, 4}


@pytest.mark.parametrize("masking", ["none", "k"])
def test_sums_of_blocks_of_columns_are_masked_though_the_tile_divides_n(masking: str) -> None:
    """192 columns are one tile of the first kernel and one and a half of the second."""
    text = SPLIT.replace("exchanged", "direct").replace("load: descriptor\nstore: pointer", f"masking: {masking}")
    family = family_of(text + rows("m: 64, n: 192", "m: 192, n: 64"))
    for kernel, source in zip(family.kernels, kernel_sources(family.spec, family.kernels)):
        first, _, second = source.partition("_sum(\n    ")
        masked = kernel.variant.schedule == "split_k_paired"
        assert "in_n" not in first and ("in_n = offs_n < N" in second) is masked
