"""Programs that share a tile: how the steps along K are dealt out, and that one program alone makes each result.

Of the programs that raise a counter from zero, each once, the one that finds all others counted is one and the last.

Steps dealt out are known as written here. For tiles T >= 1 of S = steps >= 1 steps each and P programs, share is
T S / P rounded up, so at least 1, and program p has the steps from min(p share, T S) to min((p + 1) share, T S): side
by side, in the order of p, and all of them. Where it has any, the loop is over the tiles that hold one of them; where
it has none both ends are T S, and the loop is empty. So begin < (pid + 1) S and end > pid S in it. The steps of a tile
begin in program pid S // share and end in ((pid + 1) S - 1) // share, which is below P, and every program from the one
to the other, and no other, comes to the tile. A program whose steps begin within the tile did not open it, and there
is one such tile to a program at most, its first; a tile that it opens and shares is its last.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from generator.bounds.patterns import matches
from generator.bounds.symbolic_values import Number, Shape, Value, lane
from generator.bounds.terms import Condition, Poly, at_most, below, choice, poly, variable
from generator.bounds.triton_semantics import PART, PID

#: The number of programs, where it does not follow from the sizes.
PROGRAMS = "programs"

TILES_OF_ALL = "tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)"
#: What names stand for before the loop over the tiles of a program, the loop, and what they stand for in it.
_BEFORE = {
    "steps": "max(tl.cdiv(K, BLOCK_K), tl.num_programs(1))",
    "total": f"tl.cast({TILES_OF_ALL}, tl.int64) * steps",
    "share": "tl.cdiv(total, tl.num_programs(0))",
    "program": "tl.cast(tl.program_id(0), tl.int64)",
    "begin": "min(program * share, total)",
    "end": "min(begin + share, total)",
}
LOOP = "range(tl.cast(begin // steps, tl.int32), tl.cast(tl.cdiv(end, steps), tl.int32))"
_WITHIN = {
    "start": "tl.cast(pid, tl.int64) * steps",
    "opener": "start // share",
    "others": "tl.cast((start + steps - 1) // share - opener, tl.int32)",
}


#: What all of these are made of.
GIVEN = frozenset({"M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "max", "min"})


def dealt(target: str, latest: Mapping[str, ast.expr]) -> bool:
    """Whether the loop `for target in LOOP` is over the tiles of a program; `latest` is what names were assigned last,
    in the order in which they were."""
    known = [name for name in latest if name in _BEFORE]
    return target == "pid" and known == [*_BEFORE] and all(matches(latest[name], _BEFORE[name]) for name in known)


def names() -> dict[str, Value]:
    """What the names stand for in the loop: begin and end as steps from the tile's first."""
    steps, first = variable("steps"), variable(PID) * variable("steps")
    return {
        "steps": Number(steps, width="32"),
        "share": Number(variable("share"), width="64"),
        "program": Number(variable("program"), width="64"),
        "begin": Number(first + variable("ahead"), width="64"),
        "end": Number(first + variable("reach"), width="64"),
        "pid": Number(variable(PID), width="32"),
    }


def within(name: str, value: ast.expr, latest: Mapping[str, ast.expr]) -> Number | None:
    """What `name` stands for in the loop, assigned `value` behind others; None for what is to be worked out."""
    known = [*_WITHIN]
    if name not in known[1:] or not matches(value, _WITHIN[name]):
        return None
    earlier = known[: known.index(name)]
    if [x for x in latest if x in earlier] != earlier or not all(matches(latest[x], _WITHIN[x]) for x in earlier):
        return None
    return Number(variable(name), width="32" if name == "others" else "64")


def facts(depth: int) -> tuple[Condition, ...]:
    """What holds in the loop for steps of `depth` along K."""
    steps, program, programs = variable("steps"), variable("program"), variable(PROGRAMS)
    opener, others = variable("opener"), variable("others")
    return (
        at_most(1, steps),
        # One step for an empty K, else as many as it takes.
        at_most((steps - 1) * depth, variable("K")),
        at_most(1, variable("share")),
        at_most(0, program),
        below(program, programs),
        below(variable("ahead"), steps),
        at_most(1, variable("reach")),
        at_most(0, opener),
        at_most(0, others),
        below(opener + others, programs),
        # No device holds so many.
        at_most(programs, 2**30),
    )


def place(programs: int) -> Poly:
    """Which of the sums of the workspace is a program's, of so many that share a tile."""
    return variable(PID) * programs + variable(PART)


def place_of_two() -> Poly:
    """The same of a program that may have two: of the tile that it opened, or of the one that another did."""
    program = variable("program") * 2
    return choice(at_most(variable("ahead"), 0), program + 1, program)


def sum_at(place: Poly, shape: Shape) -> Poly:
    """The addresses of the sum at a place of the workspace."""
    if len(shape) != 2:
        return place
    return place * (shape[0] * shape[1]) + lane(0) * shape[1] + lane(1)


def room(row: Mapping[str, int]) -> Poly:
    """The elements of two partial sums of every program."""
    return variable(PROGRAMS) * poly(2 * row["BLOCK_M"] * row["BLOCK_N"])
