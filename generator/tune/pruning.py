"""The smallest portfolio: take out kernels and configurations that measurements hardly miss.

The loss at a size is the time of the fastest configuration that remains over that of the fastest measured one, minus 1.
Few sizes can be measured: the fitted model may stand in for measurements at others (`predicted`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from generator.language.model import Variant
from generator.plan.devices import Device
from generator.problem.product import Shape
from generator.runtime import fitted
from generator.tune.outcome import Row, Sizes
from generator.tune.samples import RateFit, Sample, crossing, pitches
from generator.tune.winners import Winners

#: The largest mean loss over all sizes, and the largest loss at one size.
MEAN, LARGEST = 0.002, 0.02
#: The largest loss at one size where times are modelled, whose median error is about as large.
MODELLED = 0.05
#: A configuration that was measured at fewer sizes of a contract has no modelled times: its rates are mostly guessed.
_FEWEST = 24

#: A configuration of a kernel, which is called as in each contract: the name after the contract, and the entry.
_Part = tuple[str, tuple[tuple[str, int], ...]]


def predicted(
    fit: RateFit, samples: Iterable[Sample], shapes: Iterable[Shape], variants: Mapping[str, Variant], device: Device
) -> Iterator[Sample]:
    """The modelled seconds of every configuration with rates, at sizes that were not measured with its contract.

    `variants` are those of the kernels that were measured, by name. Left out are configurations that were measured at
    few sizes, and sizes with rows of A or B that are not multiples of 16 bytes: not every kernel takes these.
    """
    widths, measured, counts = dict[str, int](), set[tuple[str, Sizes]](), Counter[Row]()
    for sample in samples:
        widths[sample.row[0]] = sample.width
        measured.add((sample.row[0], sample.sizes))
        counts[sample.row] += sample.aligned
    rows: dict[str, list[Row]] = {}
    for row in fit.rates:
        if counts[row] >= _FEWEST:
            rows.setdefault(row[0], []).append(row)
    for contract, own in rows.items():
        _, kernel, _ = own[0]
        variant, width = variants[kernel], widths[contract]
        rated = [fitted.rated(dict(row[2]), fit.rates[row]) for row in own]
        for shape in shapes:
            sizes, layout = shape.sizes, variant.layout
            if (contract, sizes) in measured or shape.products != variant.batch:
                continue
            if any(pitch % 16 for pitch in pitches(layout, sizes, width)):
                continue
            times = fitted.seconds(rated, sizes, device.multiprocessors, width, crossing(layout, sizes, width))
            yield from (Sample(row, sizes, width, seconds) for row, seconds in zip(own, times))


def portfolio(samples: Iterable[Sample], modelled: Iterable[Sample] = ()) -> frozenset[Row]:
    """The configurations that remain of all that were measured.

    Whole kernels are taken out first, then configurations, of all contracts at once; always what loses least. It ends
    when the mean loss would be above `MEAN`, or the loss at one size above `LARGEST`; above `MODELLED` where the times
    are `modelled` (`predicted`). What one contract needs, the others keep too: their sizes may not have asked for it
    only because fewer were measured.
    """
    samples = list(samples)
    sizes = [*_sizes(samples, LARGEST), *_sizes(modelled, MODELLED)]
    parts = {part for size in sizes for _, part in size.times}
    kept = _without(_without(parts, sizes, 1), sizes, 2) if sizes else set()
    return frozenset(sample.row for sample in samples if _part(sample.row) in kept)


@dataclass(frozen=True)
class _Size:
    """The times of one contract and size, the fastest first, and the largest loss there."""

    times: Sequence[tuple[float, _Part]]
    largest: float


def _sizes(samples: Iterable[Sample], largest: float) -> list[_Size]:
    by_size: dict[tuple[str, Sizes], dict[_Part, float]] = {}
    for sample in samples:
        times = by_size.setdefault((sample.row[0], sample.sizes), {})
        times[_part(sample.row)] = min(sample.seconds, times.get(_part(sample.row), math.inf))
    return [_Size(sorted((seconds, part) for part, seconds in times.items()), largest) for times in by_size.values()]


def _part(row: Row) -> _Part:
    return row[1].rpartition("__")[2], row[2]


def _without(rows: set[_Part], sizes: Sequence[_Size], names: int) -> set[_Part]:
    """What remains of `rows` once nothing more can be taken out; rows that begin with the same `names` go together."""
    kept = set(rows)
    while True:
        total, more, needed = 0.0, dict.fromkeys((row[:names] for row in sorted(kept)), 0.0), set[object]()
        for size in sizes:
            fastest = size.times[0][0]
            left = [(seconds, row[:names]) for seconds, row in size.times if row in kept]
            best, first = left[0]
            second = next((seconds for seconds, other in left if other != first), math.inf)
            total += best / fastest - 1
            more[first] += (second - best) / fastest
            if second / fastest - 1 > size.largest:
                needed.add(first)
        possible = [key for key in more if key not in needed]
        least = min(possible, key=more.__getitem__, default=None)
        if least is None or (total + more[least]) / len(sizes) > MEAN:
            return kept
        kept = {row for row in kept if row[:names] != least}


def pruned(before: Winners, samples: Iterable[Sample], kept: frozenset[Row]) -> Winners:
    """The winners and rates with the configurations of `kept` only.

    A winner that is taken out is replaced by the fastest configuration that remains and was measured at its size.
    """
    best: dict[tuple[str, Sizes], tuple[float, Row]] = {}
    for sample in samples:
        if sample.row in kept:
            key = sample.row[0], sample.sizes
            best[key] = min(best.get(key, (math.inf, sample.row)), (sample.seconds, sample.row))
    winners = []
    for winner in before.winners:
        if standing := winner.standing(kept.__contains__):
            winners.append(standing)
        elif winner.place in best:
            seconds, (_, kernel, config) = best[winner.place]
            winners.append(replace(winner, kernel=kernel, config=dict(config), seconds=seconds, runner_up=None))
    rates = {row: rates for row, rates in before.fit.rates.items() if row in kept}
    named = {winner.kernel for winner in winners} | {kernel for _, kernel, _ in rates}
    named |= {winner.runner_up.kernel for winner in winners if winner.runner_up is not None}
    kernels = {name: digest for name, digest in before.kernels.items() if name in named}
    return Winners(before.place, kernels, tuple(winners), RateFit(rates, before.fit.error, before.fit.regret))
