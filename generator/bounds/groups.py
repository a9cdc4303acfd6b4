"""Groups of rows, whose ends only the device knows: which group's tile a program computes, and why that is right.

The division is recognised only as it is written below. Let the ends be any numbers. `starts` of a group is the largest
of 0 and of the ends before it, each at most T, and `ends` is its own, at most T and at least that: so starts and ends
never descend, lie between 0 and T, and each group starts where the one before it ends. Lanes from G on, which load 0,
are groups without rows. A group of r rows has ceil(r / BLOCK_M) * ceil(N / BLOCK_N) tiles, and `lasts` are the sums of
these up to each group. For a number below the last of the sums, exactly one group has lasts - tiles <= number < lasts:
the one behind as many groups as have lasts <= number. It has rows, and number - (lasts - tiles) is below its tiles. So
each tile of each group has exactly one number. For larger numbers `group` is the number of all lanes, at least G.

There are as many programs as tiles, or more: of r rows, ceil(r / BLOCK_M) is at most r, and below r / BLOCK_M + 1. A
persistent kernel loops over the tiles themselves. The call refuses sizes with 2**31 tiles or more of 16 by 16.
Programs that share the K of a tile have another number along a second axis: those of each part walk all tiles.

Where K is divided, each group has the same tiles, and its number is that of a matrix of a batch. The largest of 0 and
of the ends before its own, each at most T, is where it starts, for the same reason.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from generator.bounds.patterns import matches
from generator.bounds.source import Source
from generator.bounds.symbolic_values import LaneIntegers, Value
from generator.bounds.terms import Condition, at_most, below, poly, variable
from generator.bounds.triton_semantics import PID
from generator.emit.call_value import extents
from generator.plan.extents import Amount

#: The assignments that find the rows and tiles of all groups, in their order, and those that find a program's group.
_ALL_GROUPS = {
    "groups": "tl.arange(0, GROUPS)",
    "before": "tl.load(offsets_ptr + (groups - 1), mask=(groups > 0) & (groups < G), other=0)",
    "starts": "tl.associative_scan(tl.minimum(before, T), 0, _larger)",
    "behind": "tl.load(offsets_ptr + groups, mask=groups < G, other=0)",
    "ends": "tl.maximum(tl.minimum(behind, T), starts)",
    "tiles": "tl.cdiv(ends - starts, BLOCK_M) * tl.cdiv(N, BLOCK_N)",
    "lasts": "tl.cumsum(tiles, 0)",
}
_OWN_GROUP = {
    "group": "tl.sum((lasts <= number).to(tl.int32), 0)",
    "own": "groups == group",
    "start": "tl.sum(tl.where(own, starts, 0), 0)",
    "M": "tl.sum(tl.where(own, ends - starts, 0), 0)",
    "pid": "number - tl.sum(tl.where(own, lasts - tiles, 0), 0)",
}
_LARGER = "@triton.jit\ndef _larger(a, b):\n    return tl.maximum(a, b)"
#: Where programs have one tile each: their number, which is known between these, and what the surplus ones do.
_NUMBER = "tl.program_id(0)"
_SURPLUS = "if group >= G:\n    return"
#: Where they walk the tiles: how many there are.
_ALL = "tl.sum(tiles, 0)"

#: The assignments that find a group's part of K, behind the one of its number.
_PART_OF_K = {
    "groups": "tl.arange(0, GROUPS)",
    "before": "tl.load(offsets_ptr + groups, mask=groups < group, other=0)",
    "start": "tl.max(tl.minimum(before, T), 0)",
    "end": "tl.maximum(tl.minimum(tl.load(offsets_ptr + group), T), start)",
    "K": "end - start",
}
LAST_OF_K = "K"
#: The names of these statements that a kernel is given, and that none may change.
_GIVEN = frozenset({"G", "T", "N", "BLOCK_M", "GROUPS", "offsets_ptr"})

#: The number of lanes is at least G. The proof assumes more lanes than there can be.
MOST_LANES = 2**30


def grid(rows: Amount | int) -> tuple[Amount | int, ...]:
    """The tiles of a group, of so many rows each."""
    return extents(f"cdiv(M,{rows}) cdiv(N,BLOCK_N)")


def programs(rows: Amount | int) -> Amount | int:
    """The number of programs, which is at least as many as all groups can have tiles of so many rows."""
    return extents(f"least(T,cdiv(T,{rows})+G)*cdiv(N,BLOCK_N)")[0]


#: The names that are known from the last of these assignments on.
NAMES = ("group", "start", "M", "pid")
LAST = "pid"


def surplus(statement: ast.stmt) -> bool:
    """Whether a statement ends the programs without a tile."""
    return matches(statement, _SURPLUS)


def walked(end: ast.expr) -> bool:
    """Whether a loop's end is the number of tiles of all groups."""
    return matches(end, _ALL)


def why_not(source: Source, latest: Mapping[str, ast.expr], *, walks: bool, ended: bool) -> str | None:
    """Why the assignments so far are not those that find a program's group; None where they are.

    `latest` has the last assignment of each name in order, and `ended` says whether the surplus programs have ended.
    """
    number = {} if walks else {"number": _NUMBER}
    reason = _other(source, latest, {**_ALL_GROUPS, **number, **_OWN_GROUP})
    if reason is not None:
        return reason
    if not matches(source.function("_larger"), _LARGER):
        return "_larger is not the larger of two numbers"
    return None if walks or ended else "programs without a tile do not end"


def why_not_part(source: Source, latest: Mapping[str, ast.expr]) -> str | None:
    """Why the assignments so far are not those that find a group's part of K; None where they are."""
    return _other(source, latest, _PART_OF_K)


def _other(source: Source, latest: Mapping[str, ast.expr], known: Mapping[str, str]) -> str | None:
    """Why the last assignments are not the known ones in their order, each the only one of its name; or None."""
    if [name for name in latest if name in known] != [*known]:
        return "the statements that find a program's group are not in their order"
    strange = next((name for name, text in known.items() if not matches(latest[name], text)), None)
    nodes = (node for node in ast.walk(source.kernel) if isinstance(node, ast.Name))
    stored = [node.id for node in nodes if isinstance(node.ctx, ast.Store)]
    changed = next((name for name in known if stored.count(name) != 1), None)
    changed = changed or next((name for name in stored if name in _GIVEN or stored.count("number") != 1), None)
    return f"{strange or changed} is not computed as it is known to be, once" if strange or changed else None


def names() -> dict[str, Value]:
    """The values of NAMES, which only `facts` describe."""
    values: dict[str, Value] = {name: LaneIntegers(variable(name), width="32") for name in NAMES}
    return values | {LAST: LaneIntegers(variable(PID), width="32")}


def facts() -> tuple[Condition, ...]:
    """What holds for a program with a tile."""
    group, start, rows = variable("group"), variable("start"), variable("M")
    return (
        at_most(0, group),
        below(group, variable("G")),
        at_most(0, start),
        at_most(poly(1), rows),
        at_most(start + rows, variable("T")),
    )


def names_of_part() -> dict[str, Value]:
    """The values of a group's first element along K, and of how many it has."""
    return {name: LaneIntegers(variable(name), width="32") for name in ("start", "K")}


def facts_of_part() -> tuple[Condition, ...]:
    """What holds for a group's part of K."""
    start, depth = variable("start"), variable("K")
    return at_most(0, start), at_most(0, depth), at_most(start + depth, variable("T"))
