"""What the plan knows of a schedule of two kernels: the memory they need, and who may choose a configuration."""

from __future__ import annotations

from generator.language.built_in import chain_of
from generator.language.model import Tile
from generator.plan import legality
from tests.helpers.support import variant


def test_the_kernel_that_sums_parts_of_k_reads_no_matrix_of_the_epilogue() -> None:
    """The one that adds them does, and has no operand tiles; with one stage the largest of both is a partial sum."""
    tile, chain = Tile(64, 128, 32, warps=4, stages=1), chain_of(("add",))
    whole, split = (variant(schedule=word, epilogue=chain) for word in ("tiled", "split_k"))
    assert legality.shared_memory(split, tile, "sm90") == 32768
    assert legality.shared_memory(whole, tile, "sm90") == 32768 + 64 * 32 * 2 + 32 * 128 * 2


def test_the_kernel_that_adds_partial_sums_has_four_warps() -> None:
    """They reduce rows together, where the tile's own kernel may have fewer."""
    chain = chain_of(("row_sum",))
    one, four = (Tile(16, 512, 16, warps=warps, stages=1) for warps in (1, 4))
    sizes = [
        legality.shared_memory(variant(schedule="split_k", epilogue=chain), tile, "gfx942") for tile in (one, four)
    ]
    assert sizes[0] == sizes[1]
