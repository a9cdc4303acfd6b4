"""Stores that together write every element of a symmetric result once: those of a tile, and those of its mirror image.

A program has a tile on or above the diagonal, and every such tile has one program (`folded`). A lane of the tile stands
for an element in row m and column n. Exactly one store of the lane's own element runs where m <= n, and none elsewhere;
exactly one store of the mirrored element, in row n and column m, where m < n. So each element on or above the diagonal
is stored by its own lane, and each one below by the lane of the element that it is a copy of.

Of two kernels the first stores whole tiles of partial sums, also what a tile on the diagonal has below it, and the
second reads those of its own tiles. Both have the same blocks of BLOCK_N by BLOCK_N elements, whose tiles are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeAlias

from generator.bounds import folded
from generator.bounds.evaluate import Walk
from generator.bounds.faults import NotLinear, by_stride, indices
from generator.bounds.launch_facts import SUMS, Launcher, LaunchFacts
from generator.bounds.order_proof import OrderVerdict
from generator.bounds.rewriting import holds, value
from generator.bounds.sites import Site
from generator.bounds.solve import together
from generator.bounds.symbolic_values import lane, lanes
from generator.bounds.terms import Condition, Poly, at_most, below, either, every, negation, variable
from generator.bounds.triton_semantics import PART

#: The condition that a lane's element, in a row and a column, is to be stored.
Wanted: TypeAlias = Callable[[Poly, Poly], Condition]


def wrongly_stored(known: Launcher, launch: LaunchFacts, walked: Walk) -> OrderVerdict:
    """Whether a kernel writes each element of its results, or of its tiles' sums, once."""
    facts = [*launch.facts, *walked.facts]
    stores = [site for site in walked.sites if site.kind == "store"]
    results = {name: [site for site in stores if site.operand == name] for name in sorted(known.results)}
    summed = [site for site in walked.sites if site.operand == SUMS and site.kind == "load"]
    try:
        if SUMS in known.results:
            if summed:
                raise NotLinear(f"line {summed[0].line}: {SUMS} are read by the kernel that stores them")
            own, _ = _divided(results[SUMS], known, launch, mirrored=False)
            return _one_of(own, lambda row, _: below(row, variable("M")), facts)
        # Sums are read where the first kernel has a tile, too: their index is that of the lane.
        _divided(summed, known, launch, mirrored=False)
        verdicts: list[OrderVerdict] = []
        for sites in results.values():
            own, mirrored = _divided(sites, known, launch, mirrored=True)
            verdicts += [_one_of(own, at_most, facts), _one_of(mirrored, below, facts)]
        return next((verdict for verdict in verdicts if verdict.state != "proved"), verdicts[0])
    except NotLinear as error:
        return OrderVerdict("not proved", f"not every element is known to be stored once: {error}")


def _place(site: Site) -> tuple[Poly, Poly]:
    """Row and column of a lane's element."""
    rows, columns = site.shape
    row, column = (variable(name) for name in folded.TILE)
    return row * rows + lane(0), column * columns + lane(1)


def _divided(
    sites: Sequence[Site], known: Launcher, launch: LaunchFacts, *, mirrored: bool
) -> tuple[list[Site], list[Site]]:
    """The accesses to a lane's own element, and to the mirrored one if there may be any; else raises `NotLinear`."""
    sides: tuple[list[Site], list[Site]] = ([], [])
    for site in sites:
        if site.descriptor is not None or site.adds or len(site.shape) != 2:
            raise NotLinear(f"line {site.line}: an access that is none of a tile's elements")
        *front, row, column = indices(by_stride(site.offset, known.strides), launch.operands[site.operand])
        first = variable(PART) if site.operand == SUMS else variable("batch")
        own = _place(site)
        if site.operand == SUMS and known.results != {SUMS}:
            # The second kernel adds all parts.
            front = []
        if any(index != first for index in front) or (row, column) not in (own, own[::-1]):
            raise NotLinear(f"line {site.line}: row {row} and column {column}")
        turned = (row, column) != own
        if turned and not mirrored:
            raise NotLinear(f"line {site.line}: an element of another tile")
        sides[turned].append(site)
    return sides


def _one_of(sites: Sequence[Site], wanted: Wanted, facts: Sequence[Condition]) -> OrderVerdict:
    """Whether exactly one of the stores runs in the lanes of a column that `wanted` says, and none in others."""
    if not sites:
        return OrderVerdict("refuted", "a tile, or its mirror image, is not stored")
    if len({site.shape for site in sites}) != 1:
        raise NotLinear("stores of other tiles than one")
    known = [*facts, *lanes(sites[0].shape)]
    runs = [every([*site.path, site.mask]) for site in sites]
    row, column = _place(sites[0])
    lane_of = every([wanted(row, column), below(column, variable("M"))])
    asked = [
        ([run, negation(lane_of)], site, "is stored, and is none of those that this store is for")
        for run, site in zip(runs, sites)
    ]
    pairs = combinations(zip(runs, sites), 2)
    asked += [([run, other], site, "is stored twice") for (other, _), (run, site) in pairs]
    asked.append(([lane_of, negation(either(runs))], sites[0], "is never stored"))
    for conditions, site, fault in asked:
        answer = together([*known, *conditions])
        if answer.verdict == "impossible":
            continue
        message = f"line {site.line}: an element may be one that {fault}"
        at = dict(answer.model)
        if answer.verdict == "possible" and all(holds(condition, at) for condition in [*known, *conditions]):
            element = f"row {value(row, at)} and column {value(column, at)}"
            return OrderVerdict("refuted", f"line {site.line}: for M = {at.get('M')}, the element in {element} {fault}")
        return OrderVerdict("not proved", message)
    return OrderVerdict("proved", "")
