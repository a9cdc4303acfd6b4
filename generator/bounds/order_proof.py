"""The order of tiles: every program's tile is in the grid, and no two programs have the same tile.

Both are proved for any number of tiles, with divisions by numbers that are not constants. There are as many programs as
tiles, so that a one-to-one map from programs to tiles reaches every tile: every tile is computed exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod
from typing import Literal

from generator.bounds import die_order
from generator.bounds.curve_lemma import Curve, why_not
from generator.bounds.rewriting import atoms, holds, quotients, replaced, replaced_in, value
from generator.bounds.solve import follows, together
from generator.bounds.symbolic_values import LaneIntegers
from generator.bounds.terms import (
    Atom,
    Condition,
    Endless,
    Poly,
    Renumbered,
    ReturnedNumber,
    Variable,
    at_most,
    below,
    conjuncts,
    either,
    equal,
    of,
    poly,
    variable,
)
from generator.bounds.triton_semantics import PID

_TILES = (variable("num_m"), variable("num_n"))
_SIZES = ("M", "N")
#: Limits to the number of tiles along M or N, for tiles of at least 16 elements and of 1; the first proved one is used.
_MOST_TILES = (2**27, 2**31)
#: Numbers of tiles to try if a proof fails: they cover one band and part of another.
_TRIED = range(1, 13)
#: Sizes to try if the order does not depend on the numbers of tiles alone.
_TRIED_SIZES = (1, 16, 17, 33, 65, 129, 200, 257, 513)
#: How many of these sizes to try if the order also depends on K; if it depends on more, none are tried.
_FEW = 4
#: The number of programs of a grid to try.
_PROGRAMS = 4096


@dataclass(frozen=True)
class OrderVerdict:
    """The verdict on the lemma; `detail` says why it is not proved, or gives programs that break it."""

    state: Literal["proved", "refuted", "not proved"]
    detail: str


@dataclass(frozen=True)
class Lemma:
    """The lemma, the conditions that it gives to the proof of addresses, and a program that breaks it, if any."""

    order: OrderVerdict
    #: The proved bounds of the coordinates: all four, unless something is wrong.
    inside: tuple[Condition, ...] = ()
    witness: tuple[Condition, ...] = ()
    #: Whether intermediate results that depend on the sizes alone are known to fit 32 bits.
    fits: bool = False


def unproved(reason: str) -> Lemma:
    """A lemma that is not proved, and gives nothing to the proof of addresses."""
    return Lemma(OrderVerdict("not proved", reason))


def prove_order(
    names: Sequence[str], coordinates: Sequence[LaneIntegers], grid: Sequence[Poly], facts: Iterable[Condition]
) -> Lemma:
    """The lemma for a program's two coordinates; the grid has the product of `grid` programs."""
    sizes = [size_along(name) for name in names]
    # A grid may be known by the names of its sides.
    own = [{size, f"num_{size.lower()}"} for size in sizes]
    factors = [[factor for factor in grid if len(factor.variables) == 1 and factor.variables <= each] for each in own]
    if len(grid) != 2 or any(len(atoms_of) != 1 for atoms_of in factors):
        product_of_grid = " * ".join(f"({factor})" for factor in grid)
        along = " times along ".join(sizes)
        return unproved(f"the grid is not known as tiles along {along}: {product_of_grid}")
    extents = (factors[0][0], factors[1][0])
    parts = sorted({part.value for number in coordinates for part in number.parts}, key=str)
    known = tuple(conjuncts(facts))
    if "K" in sizes:
        # There is a program, so that no side of the grid is empty; K may be 0, and no other size.
        known = (*known, at_most(1, extents[sizes.index("K")]))
    for part in parts:
        # Results that depend on the sizes alone need no order; some need that the number of tiles fits 32 bits.
        if PID not in part.variables and not fits(part, known) and not fits(part, [*known, _counted(extents)]):
            return unproved(f"{part} is not known to fit 32 bits")
    by = _tiles(extents)
    lemma = _lemma(_in_tiles([number.value for number in coordinates], parts, extents, known, by))
    # Replace numbers of tiles with sizes again, and the coordinates with their names.
    back: dict[Atom, Poly] = {_atom(tiles): of(atom) for atom, tiles in by.items()}
    symbols = [variable(name) for name in names]
    bounds = [(at_most(0, symbol), below(symbol, extent)) for symbol, extent in zip(symbols, extents)]
    proved = [bound for bound, held in zip((x for pair in bounds for x in pair), lemma.held) if held]
    witness = [replaced_in(condition, back) for condition in lemma.witness]
    witness += [equal(symbol, index) for symbol, index in zip(symbols, lemma.tile)]
    return Lemma(lemma.order, tuple(proved), tuple(witness), fits=True)


def size_along(name: str) -> str:
    """The size along which a coordinate of a tile counts, by its name: M for `pid_m`."""
    return name[-1].upper()


