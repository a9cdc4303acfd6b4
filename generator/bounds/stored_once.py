"""Stores that together write every element of a result, each element by one program.

A second kernel reads what the first has stored, and a part of K that nobody stored is memory that nobody set. So of two
kernels more is claimed than that every tile has a program: a store's tile must be as large as the grid counts them.
Along each dimension the index is `size * place + lane`: `place` is a coordinate of the tile, or the part of K, each of
them along one dimension, and `lane` is below `size`. There are just as many places as it takes to cover the dimension,
and the mask leaves out nothing inside.

A result with two columns for each of the product has two stores, one for each half: its columns are those of the tile
and N more, or twice those and one more.

A tile of several blocks has a store for each. Along one dimension the index of a store is `size * place + start + lane`
then: the blocks follow each other, from the tile's first element on, and `size` is what they have together.
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
    # Rows of groups may be stored elsewhere, or not at all; but each group's partial sums are those that are added.
    for name in sorted(own if launch.grouped else known.results):
        stores = [site for site in walked.sites if site.operand == name and site.kind == "store"]
        tiles = {}
        for site in stores:
            try:
                tile = _tile(site, launch.operands[name], known)
                tiles[site] = _of_group(tile) if launch.grouped else tile
            except NotLinear as error:
                return f"line {site.line}: not every element of {name} is known to be stored once: {error}"
        apart = _halves(tiles, variable(known.extents[-1])) or _blocks(tiles)
        # Halves and blocks are stored by every program; of the stores of another result each program runs one.
        alternatives = [[site] for site in stores] if apart else [stores]
        if not all(_one_runs(sites, facts) for sites in alternatives):
            return f"not every program is known to store its tile of {name} once"
        for site in stores:
            reason = _missed(site, (apart or tiles)[site], launch, walked)
            if reason:
                return f"line {site.line}: not every element of {name} is known to be stored once: {reason}"
    return None


@dataclass(frozen=True)
class _Tile:
    """What a store reaches: along each dimension the index, the size of a descriptor's block or None, the extent."""

    indices: tuple[Poly, ...]
    blocks: tuple[int | None, ...]
    extents: tuple[Poly, ...]
    #: Along each dimension the first element of the store in its tile, and the tile's size where that is another.
    starts: tuple[int, ...]
    sizes: tuple[int | None, ...]


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


def _blocks(tiles: Mapping[Site, _Tile]) -> Mapping[Site, _Tile] | None:
    """The stores of a tile's blocks, which follow each other along one dimension; None of other results."""
    if len(tiles) < 2:
        return None
    least = next(iter(tiles.values()))
    differ = [at for at, index in enumerate(least.indices) if any(x.indices[at] != index for x in tiles.values())]
    if len(differ) != 1:
        return None
    (at,) = differ
    behind = {site: (tile.indices[at] - least.indices[at]).constant for site, tile in tiles.items()}
    starts = {site: int(each) for site, each in behind.items() if each is not None}
    if len(starts) != len(tiles):
        return None
    # Counted from the first block, which is not the one that is stored first in each kernel.
    ordered, total = sorted(tiles, key=lambda site: starts[site]), 0
    first_of = dict[Site, int]()
    for site in ordered:
        along = [axis for axis in range(len(site.shape)) if f"lane{axis}" in tiles[site].indices[at].variables]
        if len(along) != 1 or starts[site] - starts[ordered[0]] != total:
            return None
        first_of[site] = total
        total += site.shape[along[0]]

    def block(tile: _Tile, start: int) -> _Tile:
        own = [(start, total) if index == at else (0, None) for index in range(len(tile.indices))]
        return replace(tile, starts=tuple(x for x, _ in own), sizes=tuple(x for _, x in own))

    return {site: block(tiles[site], start) for site, start in first_of.items()}


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
    dimensions = zip(tile.indices, tile.blocks, tile.extents, tile.starts, tile.sizes, strict=True)
    for index, block, extent, start, whole in dimensions:
        names = [name for name in counts if name in index.variables]
        over = [axis for axis in range(len(site.shape)) if f"lane{axis}" in index.variables]
        size = whole or block or (site.shape[over[0]] if over else 1)
        place = variable(names[0]) if names else poly(0)
        if len(names) != 1 or len(over) > 1 or index - start != place * size + (lane(over[0]) if over else poly(0)):
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
        places = indices(by_stride(site.offset, known.strides), operand)
        return _Tile(tuple(places), (None,) * len(operand.shape), operand.shape, *_whole(len(operand.shape)))
    turned = -1 if site.descriptor.turned else 1
    blocks = site.descriptor.block[::turned]
    return _Tile(site.coordinates[::turned], blocks, operand.shape, *_whole(len(operand.shape)))


def _whole(dimensions: int) -> tuple[tuple[int, ...], tuple[None, ...]]:
    """The first element of a store of whole tiles in its tile, and that the tile has no other size."""
    return (0,) * dimensions, (None,) * dimensions


def _of_group(tile: _Tile) -> _Tile:
    """What a store reaches of the rows of its group, which are M from `start` on."""
    divided = [extent == variable("T") for extent in tile.extents]
    indices = [index - variable("start") if own else index for own, index in zip(divided, tile.indices, strict=True)]
    extents = [variable("M") if own else extent for own, extent in zip(divided, tile.extents, strict=True)]
    return replace(tile, indices=tuple(indices), extents=tuple(extents))


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
