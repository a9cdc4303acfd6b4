"""The order in which output tiles are visited, by the meaning of the spec's word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from generator.launcher import INTERPRETED
from generator.model import Tile, Variant


def tiles(variant: Variant, tile: Tile, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row and column of each tile of a grid, in the order of their numbers."""
    word = variant.swizzle if variant.schedule != "elementwise" else "linear"
    if word in ("linear_n", "grouped_n"):
        width = 1 if word == "linear_n" else tile.group
        for first in range(0, columns, width):
            for m in range(rows):
                yield from ((m, n) for n in range(first, min(first + width, columns)))
        return
    height = 1 if word == "linear" else tile.group
    for first in range(0, rows, height):
        for n in range(columns):
            yield from ((m, n) for m in range(first, min(first + height, rows)))


def wrong_order(
    variant: Variant, tile: Tile, sizes: tuple[int, int, int], matrices: int, corners: Sequence[tuple[int, ...]]
) -> str | None:
    """Why stores whose first elements are `corners` came in another order than the variant's, or None.

    A corner is row and column, behind the number of the matrix where there are several (`matrices`), which come one
    after the other. The interpreter runs one program after the other; where they walk the tiles there are INTERPRETED
    of them.
    """
    blocks = (1, 1) if variant.schedule == "elementwise" else (tile.m, tile.n)
    visited = [found for found, _ in groupby((*i, m // blocks[0], n // blocks[1]) for *i, m, n in corners)]
    grid = list(tiles(variant, tile, *(-(-size // block) for size, block in zip(sizes, blocks))))
    expected: list[tuple[int, ...]] = [*grid]
    if variant.batch == "strided":
        expected = [(i, *found) for i in range(matrices) for found in grid]
    if variant.schedule == "persistent":
        expected = [found for first in range(INTERPRETED) for found in expected[first::INTERPRETED]]
    for place, (found, wanted) in enumerate(zip(visited, expected)):
        if found != wanted:
            return f"program {place} computes tile {found}, and in the order {variant.swizzle} it is {wanted}"
    return None
