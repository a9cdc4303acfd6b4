"""Rates of the rows of a table, fitted to what was measured of them, and how good a choice they make.

The model is `generator.cost.fitted`. Its rates are found by a random search, the same for the same measurements.
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

#: M, N and K, behind the products of a batch where there is one.
Sizes = tuple[int, ...]
#: Contract, kernel and row, the row as sorted pairs.
Row = tuple[str, str, tuple[tuple[str, int], ...]]
#: `map`, or one that works side by side.
Search = Callable[..., Iterable[tuple[float, ...]]]

#: A row measured at fewer sizes than this has no rates.
_FEWEST = 4
_TRIES = 400
#: The sizes are judged in so many parts: half of few sizes would leave too few to fit a row's rates to.
_PARTS = 4
#: Rows for which another process is worth its start.
_ENOUGH = 8
#: How far the rates are held to where the search starts, against what they are off by.
_HELD = 0.002
#: Programs that a multiprocessor may hold.
_RESIDENT = (1, 2, 3, 4)
#: Where the search starts: seconds a tile takes beside its steps, bytes a second of the memory, seconds of a launch.
_TILE, _BANDWIDTH, _LAUNCH = 1e-6, 4e12, 2e-6


@dataclass(frozen=True)
class Sample:
    """One row, measured at one size; `width` is the bytes of an element of A."""

    row: Row
    sizes: Sizes
    width: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """The rates of each row, the median error of the model, and what its choice loses at other sizes.

    `error` is a share of the measured seconds, `regret` the geometric mean of the seconds of the row chosen over those
    of the best, less 1.
    """

    rates: Mapping[Row, tuple[float, ...]]
    error: float
    regret: float


def fit(samples: Iterable[Sample], multiprocessors: int) -> Fit:
    """The rates of every row that was measured often enough; each part of the sizes is also judged by the others."""
    everything = list(samples)
    workers = min(os.cpu_count() or 1, len({sample.row for sample in everything}) // _ENOUGH)
    if workers < 2:
        return _fit(everything, multiprocessors, map)
    # Ctrl-C is for this process, which then ends the others.
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
    return fitted.seconds(dict(sample.row[2]), rates, sample.sizes, multiprocessors, sample.width)


def _rates(samples: Sequence[Sample], multiprocessors: int, search: Search) -> dict[Row, tuple[float, ...]]:
    """The rates of each row that was measured often enough."""
    grouped: dict[Row, list[Sample]] = defaultdict(list)
    for sample in samples:
        grouped[sample.row].append(sample)
    often = {row: own for row, own in sorted(grouped.items()) if len({s.sizes for s in own}) >= _FEWEST}
    return dict(zip(often, search(partial(_search, multiprocessors=multiprocessors), often.values())))


def _search(samples: Sequence[Sample], multiprocessors: int) -> tuple[float, ...]:
    """The rates that are off by the least, in the mean of the squared logarithms."""
    row = dict(samples[0].row[2])
    width = samples[0].width
    step = max(row["BLOCK_M"], 64) * row["BLOCK_N"] * row["BLOCK_K"] / (PRODUCTS * 2 / width)
    start = [math.log(value) for value in (1.5 * step, step, _TILE, _BANDWIDTH, _LAUNCH)]
    # The same search wherever it runs: no seed of the process enters.
    dice = random.Random(0)
    best: tuple[float, int, list[float]] | None = None
    for resident in _RESIDENT:
        found, loss = start, _loss(samples, resident, start, start, multiprocessors)
        reach = 0.5
        for attempt in range(_TRIES):
            other = [value + dice.gauss(0.0, reach) for value in found]
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
    values = (resident, *map(math.exp, rates))
    off = math.fsum(math.log(_seconds(sample, values, multiprocessors) / sample.seconds) ** 2 for sample in samples)
    return off + _HELD * sum((value - first) ** 2 for value, first in zip(rates, start))


def _lost(samples: Sequence[Sample], rates: Mapping[Row, tuple[float, ...]], multiprocessors: int) -> list[float]:
    """For each problem the logarithm of the seconds of the row that the model chooses over those of the best."""
    problems: dict[tuple[str, Sizes], list[Sample]] = defaultdict(list)
    for sample in samples:
        problems[sample.row[0], sample.sizes].append(sample)
    found = []
    for own in problems.values():
        known = [sample for sample in own if sample.row in rates]
        if len(known) > 1:
            chosen = min(known, key=lambda sample: _seconds(sample, rates[sample.row], multiprocessors))
            found.append(math.log(chosen.seconds / min(sample.seconds for sample in own)))
    return found


def row_of(contract: str, kernel: str, config: Mapping[str, Any]) -> Row:
    """A row as samples and rates are keyed."""
    return contract, kernel, tuple(sorted(config.items()))
