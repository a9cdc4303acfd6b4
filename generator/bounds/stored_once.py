"""Stores that together write every element of a result, each element by one program.

A second kernel reads what the first has stored, and a part of K that nobody stored is memory that nobody set. So of two
kernels more is claimed than that every tile has a program: a store's tile must be as large as the grid counts them.
Along each dimension the index is `size * place + lane`: `place` is a coordinate of the tile, or the part of K, each of
them along one dimension, and `lane` is below `size`. There are just as many places as it takes to cover the dimension,
and the mask leaves out nothing inside.

A result with two columns for each of the product has two stores, one for each half: its columns are those of the tile
and N more, or twice those and one more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from generator.bounds.evaluate import Walk
from generator.bounds.faults import NotLinear, by_stride, indices
from generator.bounds.launch_facts import BETWEEN, Launcher, LaunchFacts
from generator.bounds.order_proof import size_along
from generator.bounds.runtime_theorems import LaunchedTensor
from generator.bounds.sites import Site
from generator.bounds.solve import together
from generator.bounds.symbolic_values import lane, lanes
from generator.bounds.terms import Condition, Poly, at_most, below, either, every, negation, poly, variable
from generator.bounds.triton_semantics import PART, SECOND_AXIS


def uncovered(known: Launcher, launch: LaunchFacts, walked: Walk) -> str | None:
    """Why one of two kernels is not known to write each element of its results once; None where it is."""
    own = known.results & BETWEEN
    loads = [site for site in walked.sites if site.operand in own and site.kind == "load"]
    if loads:
        return f"line {loads[0].line}: {loads[0].operand} is read by the kernel that stores it"
    facts = [*launch.facts, *walked.facts]
    for name in sorted(known.results):
        stores = [site for site in walked.sites if site.operand == name and site.kind == "store"]
        tiles = {}
        for site in stores:
            try:
                tiles[site] = _tile(site, launch.operands[name], known)
            except NotLinear as error:
                return f"line {site.line}: not every element of {name} is known to be stored once: {error}"
        halves = _halves(tiles, variable(known.extents[-1]))
        # Both halves are stored by every program; of the stores of another result each program runs one.
        alternatives = [[site] for site in stores] if halves else [stores]
        if not all(_one_runs(sites, facts) for sites in alternatives):
            return f"not every program is known to store its tile of {name} once"
        for site in stores:
            reason = _missed(site, (halves or tiles)[site], launch, walked)
            if reason:
                return f"line {site.line}: not every element of {name} is known to be stored once: {reason}"
    return None


@dataclass(frozen=True)
class _Tile:
    """What a store reaches: along each dimension the index, the size of a descriptor's block or None, the extent."""

    indices: tuple[Poly, ...]
    blocks: tuple[int | None, ...]
    extents: tuple[Poly, ...]


def _halves(tiles: Mapping[Site, _Tile], columns: Poly) -> Mapping[Site, _Tile] | None:
    """The two stores of a result with two columns for each of the product, by its columns; None of other results."""
    if len(tiles) != 2 or any(tile.extents[-1] != columns * 2 for tile in tiles.values()):
        return None
    first, second = (tile.indices[-1] for tile in tiles.values())
    even = all(coefficient % 2 == 0 for _, coefficient in first.terms)
    if second - first == columns:
        column = first
    elif second - first == poly(1) and even:
        column = Poly(tuple((atoms, coefficient // 2) for atoms, coefficient in first.terms))
    else:
        return None
    return {
        site: replace(tile, indices=(*tile.indices[:-1], column), extents=(*tile.extents[:-1], columns))
        for site, tile in tiles.items()
    }


def _one_runs(stores: Sequence[Site], facts: Sequence[Condition]) -> bool:
    """Whether each program runs exactly one of the stores, and once."""
    runs = [every(site.path) for site in stores]
    doubts = [every(map(negation, runs)), *(every(pair) for pair in combinations(runs, 2))]
    return all(together([*facts, doubt]).verdict == "impossible" for doubt in doubts)


def _missed(site: Site, tile: _Tile, launch: LaunchFacts, walked: Walk) -> str | None:
    """Why a store of every program may leave out an element, or store one twice; None where it does neither."""
    counts = _places(launch, walked)
    if counts is None:
        return "the coordinates of a program's tile are not known"
    if site.adds:
        return "it adds to what is there"
    facts, inside = [*launch.facts, *walked.facts], list[Condition]()
    places, axes = list[str](), list[int]()
    for index, block, extent in zip(tile.indices, tile.blocks, tile.extents, strict=True):
        names = [name for name in counts if name in index.variables]
        over = [axis for axis in range(len(site.shape)) if f"lane{axis}" in index.variables]
        size = block or (site.shape[over[0]] if over else 1)
        place = variable(names[0]) if names else poly(0)
        if len(names) != 1 or len(over) > 1 or index != place * size + (lane(over[0]) if over else poly(0)):
            return f"{index} is not one of {size} elements of each tile"
        count = counts[names[0]]
        missed = either([below(count * size, extent), at_most(extent, (count - 1) * size)])
        if together([*facts, missed]).verdict != "impossible":
            return f"{count} tiles of {size} are not known to be those of {extent} elements"
        places += names
        axes += over
        inside += [at_most(0, index), below(index, extent)]
    if sorted(places) != sorted(counts) or len(set(axes)) != len(axes):
        return "several programs, or lanes, have the same element"
    if together([*facts, *site.path, *lanes(site.shape), *inside, negation(site.mask)]).verdict != "impossible":
        return "its mask may leave out an element that there is"
    return None


def _tile(site: Site, operand: LaunchedTensor, known: Launcher) -> _Tile:
    """What a store reaches of its operand."""
    if site.descriptor is None:
        found = indices(by_stride(site.offset, known.strides), operand)
        return _Tile(tuple(found), (None,) * len(operand.shape), operand.shape)
    turned = -1 if site.descriptor.turned else 1
    return _Tile(site.coordinates[::turned], site.descriptor.block[::turned], operand.shape)


#: How many matrices there are, by the name for the number of one.
_MATRICES = {"batch": "B", "group": "G"}


def _places(launch: LaunchFacts, walked: Walk) -> Mapping[str, Poly] | None:
    """How many places there are for each coordinate of a tile, and for the part; None where that is not known."""
    sides = {name: [x for x in launch.grid if x.variables == {size_along(name)}] for name in walked.replaced}
    if len(sides) != 2 or any(len(side) != 1 for side in sides.values()):
        return None
    counts = {name: side[0] for name, side in sides.items()}
    if launch.batch is not None:
        # The number of a matrix, by the name that the walk gives it.
        counts |= {name: launch.batch for name in ("batch", "group") if launch.batch.variables == {_MATRICES[name]}}
    return counts | ({PART: poly(launch.sharing)} if SECOND_AXIS in launch.arguments else {})
