"""The triangle of a symmetric result: every program computes a tile on or above the diagonal, and each has a program.

The tiles stand in blocks of BLOCK_N by BLOCK_N elements, `tall` in each, one above the other. An order of tiles visits
a rectangle of `num_m` by `num_n` places (`order_proof`), `fold_m` and `fold_n` are a program's place there, and its
tile follows from the place. No two places have the same tile, and there are as many places as tiles: with T blocks
along a side and s = T // 2, num_n = 2 s + 1 and num_m = tall (T - s), whose product is tall T (T + 1) / 2 for even T,
which is 2 s, and for odd T, which is 2 s + 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from generator.bounds.order_proof import Lemma, OrderVerdict, fits, unproved
from generator.bounds.rewriting import replaced, replaced_in, value
from generator.bounds.solve import follows
from generator.bounds.symbolic_values import LaneIntegers
from generator.bounds.terms import Atom, Condition, Poly, Variable, at_most, below, equal, every, variable

#: A program's place in the rectangle, the sides of it, and its tile.
PLACE, SIDES, TILE = ("fold_m", "fold_n"), ("num_m", "num_n"), ("pid_m", "pid_n")
#: Sizes to try if a proof fails: some blocks of the smallest tiles, of even and odd number, and part of another one.
_TRIED = (1, 16, 33, 64, 65, 100, 129, 192, 257)
#: The most places of a rectangle that are tried.
_PLACES = 4096


def sides(grid: Sequence[Poly]) -> list[Condition]:
    """What the names of the rectangle's sides stand for, whose product is the grid."""
    return [equal(variable(name), side) for name, side in zip(SIDES, grid, strict=True)]


def within(x: Poly, y: Poly, size: Poly, rows: int, columns: int) -> tuple[Condition, ...]:
    """The conditions that the tile in row `x` and column `y`, of so many elements, is on or above the diagonal."""
    tall = columns // rows
    return at_most(0, x), at_most(x, y * tall + (tall - 1)), at_most(0, y), below(y, _blocks(size, columns))


def prove_tiles(
    coordinates: Sequence[LaneIntegers],
    grid: Sequence[Poly],
    facts: Sequence[Condition],
    size: Poly,
    rows: int,
    columns: int,
) -> Lemma:
    """The lemma for a program's tile, of so many `rows` and `columns`, computed from its place, of a C of this size.

    `facts` have those of `sides`, and that the place is in the rectangle.
    """
    if columns % rows:
        return unproved("a tile has as many columns as rows, or a multiple of them")
    x, y = (number.value for number in coordinates)
    known = list(facts)
    tall, blocks = columns // rows, _blocks(size, columns)
    half, (num_m, num_n) = blocks // 2, map(variable, SIDES)
    inside = within(x, y, size, rows, columns)
    counted = (equal(num_n, half * 2 + 1), equal(num_m, (blocks - half) * tall))
    if not all(follows(known, condition) for condition in (*inside, *counted)):
        return _searched(x, y, grid, size, tall, columns) or unproved("a program's tile is not known to be one of C's")
    by: dict[Atom, Poly] = {Variable(name): variable(f"{name}'") for name in PLACE}
    twins = [*known, *(replaced_in(condition, by) for condition in known)]
    twins += [equal(number, replaced(number, by)) for number in (x, y)]
    if not follows(twins, every(equal(variable(name), variable(f"{name}'")) for name in PLACE)):
        return _searched(x, y, grid, size, tall, columns) or unproved("tiles are not known to differ by program")
    for part in sorted({part.value for number in coordinates for part in number.parts}, key=str):
        if not fits(part, known):
            return unproved(f"{part} is not known to fit 32 bits")
    named = within(variable(TILE[0]), variable(TILE[1]), size, rows, columns)
    return Lemma(OrderVerdict("proved", ""), named, fits=True)


def _blocks(size: Poly, columns: int) -> Poly:
    """How many blocks there are along a side."""
    return (size + (columns - 1)) // columns


def _searched(x: Poly, y: Poly, grid: Sequence[Poly], size: Poly, tall: int, columns: int) -> Lemma | None:
    """The smallest size tried in which a tile has no program, or two, or a program a tile that C does not have."""
    (name,) = size.variables
    for number in _TRIED:
        at: dict[str, int] = {name: number}
        at |= {side: value(length, at) for side, length in zip(SIDES, grid, strict=True)}
        places = [range(at[side]) for side in SIDES]
        if len(places[0]) * len(places[1]) > _PLACES:
            break
        blocks = -(-number // columns)
        seen: dict[tuple[int, ...], tuple[int, ...]] = {}
        where = f"of {number} rows and columns"
        for position in product(*places):
            numbers: Mapping[str, int] = {**at, **dict(zip(PLACE, position, strict=True))}
            tile = value(x, numbers), value(y, numbers)
            if not 0 <= tile[0] // tall <= tile[1] < blocks:
                return _refuted(f"{where}, the program in place {position} computes tile {tile}")
            if tile in seen:
                return _refuted(f"{where}, the programs in places {seen[tile]} and {position} both compute tile {tile}")
            seen[tile] = position
        if len(seen) != tall * blocks * (blocks + 1) // 2:
            return _refuted(f"{where}, {len(seen)} programs compute {tall * blocks * (blocks + 1) // 2} tiles")
    return None


def _refuted(detail: str) -> Lemma:
    return Lemma(OrderVerdict("refuted", detail))
