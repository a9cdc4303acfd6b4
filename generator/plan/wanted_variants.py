"""The variants that a spec asks for, in order, before exclusions and legality: by its axes, tiles or the portfolio."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from generator.language.model import Spec, Tile, Variant
from generator.language.vocabulary import (
    AXES,
    DEFAULTS,
    OPEN_AXES,
    PAIRED,
    SCHEDULE,
    SPLIT_K,
    TILED,
    schedule_of_blocks,
)
from generator.language.word_traits import Schedule
from generator.plan import portfolio

#: A variant to visit, and its configurations if the portfolio has chosen them.
Wanted = tuple[Variant, tuple[Tile, ...] | None]


def wanted_variants(spec: Spec) -> Iterator[Wanted]:
    """The product of the axes of `spec`, in their order; axes that it leaves open are filled from the portfolio."""
    opened = OPEN_AXES if spec.select == "fastest" else ()
    for values in itertools.product(*((DEFAULTS[axis],) if axis in opened else spec.axes[axis] for axis in AXES)):
        variant = Variant(*values)  # type: ignore[arg-type]
        for wanted in of_contract(spec, variant) if opened else [(variant, None)]:
            yield from of_tiles(spec, *wanted)


def of_tiles(spec: Spec, variant: Variant, tiles: tuple[Tile, ...] | None) -> Iterator[Wanted]:
    """A variant, or those of its blocks for which the spec lists tiles where its schedule asks for them."""
    asking = variant.schedule
    if asking not in (PAIRED, asks(variant.traits, spec)) or not spec.tiles:
        yield variant, tiles
        return
    wanted = {word for index in range(len(spec.tiles)) for word in schedules_of(spec, index, variant.traits)}
    # Two equal widths are no sum of different powers of two.
    whole = any(not tile.several_blocks for tile in spec.tiles)
    itself = (asking != PAIRED or variant.product == "exchanged") and whole
    for word in (word for word in SCHEDULE if word in wanted or (word == asking and (itself or not wanted))):
        if word == asking or word not in spec.axes["schedule"]:
            yield replace(variant, schedule=word), tiles


def asks(traits: Schedule, spec: Spec) -> str:
    """The schedule that asks, by the tiles of a spec, for those of several blocks: `tiled`, unless such are listed."""
    if traits.splits:
        return SPLIT_K
    blocks = any(SCHEDULE[str(word)].pairs and not SCHEDULE[str(word)].splits for word in spec.axes["schedule"])
    return PAIRED if blocks else TILED


def schedules_of(spec: Spec, index: int, of: Schedule) -> set[str]:
    """The schedules that divide K as `of` does, or not, whose tiles have the blocks of an entry of `tile`.

    None for powers of two, nor where the spec has schedules of both kinds and the entry's key `split` tells the other.
    """
    assert spec.tiles is not None
    words = [str(word) for word in spec.axes["schedule"]] or [*SCHEDULE]
    tile, listed = spec.tiles[index], [SCHEDULE[word] for word in words]
    kinds = {each.splits for each in listed if each.pairs or each.joins}
    kinds |= {False} if TILED in words and asks(SCHEDULE[TILED], spec) == TILED else set()
    if len(kinds) > 1 and (("tile.split", str(index)) in spec.positions) != of.splits:
        return set()
    schedules = {schedule_of_blocks(side, size, splits=of.splits) for side, size in (("m", tile.m), ("n", tile.n))}
    return {word for word in schedules if word is not None}


def as_asked(spec: Spec, variant: Variant) -> Variant:
    """A variant as the spec asks for it: `tiled`, `paired` and `split_k` ask for other schedules by its tiles."""
    listed, asking = spec.axes["schedule"], asks(variant.traits, spec)
    by_tiles = variant.traits.pairs and asking in listed and variant.schedule not in listed
    return replace(variant, schedule=asking) if by_tiles else variant


def of_contract(spec: Spec, contract: Variant) -> Iterator[Wanted]:
    """The implementations of the contract of a variant."""
    if spec.select == "fastest":
        yield from portfolio.implementations(spec, contract)
        return
    for values in itertools.product(*(spec.axes[axis] for axis in OPEN_AXES)):
        yield replace(contract, **dict(zip(OPEN_AXES, values, strict=True))), None  # type: ignore[arg-type]
