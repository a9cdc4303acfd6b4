"""Programs that the GPU distributes to dies round-robin, renumbered so that each die has a contiguous range of tiles.

It is proved that different programs have different numbers below the number of tiles. For the programs of one die,
pid = dies * turn + die, the new number is linear in the turn, and the ranges of the dies follow one another: the solver
proves the lemma die by die. Only the number of tiles in the grid matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from generator.bounds.rewriting import quotients, replaced
from generator.bounds.solve import follows
from generator.bounds.terms import Atom, Condition, Poly, Variable, at_most, below, poly, variable
from generator.bounds.triton_semantics import PID

_PID, _TILES = variable(PID), variable("tiles")
_TURN, _NEXT = variable("turn"), variable("turn'")


def why_not(number: Poly, parts: Iterable[Poly], grid: tuple[Poly, Poly]) -> str:
    """Why it is not proved that every program of a grid has a different `number` in [0, tiles); empty if it is.

    `parts` are intermediate results, which must fit 32 bits, as the number of tiles does.
    """
    asked = [_of_tiles(x, grid) for x in (number, *parts)]
    if None in asked:
        return f"{number} is not known to depend on the number of tiles alone"
    position, *others = [x for x in asked if x is not None]
    divided = [x for x in quotients([position]) if x.dividend == _PID and (x.divisor.constant or 0) > 1]
    if len(divided) != 1:
        return "" if position == _PID else f"{number} is not known to distribute programs to dies"
    dies = divided[0].divisor.constant or 0

    def dealt(die: int, turn: Poly) -> dict[Atom, Poly]:
        return {divided[0]: turn, Variable(PID): turn * dies + die}

    def known(by: Mapping[Atom, Poly]) -> list[Condition]:
        turn = by[divided[0]]
        return [at_most(0, turn), below(replaced(_PID, by), _TILES), at_most(1, _TILES), at_most(_TILES, 2**31 - 1)]

    for die in range(dies):
        by, again, after = dealt(die, _TURN), dealt(die, _NEXT), dealt(die + 1, _NEXT)
        here, most = replaced(position, by), 2**31
        fitting = [x for part in others for x in (at_most(-most, replaced(part, by)), below(replaced(part, by), most))]
        for each in (at_most(0, here), below(here, _TILES), *fitting):
            if not follows(known(by), each):
                return f"for die {die}, {each} is not known"
        if not follows([*known(by), *known(again), below(_TURN, _NEXT)], below(here, replaced(position, again))):
            return f"for die {die}, later programs are not known to have larger numbers"
        # If a die has no program, no later die has one: the proof for neighbours is enough.
        if die + 1 < dies and not follows([*known(by), *known(after)], below(here, replaced(position, after))):
            return f"for die {die}, the range is not known to end before that of the next die"
    return ""


def _of_tiles(sum: Poly, grid: tuple[Poly, Poly]) -> Poly | None:
    """A sum expressed with the number of tiles; None if it depends on the grid in another way."""
    atoms = [atom for side in grid for product, _ in side.terms for atom in product]
    if len(atoms) != 2:
        return None
    tile = replaced(sum, {atoms[0]: _TILES, atoms[1]: poly(1)})
    return tile if replaced(tile, {Variable("tiles"): grid[0] * grid[1]}) == sum else None
