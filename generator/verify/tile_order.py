"""The order in which output tiles are computed, derived from the spec and not from the templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from generator.language.model import Tile, Variant
from generator.language.tile_orders import unfolded
from generator.language.vocabulary import INTERPRETED, SWIZZLE


def tiles(variant: Variant, tile: Tile, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row and column of each tile of a grid of `rows` x `columns` tiles, in the variant's order."""
    visits = SWIZZLE[variant.swizzle if variant.traits.tiled else "linear"].visits
    if variant.symmetric:
        tall = tile.n // tile.m
        folded = visits(tile, -(-columns // 2) * tall, columns // 2 * 2 + 1)
        return unfolded(folded, columns, tall)
    return visits(tile, rows, columns)


def wrong_order(
    variant: Variant,
    tile: Tile,
    sizes: tuple[int, int, int],
    matrices: int,
    corners: Sequence[tuple[int, ...]],
    groups: Sequence[tuple[int, int]] | None = None,
) -> str | None:
    """A message if stores were not in the variant's order of tiles, or None.

    `corners` are the first elements of the stores of the result, or of the partial sums that a second kernel adds, in
    their order: (row, column), or (matrix, row, column) for a batch of `matrices` matrices, which are computed one
    after the other, as `groups` of rows are, each from a first to below a last row. The interpreter runs programs one
    after the other; a persistent kernel has INTERPRETED programs.
    """
    blocks = (1, 1) if not variant.traits.tiled else (tile.m, tile.n)
    if variant.traits.joins and variant.epilogue.order is not None:
        # Of partial sums, which have two columns for each of the result's.
        corners = [(m, n // 2) for m, n in corners]
    if variant.quantised is not None and not variant.traits.joins:
        # Of bytes with several columns each.
        corners = [(*i, m, n * variant.quantised.packed) for *i, m, n in corners]
    if variant.symmetric and not variant.traits.joins:
        # Each tile is stored a second time, mirrored.
        corners = [(*i, min(m, n), max(m, n)) for *i, m, n in corners]
    if groups is not None:
        corners = [(i, m - first, n) for m, n in corners for i, (first, last) in enumerate(groups) if first <= m < last]
    visited = [at for at, _ in groupby((*i, m // blocks[0], n // blocks[1]) for *i, m, n in corners)]
    rows, columns = (-(-size // block) for size, block in zip(sizes, blocks))
    expected: list[tuple[int, ...]] = [*tiles(variant, tile, rows, columns)]
    if groups is not None:
        heights = [-(-(last - first) // blocks[0]) for first, last in groups]
        expected = [(i, *at) for i, height in enumerate(heights) for at in tiles(variant, tile, height, columns)]
    elif variant.products.several:
        expected = [(i, *at) for i in range(matrices) for at in expected]
    if variant.traits.walks_tiles:
        expected = [at for first in range(INTERPRETED) for at in expected[first::INTERPRETED]]
    if variant.symmetric:
        # Of the last row of blocks some tiles may be past the last row: nothing is stored.
        expected = [at for at in expected if at[-2] < rows]
    for index, (at, wanted) in enumerate(zip(visited, expected)):
        if at != wanted:
            return f"tile {index} in the order of stores is {at}, but in the order {variant.swizzle} it is {wanted}"
    return None
