"""The smallest portfolio: take out kernels and configurations that measurements hardly miss.

The loss at a size is the time of the fastest configuration that remains over that of the fastest measured one, minus 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from generator.tune.rate_fit import Fit
from generator.tune.samples import Row, Sample, Sizes, row_of
from generator.tune.winners import Winners

#: The largest mean loss over the sizes of a contract, and the largest loss at one size.
MEAN, LARGEST = 0.002, 0.02


def portfolio(samples: Iterable[Sample]) -> frozenset[Row]:
    """The configurations that remain of all that were measured.

    Of each contract, whole kernels are taken out first, then configurations; always what loses least. It ends when
    the mean loss would be above `MEAN`, or the loss at one size above `LARGEST`.
    """
    by_contract: dict[str, dict[Sizes, dict[Row, float]]] = {}
    for sample in samples:
        times = by_contract.setdefault(sample.row[0], {}).setdefault(sample.sizes, {})
        times[sample.row] = min(sample.seconds, times.get(sample.row, math.inf))
    found: set[Row] = set()
    for sizes in by_contract.values():
        ordered = [sorted((seconds, row) for row, seconds in times.items()) for times in sizes.values()]
        rows = {row for times in ordered for _, row in times}
        found |= _without(_without(rows, ordered, _kernel), ordered, _itself)
    return frozenset(found)


def _kernel(row: Row) -> object:
    return row[1]


def _itself(row: Row) -> object:
    return row


def _without(rows: set[Row], ordered: Sequence[Sequence[tuple[float, Row]]], part: Callable[[Row], object]) -> set[Row]:
    """What remains of `rows` once no further part can be taken out; rows with equal `part` go together.

    `ordered` has the times of each size, the fastest first.
    """
    kept = set(rows)
    while True:
        total, more, largest = 0.0, dict.fromkeys(map(part, sorted(kept)), 0.0), dict[object, float]()
        for times in ordered:
            left = [(seconds, part(row)) for seconds, row in times if row in kept]
            best, first = left[0]
            second = next((seconds for seconds, other in left if other != first), math.inf)
            total += best / times[0][0] - 1
            more[first] += (second - best) / times[0][0]
            largest[first] = max(largest.get(first, 0.0), second / times[0][0] - 1)
        possible = [key for key in more if largest.get(key, 0.0) <= LARGEST]
        least = min(possible, key=more.__getitem__, default=None)
        if least is None or (total + more[least]) / len(ordered) > MEAN:
            return kept
        kept = {row for row in kept if part(row) != least}


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
        row, rival = row_of(winner.contract, winner.kernel, winner.config), winner.runner_up
        if rival is not None and row_of(winner.contract, rival.kernel, rival.config) not in kept:
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
