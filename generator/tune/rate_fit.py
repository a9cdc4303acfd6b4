"""Fit the rates of the cost model `generator.cost.fitted` to measurements, and judge the choices that they lead to.

The rates of each configuration are found by a random search with a fixed seed: equal measurements give equal rates.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from generator.bench.stats import rounded
from generator.cost import fitted
from generator.cost.analytic import PRODUCTS

#: M, N and K, after the number of products if there is a batch.
Sizes = tuple[int, ...]
#: A configuration: contract, kernel, and the entry of `CONFIGS` as sorted pairs.
Row = tuple[str, str, tuple[tuple[str, int], ...]]
#: `map`, or the `map` of a pool of processes.
Search = Callable[..., Iterable[tuple[float, ...]]]

#: A configuration that was measured at fewer sizes than this has no rates.
_FEWEST = 4
_TRIES = 400
#: Folds of the cross-validation over sizes: with two, too few sizes might remain to fit a configuration's rates.
_PARTS = 4
#: The number of configurations for which starting another process is worthwhile.
_ENOUGH = 8
#: The weight in the loss of the distance to the starting point, relative to the error of the predictions.
_REGULARISATION = 0.002
#: The numbers of programs that a multiprocessor may hold.
_RESIDENT = (1, 2, 3, 4)
#: Start of the search: seconds of a tile in addition to its steps, memory bytes per second, seconds of a launch.
_TILE, _BANDWIDTH, _LAUNCH = 1e-6, 4e12, 2e-6


@dataclass(frozen=True)
class Sample:
    """The measured seconds of one configuration at one size; `width` is the bytes of an element of A."""

    row: Row
    sizes: Sizes
    width: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """The rates of each configuration, the median error of the model, and the regret of its choice at other sizes.

    `error` is relative to the measured seconds. `regret` is the geometric mean, over sizes that the model was not
    fitted to, of the seconds of the chosen configuration divided by those of the fastest one, minus 1.
    """

    rates: Mapping[Row, tuple[float, ...]]
    error: float
    regret: float


def fit(samples: Iterable[Sample], multiprocessors: int) -> Fit:
    """The rates of every configuration that was measured at enough sizes, and their cross-validation over sizes."""
    everything = list(samples)
    workers = min(os.cpu_count() or 1, len({sample.row for sample in everything}) // _ENOUGH)
    if workers < 2:
        return _fit(everything, multiprocessors, map)
    # Only this process handles Ctrl-C; it then ends the others.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), signal.signal, quiet) as pool:
        return _fit(everything, multiprocessors, pool.map)


def _fit(everything: Sequence[Sample], multiprocessors: int, search: Search) -> Fit:
    rates = _rates(everything, multiprocessors, search)
    errors = [
        abs(_seconds(sample, rates[sample.row], multiprocessors) / sample.seconds - 1)
        for sample in everything
        if sample.row in rates
    ]
    sizes = sorted({sample.sizes for sample in everything})
    lost: list[float] = []
    for first in range(_PARTS):
        unseen = set(sizes[first::_PARTS])
        others = _rates([sample for sample in everything if sample.sizes not in unseen], multiprocessors, search)
        lost += _lost([sample for sample in everything if sample.sizes in unseen], others, multiprocessors)
    return Fit(
        rates,
        rounded(statistics.median(errors), 3) if errors else 0.0,
        rounded(math.exp(statistics.fmean(lost)) - 1, 3) if lost else 0.0,
    )


def _seconds(sample: Sample, rates: tuple[float, ...], multiprocessors: int) -> float:
    row = fitted.rated(dict(sample.row[2]), rates)
    return fitted.seconds([row], sample.sizes, multiprocessors, sample.width)[0]


def _rates(samples: Sequence[Sample], multiprocessors: int, search: Search) -> dict[Row, tuple[float, ...]]:
    """The rates of each configuration that was measured at enough sizes."""
    grouped: dict[Row, list[Sample]] = defaultdict(list)
    for sample in samples:
        grouped[sample.row].append(sample)
    enough = {row: own for row, own in sorted(grouped.items()) if len({s.sizes for s in own}) >= _FEWEST}
    return dict(zip(enough, search(partial(_search, multiprocessors=multiprocessors), enough.values())))


def _search(samples: Sequence[Sample], multiprocessors: int) -> tuple[float, ...]:
    """The rates of one configuration with the least loss that the search finds (`_loss`)."""
    row = dict(samples[0].row[2])
    width = samples[0].width
    step = max(row["BLOCK_M"], 64) * row["BLOCK_N"] * row["BLOCK_K"] / (PRODUCTS * 2 / width)
    start = [math.log(value) for value in (1.5 * step, step, _TILE, _BANDWIDTH, _LAUNCH)]
    # A fixed seed: the search gives the same rates in every process.
    generator = random.Random(0)
    best: tuple[float, int, list[float]] | None = None
    for resident in _RESIDENT:
        found, loss = start, _loss(samples, resident, start, start, multiprocessors)
        reach = 0.5
        for attempt in range(_TRIES):
            other = [value + generator.gauss(0.0, reach) for value in found]
            new = _loss(samples, resident, other, start, multiprocessors)
            if new < loss:
                found, loss = other, new
            elif attempt % 40 == 39:
                reach *= 0.75
        if best is None or loss < best[0]:
            best = loss, resident, found
    assert best is not None
    return (best[1], *(rounded(math.exp(value), 4) for value in best[2]))


def _loss(
    samples: Sequence[Sample], resident: int, rates: Sequence[float], start: Sequence[float], multiprocessors: int
) -> float:
    """The squared errors of the predicted seconds and the squared distances to `start`, summed; all in logarithms."""
    values = (resident, *map(math.exp, rates))
    error = math.fsum(math.log(_seconds(sample, values, multiprocessors) / sample.seconds) ** 2 for sample in samples)
    return error + _REGULARISATION * sum((value - first) ** 2 for value, first in zip(rates, start))


def _lost(samples: Sequence[Sample], rates: Mapping[Row, tuple[float, ...]], multiprocessors: int) -> list[float]:
    """For each problem log(seconds of the configuration that the model chooses / seconds of the fastest one)."""
    problems: dict[tuple[str, Sizes], list[Sample]] = defaultdict(list)
    for sample in samples:
        problems[sample.row[0], sample.sizes].append(sample)
    found = []
    for own in problems.values():
        rated = [sample for sample in own if sample.row in rates]
        if len(rated) > 1:
            chosen = min(rated, key=lambda sample: _seconds(sample, rates[sample.row], multiprocessors))
            found.append(math.log(chosen.seconds / min(sample.seconds for sample in own)))
    return found


def row_of(contract: str, kernel: str, config: Mapping[str, Any]) -> Row:
    """The key of a configuration in samples and rates."""
    return contract, kernel, tuple(sorted(config.items()))
