"""The smallest portfolio: take out kernels and configurations that measurements hardly miss.

The loss at a size is the time of the fastest configuration that remains over that of the fastest measured one, minus 1.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from generator.tune.rate_fit import Fit, Row, Sample, Sizes
from generator.tune.winners import Winners

#: The largest mean loss over the sizes of a contract, and the largest loss at one size.
MEAN, LARGEST = 0.002, 0.02

#: The measured seconds of each configuration at each size of one contract.
_Times = Mapping[Sizes, Mapping[Row, float]]


def portfolio(samples: Iterable[Sample]) -> frozenset[Row]:
    """The configurations that remain of all that were measured.

    Of each contract, whole kernels are taken out first, then configurations; always what loses least. It ends when
    the mean loss would be above `MEAN`, or the loss at one size above `LARGEST`.
    """
    by_contract: dict[str, dict[Sizes, dict[Row, float]]] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        times = by_contract[sample.row[0]][sample.sizes]
        times[sample.row] = min(sample.seconds, times.get(sample.row, math.inf))
    found: set[Row] = set()
    for times in by_contract.values():
        rows = {row for each in times.values() for row in each}
        kept = _without(_without(rows, times, lambda row: row[1]), times, lambda row: row)
        found |= kept
    return frozenset(found)


def _without(rows: set[Row], times: _Times, part: Callable[[Row], object]) -> set[Row]:
    """What remains of `rows` once no further part can be taken out; rows with equal `part` go together."""
    kept = set(rows)
    while True:
        parts: dict[object, set[Row]] = defaultdict(set)
        for row in sorted(kept):
            parts[part(row)].add(row)
        losses = {key: _loss(kept - gone, times) for key, gone in parts.items()}
        least = min(losses, key=lambda key: (losses[key], str(key)))
        if losses[least] > MEAN:
            return kept
        kept -= parts[least]


def _loss(kept: set[Row], times: _Times) -> float:
    """The mean loss over the sizes; infinite if one is too large."""
    losses = []
    for measured in times.values():
        left = min((seconds for row, seconds in measured.items() if row in kept), default=math.inf)
        losses.append(left / min(measured.values()) - 1)
    return statistics.fmean(losses) if max(losses) <= LARGEST else math.inf


def pruned(found: Winners, samples: Iterable[Sample], kept: frozenset[Row]) -> Winners:
    """The winners and rates with the configurations of `kept` only.

    A winner that is taken out is replaced by the fastest configuration that remains and was measured at its size.
    """
    best: dict[tuple[str, Sizes], tuple[float, Row]] = {}
    for sample in samples:
        if sample.row in kept:
            place = sample.row[0], sample.sizes
            best[place] = min(best.get(place, (math.inf, sample.row)), (sample.seconds, sample.row))
    winners = []
    for winner in found.winners:
        row = (winner.contract, winner.kernel, tuple(sorted(winner.config.items())))
        rival = winner.runner_up
        if rival is not None and (winner.contract, rival.kernel, tuple(sorted(rival.config.items()))) not in kept:
            winner = replace(winner, runner_up=None)
        if row in kept:
            winners.append(winner)
        elif winner.place in best:
            seconds, (_, kernel, config) = best[winner.place]
            winners.append(replace(winner, kernel=kernel, config=dict(config), seconds=seconds, runner_up=None))
    rates = {row: rates for row, rates in found.fit.rates.items() if row in kept}
    named = {winner.kernel for winner in winners} | {kernel for _, kernel, _ in rates}
    named |= {winner.runner_up.kernel for winner in winners if winner.runner_up is not None}
    kernels = {name: digest for name, digest in found.kernels.items() if name in named}
    return Winners(found.place, kernels, tuple(winners), Fit(rates, found.fit.error, found.fit.regret))