def fits(number: Poly, facts: Iterable[Condition]) -> bool:
    """Whether a number is proved to fit 32 bits."""
    return together([*facts, outside_32_bits(number)]).verdict == "impossible"


def outside_32_bits(number: Poly) -> Condition:
    """The condition that a number does not fit 32 bits."""
    return either([at_most(2**31, number), below(number, -(2**31))])


def _counted(extents: Sequence[Poly]) -> Condition:
    """The condition that the number of tiles fits 32 bits, as a launch's grid and a persistent loop require."""
    return at_most(extents[0] * extents[1], 2**31 - 1)


def _tiles(extents: Sequence[Poly]) -> dict[Atom, Poly]:
    """The grid's quotients for the numbers of tiles, each with the variable that replaces it."""
    atoms = [{atom for product, _ in extent.terms for atom in product} for extent in extents]
    return {atom_set.pop(): tiles for atom_set, tiles in zip(atoms, _TILES) if len(atom_set) == 1}


def _in_tiles(
    coordinates: Sequence[Poly],
    parts: Sequence[Poly],
    extents: tuple[Poly, Poly],
    facts: tuple[Condition, ...],
    by: Mapping[Atom, Poly],
) -> _Question:
    """The lemma in terms of numbers of tiles, if no size remains: kernels of all tile sizes then share one proof."""
    # Of the intermediate results, only those that depend on the program are not proved yet.
    open_parts = tuple(part for part in parts if PID in part.variables)
    inner, inner_parts = (tuple(replaced(x, by) for x in sums) for sums in (coordinates, open_parts))
    left = frozenset().union(*(x.variables for x in (*inner, *inner_parts)))
    rest = [fact for fact in facts if fact.variables <= left]
    for most in _MOST_TILES:
        few = [either([below(of(atom), 1), below(most, of(atom))]) for atom in by]
        if not left & set(_SIZES) and all(together([*facts, fault]).verdict == "impossible" for fault in few):
            tiles = [at_most(1, tiles) for tiles in by.values()]
            limits = tuple(at_most(tiles, most) for tiles in by.values())
            grid = replaced(extents[0], by), replaced(extents[1], by)
            return _Question(inner, inner_parts, grid, (*tiles, *rest), limits)
    return _Question(tuple(coordinates), open_parts, extents, facts)


def _atom(sum: Poly) -> Atom:
    """The atom of a sum that consists of one atom."""
    (((atom,), _),) = sum.terms
    return atom


@dataclass(frozen=True)
class _Question:
    """The lemma to prove: coordinates, intermediate results, the grid, and known conditions."""

    coordinates: tuple[Poly, ...]
    parts: tuple[Poly, ...]
    extents: tuple[Poly, Poly]
    facts: tuple[Condition, ...]
    #: Further known conditions, which are only used to prove widths.
    limits: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class _Answer:
    """The verdict on the lemma; `held` says which of its four bounds are proved."""

    order: OrderVerdict
    held: tuple[bool, ...] = (False,) * 4
    #: The numbers of tiles and the program that break the lemma, and the tile that the program computes.
    witness: tuple[Condition, ...] = ()
    tile: tuple[int, ...] = ()


@cache
def _lemma(asked: _Question) -> _Answer:
    pid = variable(PID)
    program = [at_most(0, pid), below(pid, asked.extents[0] * asked.extents[1])]
    curve = _curve(asked)
    if curve is not None:
        reason = why_not(curve, pid, asked.extents, [*asked.facts, *program, *asked.limits, _counted(asked.extents)])
        if not reason:
            return _Answer(OrderVerdict("proved", ""), (True,) * 4)
        return _failed(asked, reason)
    for atom in atoms(asked.coordinates):
        if isinstance(atom, Renumbered):
            return _renumbered(asked, atom)
    defined = _defined(asked.coordinates, [*asked.facts, *program])
    known = [*asked.facts, *program, *defined]
    sides = zip(asked.coordinates, asked.extents)
    inside = [bound for x, extent in sides for bound in (at_most(0, x), below(x, extent))]
    held = tuple(follows(known, bound) for bound in inside)
    if not all(held):
        return _failed(asked, "every program's tile is not known to be in the grid", held)
    # The program id itself fits 32 bits.
    limits = [at_most(pid, 2**31 - 1), *asked.limits]
    for part in asked.parts:
        # The bounds proved above are mostly enough; they avoid the product of the grid's sides, which is hard.
        near, all_known = [*asked.facts, *defined, *inside, *limits], [*known, *limits, _counted(asked.extents)]
        if not fits(part, near) and not fits(part, all_known):
            return _Answer(OrderVerdict("not proved", f"{part} is not known to fit 32 bits"))
    if _one_to_one(asked.coordinates, known):
        return _Answer(OrderVerdict("proved", ""), held)
    return _failed(asked, "tiles are in the grid, but not known to differ by program", held)


