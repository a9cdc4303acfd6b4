"""Programs that deal the steps of all tiles out among them (stream-K): why exactly one computes each result.

Each program that shares a tile increments a counter, which starts at zero, once. Exactly one program, the last, reads
the number of all other programs.

The division of steps is recognised only as it is written below. Let there be T >= 1 tiles of S = steps >= 1
steps each, and P programs. share is ceil(T S / P), so at least 1, and program p has the steps from min(p share, T S) to
min((p + 1) share, T S): these ranges are disjoint, in the order of p, and cover all steps. If the range is not empty,
the loop is over the tiles with steps in it; if it is empty, both ends are T S and the loop is empty. Inside the loop,
therefore, begin < (pid + 1) S and end > pid S. The first step of a tile belongs to program pid S // share and the last
to program ((pid + 1) S - 1) // share, which is below P; exactly the programs from the first to the last compute steps
of the tile. A program whose range begins inside a tile is not the first program of that tile; this is at most one tile
per program, its first one. A tile whose first program it is, and that it shares, is its last one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from generator.bounds.patterns import matches
from generator.bounds.symbolic_values import LaneIntegers, Shape, Value, lane
from generator.bounds.terms import Condition, Poly, at_most, below, choice, variable
from generator.bounds.triton_semantics import PID

#: The number of programs, if it does not follow from the sizes.
PROGRAMS = "programs"

TILES_OF_ALL = "tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)"
#: The assignments before the loop over the tiles of a program, the loop's range, and the assignments inside the loop.
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

#: The names that these expressions use.
GIVEN = frozenset({"M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "max", "min"})


def dealt(target: str, latest: Mapping[str, ast.expr]) -> bool:
    """Whether the loop `for target in LOOP` is over the tiles of a program.

    `latest` has the last assignment of each name, in the order of assignment.
    """
    known = [name for name in latest if name in _BEFORE]
    return target == "pid" and known == [*_BEFORE] and all(matches(latest[name], _BEFORE[name]) for name in known)


def names() -> dict[str, Value]:
    """The values of the names inside the loop; begin and end are relative to the tile's first step."""
    steps, first = variable("steps"), variable(PID) * variable("steps")
    return {
        "steps": LaneIntegers(steps, width="32"),
        "share": LaneIntegers(variable("share"), width="64"),
        "program": LaneIntegers(variable("program"), width="64"),
        "begin": LaneIntegers(first + variable("ahead"), width="64"),
        "end": LaneIntegers(first + variable("reach"), width="64"),
        "pid": LaneIntegers(variable(PID), width="32"),
    }


def within(name: str, value: ast.expr, latest: Mapping[str, ast.expr]) -> LaneIntegers | None:
    """The value of `name`, assigned `value` inside the loop after the earlier names; None if it is not one of these."""
    known = [*_WITHIN]
    if name not in known[1:] or not matches(value, _WITHIN[name]):
        return None
    earlier = known[: known.index(name)]
    if [x for x in latest if x in earlier] != earlier or not all(matches(latest[x], _WITHIN[x]) for x in earlier):
        return None
    return LaneIntegers(variable(name), width="32" if name == "others" else "64")


def facts(depth: int) -> tuple[Condition, ...]:
    """The conditions that hold inside the loop for steps of `depth` elements along K."""
    steps, program, programs = variable("steps"), variable("program"), variable(PROGRAMS)
    opener, others = variable("opener"), variable("others")
    return (
        at_most(1, steps),
        # One step for K = 0, otherwise the number of steps that cover K.
        at_most((steps - 1) * depth, variable("K")),
        at_most(1, variable("share")),
        at_most(0, program),
        below(program, programs),
        below(variable("ahead"), steps),
        at_most(1, variable("reach")),
        at_most(0, opener),
        at_most(0, others),
        below(opener + others, programs),
        # No device runs more programs at the same time.
        at_most(programs, 2**30),
    )


def sum_at(shape: Shape) -> Poly:
    """The offsets of the elements of a program's partial sum in the workspace.

    A program has two places: one for a tile that it begins, one for a tile that another program began.
    """
    program = variable("program") * 2
    program_of = choice(at_most(variable("ahead"), 0), program + 1, program)
    if len(shape) != 2:
        return program_of
    return program_of * (shape[0] * shape[1]) + lane(0) * shape[1] + lane(1)
