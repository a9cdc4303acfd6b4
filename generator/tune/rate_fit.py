"""Fit the rates of the cost model `generator.runtime.fitted` to measurements, and judge the choices that they lead to.

The rates of each configuration are those with the least squared errors of the logarithm of the predicted seconds. Many
configurations were measured at few sizes, so that each is also held near the rates that are expected of it: a linear
regression over all configurations on tile sizes, warps, stages, kernel and contract (`_expected`). What all
configurations of one size have in common, such as a lower clock rate, does not affect a choice, and is estimated apart.
Nothing is random: equal measurements give equal rates.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from generator.bench.stats import rounded
from generator.bench.workers import processes
from generator.cost.analytic import PRODUCTS
from generator.plan.devices import Device
from generator.runtime import fitted
from generator.tune.outcome import Row, Sizes
from generator.tune.samples import RateFit, Sample

Vector = tuple[float, ...]

#: A contract that was measured at fewer sizes than this has no rates: they would be guessed rather than fitted.
_FEWEST = 4
#: Folds of the cross-validation over sizes.
_PARTS = 4
#: The number of configurations for which starting other processes is worthwhile.
_ENOUGH = 8
#: Times that rates, expected rates and the levels of sizes are estimated, each from the others.
_ROUNDS = 6
#: The standard deviations of the error of a prediction, and of the level of a size, both in logarithms.
_ERROR, _LEVEL = 0.05, 0.05
#: The standard deviations of the fitted numbers from the expected ones (`_start`).
_SPREADS = (0.3, 0.3, 0.3, 0.1, 0.2, 0.1, 0.1)
#: The slower a configuration is than the fastest of its size, the less it counts: e-fold for each `_NEAR`, in
#: logarithms, down to `_LEAST`.
_NEAR, _LEAST = 0.4, 0.1
#: A multiprocessor rarely has registers for more programs than this.
_RESIDENT = 4
#: The largest exponent: with 1 or more, a configuration of fewer tiles could take less time for each step alone.
_STEEPEST = 0.9
#: Weights of squared coefficients in the regression: of numbers, and of kernels and contracts.
_RIDGE_NUMBER, _RIDGE_NAME = 0.5, 1.0
#: Iterations of the search for the least squares, and how often a step is shortened before it ends.
_ITERATIONS, _TRIES = 5, 4
#: Steps of the derivatives, and the longest step of one number in an iteration.
_DIFFERENCE, _LONGEST = 1e-3, 1.0
#: The first factor, plus 1, of the diagonal; and the factors of that after a good and after a bad step.
_DAMPING, _BETTER, _WORSE = 1e-2, 0.25, 6.0


def fit(samples: Iterable[Sample], device: Device) -> RateFit:
    """The rates of the configurations of each contract that was measured at enough sizes, and their cross-validation.

    Only aligned samples count, if a contract has enough of them.
    """
    everything = sorted(_counting(samples), key=lambda s: (s.row, s.sizes))
    sizes = sorted({sample.sizes for sample in everything})
    folds = [frozenset(sizes[first::_PARTS]) for first in range(_PARTS)]
    known = [everything, *([s for s in everything if s.sizes not in fold] for fold in folds)]
    workers = min(os.cpu_count() or 1, len(known))
    if workers < 2 or len({sample.row for sample in everything}) < _ENOUGH:
        rates, *others = [_rates(device, each) for each in known]
    else:
        with processes(workers) as pool:
            rates, *others = pool.map(partial(_rates, device), known)
    own_device = [sample for sample in everything if not sample.borrowed]
    rated = [sample for sample in own_device if sample.row in rates]
    errors = [abs(_seconds(sample, rates[sample.row], device) / sample.seconds - 1) for sample in rated]
    lost: list[float] = []
    for fold, own in zip(folds, others):
        lost += _lost([sample for sample in own_device if sample.sizes in fold], own, device)
    return RateFit(
        rates,
        rounded(statistics.median(errors), 3) if errors else 0.0,
        rounded(math.exp(statistics.fmean(lost)) - 1, 3) if lost else 0.0,
    )


def _counting(samples: Iterable[Sample]) -> list[Sample]:
    """The aligned samples of each contract, or all where those are of too few sizes to have rates."""
    grouped: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        grouped[sample.row[0]].append(sample)
    counting = []
    for own in grouped.values():
        aligned = [sample for sample in own if sample.aligned]
        counting += aligned if len({sample.sizes for sample in aligned}) >= _FEWEST else own
    return counting


def _seconds(sample: Sample, rates: tuple[float, ...], device: Device) -> float:
    row = fitted.rated(dict(sample.row[2]), rates, *sample.scale)
    return fitted.seconds([row], sample.sizes, device.multiprocessors, sample.width)[0]


def _rates(device: Device, samples: Sequence[Sample]) -> dict[Row, tuple[float, ...]]:
    """The rates of each configuration of the contracts that were measured at enough sizes, with four digits."""
    measured: dict[str, set[Sizes]] = defaultdict(set)
    for sample in samples:
        measured[sample.row[0]].add(sample.sizes)
    samples = [sample for sample in samples if len(measured[sample.row[0]]) >= _FEWEST]
    grouped: dict[Row, list[Sample]] = defaultdict(list)
    for sample in samples:
        grouped[sample.row].append(sample)
    resident = {row: _resident(dict(row[2]), own[0].width, device) for row, own in grouped.items()}
    start = {row: _start(dict(row[2]), own[0].width) for row, own in grouped.items()}
    fitted_rates, expected = dict(start), dict(start)
    precision = [(_ERROR / spread) ** 2 for spread in _SPREADS]
    weights = _weights(samples)
    levels: dict[tuple[str, Sizes], float] = defaultdict(float)
    features = _features(grouped)
    for _ in range(_ROUNDS):
        curvature = {}
        for row, own in grouped.items():
            targets = [math.log(sample.seconds) - levels[sample.row[0], sample.sizes] for sample in own]
            fitted_rates[row], curvature[row] = _minimum(
                partial(_logarithms, row, own, resident[row], device),
                targets,
                [weights[sample.row, sample.sizes] for sample in own],
                fitted_rates[row],
                expected[row],
                precision,
            )
        expected = _expected(features, start, fitted_rates, curvature, precision)
        levels = _levels(samples, weights, grouped, fitted_rates, resident, device)
    return {
        row: tuple(rounded(value, 4) for value in _numbers(resident[row], fitted_rates[row], grouped[row][0].moved))
        for row in grouped
    }


def _start(row: Mapping[str, int], width: int) -> Vector:
    """Where a fit starts, and what the regression adds to.

    The logarithms of: the least seconds of a step, divided by those for each resident program; the latter; seconds of a
    tile; bytes per second; seconds of a launch. Then the two exponents.
    """
    step = max(row["BLOCK_M"], 64) * row["BLOCK_N"] * row["BLOCK_K"] / (PRODUCTS * 2 / width)
    return (*map(math.log, (1.5, step, 1e-6, 4e12, 2e-6)), 0.0, 0.0)


def _numbers(resident: int, values: Vector, moved: tuple[float, ...]) -> tuple[float, ...]:
    """The rates, as `fitted.rated` reads them, of the numbers of a fit (`_start`)."""
    latency, step, tile, bandwidth, launch, rows, wave = values
    exponents = (max(-_STEEPEST, min(_STEEPEST, value)) for value in (rows, wave))
    return (resident, *map(math.exp, (latency + step, step, tile, bandwidth, launch)), *exponents, *moved)


def _resident(row: Mapping[str, int], width: int, device: Device) -> int:
    """Programs of a configuration that have room in the shared memory of a multiprocessor, at most `_RESIDENT`."""
    taken = (row["BLOCK_M"] + row["BLOCK_N"]) * row["BLOCK_K"] * row["num_stages"] * width
    return max(1, min(_RESIDENT, device.shared_memory // taken))


def _logarithms(
    row: Row, samples: Sequence[Sample], resident: int, device: Device, points: Sequence[Vector]
) -> list[list[float]]:
    """For each sample the logarithms of the predicted seconds, by each of the points."""
    config = dict(row[2])
    numbers = [_numbers(resident, point, samples[0].moved) for point in points]
    rated = {scale: [fitted.rated(config, each, *scale) for each in numbers] for scale in {s.scale for s in samples}}
    return [
        [math.log(time) for time in fitted.seconds(rated[s.scale], s.sizes, device.multiprocessors, s.width)]
        for s in samples
    ]


def _weights(samples: Iterable[Sample]) -> dict[tuple[Row, Sizes], float]:
    least: dict[tuple[str, Sizes], float] = defaultdict(lambda: math.inf)
    for sample in samples:
        key = sample.row[0], sample.sizes
        least[key] = min(least[key], sample.seconds)
    return {
        (s.row, s.sizes): _LEAST + (1 - _LEAST) * (least[s.row[0], s.sizes] / s.seconds) ** (1 / _NEAR) for s in samples
    }


def _levels(
    samples: Sequence[Sample],
    weights: Mapping[tuple[Row, Sizes], float],
    grouped: Mapping[Row, Sequence[Sample]],
    fitted_rates: Mapping[Row, Vector],
    resident: Mapping[Row, int],
    device: Device,
) -> dict[tuple[str, Sizes], float]:
    """The mean error at each size of a contract, in logarithms, drawn towards 0 where there are few samples."""
    errors: dict[tuple[str, Sizes], float] = defaultdict(float)
    counts: dict[tuple[str, Sizes], float] = defaultdict(float)
    for row, own in grouped.items():
        for sample, (predicted,) in zip(own, _logarithms(row, own, resident[row], device, [fitted_rates[row]])):
            key, weight = (row[0], sample.sizes), weights[row, sample.sizes]
            errors[key] += weight * (math.log(sample.seconds) - predicted)
            counts[key] += weight
    return {key: errors[key] / (counts[key] + (_ERROR / _LEVEL) ** 2) for key in errors}


def _features(rows: Iterable[Row]) -> dict[Row, dict[str, float]]:
    """What the regression knows of each configuration, without what is 0."""
    features = {}
    for contract, kernel, pairs in rows:
        row = dict(pairs)
        m, n = math.log2(row["BLOCK_M"]), math.log2(row["BLOCK_N"])
        others = {name: math.log2(row.get(name, 1)) for name in ("BLOCK_K", "num_stages", "num_warps", "SPLIT")}
        # The matrix unit has at least 64 rows; a wide tile is loaded differently.
        numbers = {"m": m, "n": n, "rows": max(m, 6.0), "columns": max(n, 6.0), "area": m * n / 8, **others}
        names = {f"contract {contract}": 1.0, f"kernel {kernel.partition('__')[2]}": 1.0}
        features[contract, kernel, pairs] = {"": 1.0, **{k: v for k, v in numbers.items() if v}, **names}
    return features


def _expected(
    features: Mapping[Row, Mapping[str, float]],
    start: Mapping[Row, Vector],
    fitted_rates: Mapping[Row, Vector],
    curvature: Mapping[Row, Vector],
    precision: Sequence[float],
) -> dict[Row, Vector]:
    """The numbers that the others lead to expect of each configuration: a ridge regression for each number.

    A configuration counts by the share of its measurements, rather than of what was expected, in its number.
    """
    names = sorted({name for each in features.values() for name in each})
    if not features:
        return {}
    known = np.array([[each.get(name, 0.0) for name in names] for each in features.values()])
    ridge = np.diag([1e-6 if not name else _RIDGE_NAME if " " in name else _RIDGE_NUMBER for name in names])
    first = np.array([start[row] for row in features])
    moved = np.array([fitted_rates[row] for row in features]) - first
    curved = np.array([curvature[row] for row in features])
    counts = curved / (curved + precision)
    columns = [
        known @ np.linalg.solve(known.T @ (count[:, None] * known) + ridge, known.T @ (count * own))
        for count, own in zip(counts.T, moved.T)
    ]
    return {row: tuple(map(float, own)) for row, own in zip(features, first + np.transpose(columns))}


def _minimum(
    predict: Callable[[Sequence[Vector]], list[list[float]]],
    targets: Sequence[float],
    weights: Sequence[float],
    start: Vector,
    expected: Vector,
    precision: Sequence[float],
) -> tuple[Vector, Vector]:
    """The point with the least loss after a few iterations from `start`, and the curvature along each number there.

    `predict` gives for each sample the values at each of some points. The loss is the sum of weights * (prediction -
    target)^2 and of precision * (number - expected)^2. The method is Levenberg's and Marquardt's, with derivatives by
    differences. The curvature is of the first sum alone.
    """
    wanted, weight, drawn, pull = map(np.asarray, (targets, weights, expected, precision))

    def values(points: np.ndarray) -> np.ndarray:
        return np.array(predict([tuple(map(float, point)) for point in points]))

    def loss(point: np.ndarray, predicted: np.ndarray) -> float:
        return float(weight @ (predicted - wanted) ** 2 + pull @ (point - drawn) ** 2)

    point, damping = np.array(start), _DAMPING
    curvature = np.zeros(len(point))
    for _ in range(_ITERATIONS):
        around = values(point + _DIFFERENCE * np.eye(len(point) + 1, len(point), -1))
        predicted = around[:, 0]
        slopes = (around[:, 1:] - predicted[:, None]) / _DIFFERENCE
        matrix = slopes.T @ (weight[:, None] * slopes)
        gradient = pull * (point - drawn) + slopes.T @ (weight * (predicted - wanted))
        curvature = matrix.diagonal()
        current = loss(point, predicted)
        for _ in range(_TRIES):
            damped = matrix + np.diag((curvature + pull) * damping + pull)
            other = point - np.linalg.solve(damped, gradient).clip(-_LONGEST, _LONGEST)
            if loss(other, values(other[None])[:, 0]) < current:
                point, damping = other, max(damping * _BETTER, 1e-5)
                break
            damping *= _WORSE
        else:
            break
    return tuple(point.tolist()), tuple(curvature.tolist())


def _lost(samples: Sequence[Sample], rates: Mapping[Row, tuple[float, ...]], device: Device) -> list[float]:
    """For each problem log(seconds of the configuration that the model chooses / seconds of the fastest one)."""
    problems: dict[tuple[str, Sizes], list[Sample]] = defaultdict(list)
    for sample in samples:
        problems[sample.row[0], sample.sizes].append(sample)
    lost = []
    for own in problems.values():
        rated = [sample for sample in own if sample.row in rates]
        if len(rated) > 1:
            chosen = min(rated, key=lambda sample: _seconds(sample, rates[sample.row], device))
            lost.append(math.log(chosen.seconds / min(sample.seconds for sample in own)))
    return lost
