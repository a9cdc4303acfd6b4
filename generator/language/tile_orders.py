"""The meaning of each order of tiles, which knows nothing of the macros that kernels have for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol


class Numbers(Protocol):
    """What an order reads of a configuration."""

    @property
    def group(self) -> int: ...

    @property
    def chiplets(self) -> int: ...


#: Row and column of each tile of a grid of so many rows and columns of tiles, in the order of the tiles' numbers.
Visits = Callable[[Numbers, int, int], Iterator[tuple[int, int]]]


def bands(height: int, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Bands of `height` rows of tiles; inside a band, down the columns."""
    for first in range(0, rows, height):
        for n in range(columns):
            yield from ((m, n) for m in range(first, min(first + height, rows)))


def dealt(order: Sequence[tuple[int, int]], dies: int) -> Iterator[tuple[int, int]]:
    """`order` divided into one contiguous run per die, with the longer runs first; the dies alternate."""
    share, longer = divmod(len(order), dies)
    starts = [die * share + min(die, longer) for die in range(dies)]
    for turn in range(share + 1):
        yield from (order[start + turn] for start in starts[: dies if turn < share else longer])


def transposed(order: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """An order of the transposed grid, with row and column exchanged."""
    return ((m, n) for n, m in order)


def hilbert(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row and column of each cell along the generalised Hilbert curve of a rectangle (J. Červený, gilbert).

    The curve starts in the first cell, and ends at the other end of the rectangle's longer side.
    """
    down, right = complex(rows), complex(0, columns)
    for cell in _curve(0, right, down) if columns >= rows else _curve(0, down, right):
        yield int(cell.real), int(cell.imag)


def _curve(at: complex, long: complex, wide: complex) -> Iterator[complex]:
    """The curve in the rectangle that the axis-parallel vectors span from `at`; it ends at the end of `long`.

    A cell is a row + a column * 1j; the numbers are whole.
    """
    length, width = int(abs(long)), int(abs(wide))
    ahead, aside = long / length, wide / width
    if width == 1 or length == 1:
        yield from (at + (ahead if width == 1 else aside) * distance for distance in range(max(length, width)))
    elif 2 * length > 3 * width:
        half = ahead * _even(length // 2)
        yield from _curve(at, half, wide)
        yield from _curve(at + half, long - half, wide)
    else:
        half, side = ahead * (length // 2), aside * (_even(width // 2) if width > 2 else 1)
        yield from _curve(at, side, half)
        yield from _curve(at + side, long, wide - side)
        yield from _curve(at + long - ahead + side - aside, -side, half - long)


def _even(number: int) -> int:
    return number + number % 2


def linear(tile: Numbers, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return bands(1, rows, columns)


def linear_n(tile: Numbers, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return transposed(bands(1, columns, rows))


def grouped(tile: Numbers, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return bands(tile.group, rows, columns)


def grouped_n(tile: Numbers, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return transposed(bands(tile.group, columns, rows))


def along_hilbert(tile: Numbers, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return hilbert(rows, columns) if rows and columns else iter(())


def chiplet(tile: Numbers, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return dealt(list(bands(tile.group, rows, columns)), tile.chiplets)


def unfolded(order: Iterator[tuple[int, int]], blocks: int, tall: int) -> Iterator[tuple[int, int]]:
    """The tiles on and above the diagonal of a square of so many blocks along a side, each of `tall` tiles.

    `order` is that of a rectangle of half as many rows of blocks. It has row i of the triangle at its end, and in front
    of that the row as far from the last one, turned by half a turn; of an odd number of blocks the first row is alone.
    """
    # The rows of blocks in front of others, by the row behind.
    before = {row: blocks - row - (blocks + 1) % 2 for row in range(blocks // 2 + blocks % 2) if row or blocks % 2 == 0}
    for m, n in order:
        row, of_block = divmod(m, tall)
        joined = [(before[row], column) for column in reversed(range(before[row], blocks))] if row in before else []
        joined += [(row, column) for column in range(row, blocks)]
        yield joined[n][0] * tall + of_block, joined[n][1]
