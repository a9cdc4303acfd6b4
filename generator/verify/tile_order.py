"""The order in which output tiles are computed, derived from the spec and not from the templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from generator.language.model import Tile, Variant
from generator.language.vocabulary import INTERPRETED


def tiles(variant: Variant, tile: Tile, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row and column of each tile of a grid of `rows` x `columns` tiles, in the variant's order."""
    word = variant.swizzle if variant.traits.tiled else "linear"
    if word not in ORDERS:
        raise LookupError(f"ORDERS in generator/verify/tile_order.py has no entry for the order '{word}'")
    return ORDERS[word](tile, rows, columns)


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
    if groups is not None:
        corners = [(i, m - first, n) for m, n in corners for i, (first, last) in enumerate(groups) if first <= m < last]
    visited = [found for found, _ in groupby((*i, m // blocks[0], n // blocks[1]) for *i, m, n in corners)]
    rows, columns = (-(-size // block) for size, block in zip(sizes, blocks))
    expected: list[tuple[int, ...]] = [*tiles(variant, tile, rows, columns)]
    if groups is not None:
        heights = [-(-(last - first) // blocks[0]) for first, last in groups]
        expected = [(i, *found) for i, height in enumerate(heights) for found in tiles(variant, tile, height, columns)]
    elif variant.products.several:
        expected = [(i, *found) for i in range(matrices) for found in expected]
    if variant.traits.walks_tiles:
        expected = [found for first in range(INTERPRETED) for found in expected[first::INTERPRETED]]
    for place, (found, wanted) in enumerate(zip(visited, expected)):
        if found != wanted:
            return f"tile {place} in the order of stores is {found}, but in the order {variant.swizzle} it is {wanted}"
    return None


def _bands(height: int, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Bands of `height` rows of tiles; inside a band, down the columns."""
    for first in range(0, rows, height):
        for n in range(columns):
            yield from ((m, n) for m in range(first, min(first + height, rows)))


def _dealt(order: Sequence[tuple[int, int]], dies: int) -> Iterator[tuple[int, int]]:
    """`order` divided into one contiguous run per die, with the longer runs first; the dies alternate."""
    share, longer = divmod(len(order), dies)
    starts = [die * share + min(die, longer) for die in range(dies)]
    for turn in range(share + 1):
        yield from (order[start + turn] for start in starts[: dies if turn < share else longer])


def _turned(order: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """An order of the transposed grid, with row and column exchanged."""
    return ((m, n) for n, m in order)


def hilbert(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row and column of each cell along the generalised Hilbert curve of a rectangle (J. Červený, gilbert).

    The curve starts in the first cell, and ends at the other end of the rectangle's longer side.
    """
    if columns >= rows:
        yield from _curve((0, 0), (0, columns), (rows, 0))
    else:
        yield from _curve((0, 0), (rows, 0), (0, columns))


Vector = tuple[int, int]


def _curve(at: Vector, long: Vector, wide: Vector) -> Iterator[Vector]:
    """The curve in the rectangle that the axis-parallel vectors span from `at`; it ends at the end of `long`."""
    length, width = abs(sum(long)), abs(sum(wide))
    if width == 1 or length == 1:
        step = _unit(long if width == 1 else wide)
        yield from (_moved(at, _times(step, place)) for place in range(max(length, width)))
        return
    if 2 * length > 3 * width:
        half = _times(_unit(long), _even(length // 2))
        yield from _curve(at, half, wide)
        yield from _curve(_moved(at, half), _moved(long, _times(half, -1)), wide)
        return
    half, side = _times(_unit(long), length // 2), _times(_unit(wide), _even(width // 2) if width > 2 else 1)
    rest = _moved(long, _times(half, -1))
    yield from _curve(at, side, half)
    yield from _curve(_moved(at, side), long, _moved(wide, _times(side, -1)))
    last = _moved(_moved(long, _times(_unit(long), -1)), _moved(side, _times(_unit(side), -1)))
    yield from _curve(_moved(at, last), _times(side, -1), _times(rest, -1))


def _even(number: int) -> int:
    return number + number % 2


def _unit(vector: Vector) -> Vector:
    length = abs(sum(vector))
    return vector[0] // length, vector[1] // length


def _times(vector: Vector, factor: int) -> Vector:
    return vector[0] * factor, vector[1] * factor


def _moved(vector: Vector, by: Vector) -> Vector:
    return vector[0] + by[0], vector[1] + by[1]


#: Each word of `swizzle`, and the tiles of a grid of `rows` x `columns` in that order.
ORDERS: Mapping[str, Callable[[Tile, int, int], Iterator[tuple[int, int]]]] = {
    "linear": lambda tile, rows, columns: _bands(1, rows, columns),
    "linear_n": lambda tile, rows, columns: _turned(_bands(1, columns, rows)),
    "grouped": lambda tile, rows, columns: _bands(tile.group, rows, columns),
    "grouped_n": lambda tile, rows, columns: _turned(_bands(tile.group, columns, rows)),
    "swizzle2d": lambda tile, rows, columns: _bands(tile.group, rows, columns),
    "hilbert": lambda tile, rows, columns: hilbert(rows, columns) if rows and columns else iter(()),
    "chiplet": lambda tile, rows, columns: _dealt(list(_bands(tile.group, rows, columns)), tile.chiplets),
}
