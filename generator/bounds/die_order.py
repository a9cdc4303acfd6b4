"""Programs dealt to dies in turn, those of each die renumbered into a run: every number is one program's.

For the programs pid = dies * turn + die, those of one die, all is linear in the turn, and the runs follow one another:
so the lemma is put to the solver die by die. Of the grid nothing counts but the number of its tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from generator.bounds.rewriting import quotients, replaced
from generator.bounds.solve import together
from generator.bounds.terms import Atom, Condition, Poly, Variable, at_most, below, negation, poly, variable
from generator.bounds.triton_semantics import PID

_PID, _TILES = variable(PID), variable("tiles")
_TURN, _NEXT = variable("turn"), variable("turn'")


def why_not(number: Poly, parts: Iterable[Poly], grid: tuple[Poly, Poly]) -> str:
    """Why not every program of a grid is known to have another `number`, 0 <= number < tiles; empty where it is.

    `parts` is what is computed on the way, which must fit 32 bits, as the number of tiles does.
    """
    asked = [_of_tiles(x, grid) for x in (number, *parts)]
    if None in asked:
        return f"{number} is not known to depend on the number of tiles alone"
    place, *others = [x for x in asked if x is not None]
    divided = [x for x in quotients([place]) if x.dividend == _PID and (x.divisor.constant or 0) > 1]
    if len(divided) != 1:
        return "" if place == _PID else f"{number} is not known to deal programs to a number of dies"
    dies = divided[0].divisor.constant or 0

    def dealt(die: int, turn: Poly) -> dict[Atom, Poly]:
        return {divided[0]: turn, Variable(PID): turn * dies + die}

    def known(by: Mapping[Atom, Poly]) -> list[Condition]:
        turn = by[divided[0]]
        return [at_most(0, turn), below(replaced(_PID, by), _TILES), at_most(1, _TILES), at_most(_TILES, 2**31 - 1)]

    for die in range(dies):
        by, again, after = dealt(die, _TURN), dealt(die, _NEXT), dealt(die + 1, _NEXT)
        here, most = replaced(place, by), 2**31
        fitting = [x for part in others for x in (at_most(-most, replaced(part, by)), below(replaced(part, by), most))]
        for each in (at_most(0, here), below(here, _TILES), *fitting):
            if not _follows(known(by), each):
                return f"of die {die}, {each} is not known"
        if not _follows([*known(by), *known(again), below(_TURN, _NEXT)], below(here, replaced(place, again))):
            return f"of die {die}, later programs are not known to have larger numbers"
        # Where a die has no program, none behind it has one: so what holds of neighbours holds of all.
        if die + 1 < dies and not _follows([*known(by), *known(after)], below(here, replaced(place, after))):
            return f"of die {die}, the run is not known to end before the next die's"
    return ""


def _of_tiles(sum: Poly, grid: tuple[Poly, Poly]) -> Poly | None:
    """A sum as one of the number of tiles; None where it depends on the grid in another way."""
    atoms = [atom for side in grid for product, _ in side.terms for atom in product]
    if len(atoms) != 2:
        return None
    found = replaced(sum, {atoms[0]: _TILES, atoms[1]: poly(1)})
    return found if replaced(found, {Variable("tiles"): grid[0] * grid[1]}) == sum else None


def _follows(facts: Sequence[Condition], wanted: Condition) -> bool:
    return together([*facts, negation(wanted)]).verdict == "impossible"
