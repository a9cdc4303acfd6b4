"""Least squares: the minimum of a sum of squared errors near an expected point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Vector = tuple[float, ...]
#: For each sample the predicted values at each of the points.
Predict = Callable[[Sequence[Vector]], list[list[float]]]

_ITERATIONS = 5
#: How often a step is shortened before the search gives up.
_TRIES = 4
#: Steps of the derivatives, and the longest step of one number in an iteration.
_DIFFERENCE, _LONGEST = 1e-3, 1.0
#: The first factor, plus 1, of the diagonal; and the factors of that after a good and after a bad step.
_DAMPING, _BETTER, _WORSE = 1e-2, 0.25, 6.0


def minimum(
    predict: Predict,
    targets: Sequence[float],
    weights: Sequence[float],
    start: Vector,
    expected: Vector,
    precision: Sequence[float],
) -> tuple[Vector, Vector]:
    """The point with the least loss after a few iterations from `start`, and the curvature along each number there.

    The loss is the sum of weights * (prediction - target)^2 and of precision * (number - expected)^2. The method is
    Levenberg's and Marquardt's, with derivatives by differences. The curvature is of the first sum alone.
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