def _failed(asked: _Question, reason: str, held: tuple[bool, ...] = (False,) * 4) -> _Answer:
    """The answer where a proof fails: a grid and program that break the lemma, or that it is not proved."""
    return _searched(asked, held) or _Answer(OrderVerdict("not proved", reason), held)


def _renumbered(asked: _Question, number: Renumbered) -> _Answer:
    """The lemma if programs compute their tiles from a renumbered program id, which must differ by program."""
    own = [part for part in asked.parts if number not in atoms([part])]
    reason = die_order.why_not(number.number, own, asked.extents)
    by: dict[Atom, Poly] = {number: variable(PID)}
    coordinates = tuple(replaced(x, by) for x in asked.coordinates)
    parts = tuple(replaced(part, by) for part in asked.parts if part not in own)
    if any(PID in replaced(x, {number: poly(0)}).variables for x in asked.coordinates):
        reason = "a tile is computed from both the program id and another number"
    answer = _lemma(replace(asked, coordinates=coordinates, parts=parts))
    if not reason and answer.order.state == "proved":
        return answer
    return _failed(asked, reason or answer.order.detail)


def _curve(asked: _Question) -> Curve | None:
    """The function that computes both coordinates from the program id and the grid, or None."""
    returned = [atom for atom in atoms(asked.coordinates) if isinstance(atom, ReturnedNumber)]
    given = (variable(PID), *asked.extents)
    if [of(atom) for atom in returned] != list(asked.coordinates) or any(atom.arguments != given for atom in returned):
        return None
    first, second = returned
    known = first.function == second.function and (first.place, second.place) == (0, 1)
    return first.function if known and isinstance(first.function, Curve) else None


def _defined(sums: Sequence[Poly], known: Sequence[Condition]) -> list[Condition]:
    """Those of the conditions that are proved: dividends are not negative and divisors positive, inner ones first."""
    defined: list[Condition] = []
    for atom in quotients(sums):
        for condition in (at_most(1, atom.divisor), at_most(0, atom.dividend)):
            if follows([*known, *defined], condition):
                defined.append(condition)
    return defined


def _one_to_one(coordinates: Sequence[Poly], known: Sequence[Condition]) -> bool:
    """Whether it is proved that two programs with the same tile are the same program."""
    passes: list[Mapping[Atom, Poly]] = [{Variable(PID): variable(f"{PID}'")}]

    def other(sum: Poly) -> Poly:
        for by in passes:
            sum = replaced(sum, by)
        return sum

    def met() -> list[Condition]:
        twins = list(known)
        for by in passes:
            twins = [replaced_in(condition, by) for condition in twins]
        return [*known, *twins, *(equal(x, other(x)) for x in coordinates)]

    # Inner quotients first: if a quotient is proved equal for both programs, one symbol represents both.
    for atom in quotients(coordinates):
        twin = other(of(atom))
        if follows(met(), equal(of(atom), twin)) and len(twin.terms) == 1:
            passes.append({_atom(twin): of(atom)})
    return follows(met(), equal(variable(PID), other(variable(PID))))


def _searched(asked: _Question, held: tuple[bool, ...]) -> _Answer | None:
    """The smallest grid and program that break the lemma, if small ones do; else None."""
    names = sorted(frozenset().union(*(x.variables for x in (*asked.coordinates, *asked.extents))) - {PID})
    tried: Sequence[int] = _TRIED_SIZES if set(names) & set(_SIZES) else _TRIED
    if len(names) > len(_SIZES):
        tried = tried[: _FEW if len(names) == len(_SIZES) + 1 else 0]
    facts = [fact for fact in asked.facts if fact.variables <= set(names)]
    for numbers in sorted(product(tried, repeat=len(names)), key=prod):
        at = dict(zip(names, numbers))
        if not all(holds(fact, at) for fact in facts):
            continue
        size = [value(extent, at) for extent in asked.extents]
        where = f"in a grid of {size[0]} by {size[1]} tiles"
        seen: dict[tuple[int, ...], int] = {}
        for pid in range(min(prod(size), _PROGRAMS)):
            witness = (*(equal(variable(name), number) for name, number in at.items()), equal(variable(PID), pid))
            try:
                tile = tuple(value(coordinate, {**at, PID: pid}) for coordinate in asked.coordinates)
            except ZeroDivisionError as error:
                fault = "does not terminate" if isinstance(error, Endless) else "divides by zero"
                return _Answer(OrderVerdict("refuted", f"{where}, program {pid} {fault}"), held, witness)
            if not all(0 <= index < extent for index, extent in zip(tile, size)):
                reason = f"{where}, program {pid} computes tile {tile}"
                return _Answer(OrderVerdict("refuted", reason), held, witness, tile)
            if tile in seen:
                both = f"programs {seen[tile]} and {pid} both compute tile {tile}"
                return _Answer(OrderVerdict("refuted", f"{where}, {both}"), held, witness, tile)
            seen[tile] = pid
    return None
