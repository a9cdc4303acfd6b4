"""Symmetric results: the triangle of tiles in every order; test_planted.py runs kernels."""

from __future__ import annotations

import pytest

from generator.language import vocabulary
from generator.language.model import Tile
from generator.verify.tile_order import tiles
from tests.helpers.support import variant


@pytest.mark.parametrize("swizzle", [word for word, order in vocabulary.SWIZZLE.items() if order.available])
@pytest.mark.parametrize("tall", [1, 2, 4])
def test_every_tile_of_the_triangle_has_one_number(swizzle: str, tall: int) -> None:
    v = variant(result="symmetric", swizzle=swizzle, masking="auto")
    tile = Tile(16, 16 * tall, 16, warps=4, group=3, chiplets=3)
    for blocks in range(10):
        found = list(tiles(v, tile, blocks * tall, blocks))
        triangle = [(m, n) for m in range(blocks * tall) for n in range(m // tall, blocks)]
        assert sorted(found) == triangle
