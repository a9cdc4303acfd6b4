"""The variants that a spec asks for, in order, before exclusions and legality: by its axes, tiles or the portfolio."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from generator.language.model import Spec, Tile, Variant
from generator.language.vocabulary import AXES, DEFAULTS, OPEN_AXES, PAIRED, SCHEDULE, SPLIT_K, schedule_of_blocks
from generator.language.word_traits import Schedule
from generator.plan import portfolio

#: A variant to visit, and its configurations if the portfolio has chosen them.
Wanted = tuple[Variant, tuple[Tile, ...] | None]

#: The schedules that ask for others by the tiles that a spec lists.
ASKING = (PAIRED, SPLIT_K)


def wanted_variants(spec: Spec) -> Iterator[Wanted]:
    """The product of the axes of `spec`, in their order; axes that it leaves open are filled from the portfolio."""
    opened = OPEN_AXES if spec.select == "fastest" else ()
    for values in itertools.product(*((DEFAULTS[axis],) if axis in opened else spec.axes[axis] for axis in AXES)):
        variant = Variant(*values)  # type: ignore[arg-type]
        for wanted in of_contract(spec, variant) if opened else [(variant, None)]:
            yield from of_tiles(spec, *wanted)


def of_tiles(spec: Spec, variant: Variant, tiles: tuple[Tile, ...] | None) -> Iterator[Wanted]:
    """A variant, or for `paired` and `split_k` those whose tiles the spec lists: of blocks, of rows or of columns."""
    asking = variant.schedule
    if asking not in ASKING or not spec.tiles:
        yield variant, tiles
        return
    wanted = {word for index in range(len(spec.tiles)) for word in schedules_of(spec, index, variant.traits)}
    # Two equal widths are no sum of different powers of two.
    whole = any(not tile.several_blocks for tile in spec.tiles)
    itself = (asking == SPLIT_K or variant.product == "exchanged") and whole
    for word in (word for word in SCHEDULE if word in wanted or (word == asking and (itself or not wanted))):
        if word == asking or word not in spec.axes["schedule"]:
            yield replace(variant, schedule=word), tiles


def asks(traits: Schedule) -> str:
    """The schedule that asks for one of several blocks."""
    return SPLIT_K if traits.splits else PAIRED


def schedules_of(spec: Spec, index: int, of: Schedule) -> set[str]:
    """The schedules that divide K as `of` does, or not, whose tiles have the blocks of an entry of `tile`.

    None for powers of two, nor where the spec has schedules of both kinds and the entry's key `split` tells the other.
    """
    assert spec.tiles is not None
    tile, listed = spec.tiles[index], [SCHEDULE[str(word)] for word in spec.axes["schedule"]] or [*SCHEDULE.values()]
    kinds = {each.splits for each in listed if each.pairs or each.joins}
    if len(kinds) > 1 and (("tile.split", str(index)) in spec.positions) != of.splits:
        return set()
    found = {schedule_of_blocks(side, size, splits=of.splits) for side, size in (("m", tile.m), ("n", tile.n))}
    return {word for word in found if word is not None}


def as_asked(spec: Spec, variant: Variant) -> Variant:
    """A variant as the spec asks for it: `paired` and `split_k` ask for other schedules by its tiles."""
    listed, asking = spec.axes["schedule"], asks(variant.traits)
    by_tiles = variant.traits.pairs and asking in listed and variant.schedule not in listed
    return replace(variant, schedule=asking) if by_tiles else variant


def of_contract(spec: Spec, contract: Variant) -> Iterator[Wanted]:
    """The implementations of the contract of a variant."""
    if spec.select == "fastest":
        yield from ((each.variant, each.tiles) for each in portfolio.implementations(spec, contract))
        return
    for values in itertools.product(*(spec.axes[axis] for axis in OPEN_AXES)):
        yield replace(contract, **dict(zip(OPEN_AXES, values, strict=True))), None  # type: ignore[arg-type]
