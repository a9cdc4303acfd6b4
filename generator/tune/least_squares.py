"""Least squares: the minimum of a sum of squared errors near an expected point, and systems of linear equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

    def loss(point: Vector, predicted: Sequence[float]) -> float:
        errors = sum(w * (value - target) ** 2 for w, value, target in zip(weights, predicted, targets))
        return errors + sum(p * (value - wanted) ** 2 for p, value, wanted in zip(precision, point, expected))

    point, damping = start, _DAMPING
    size = range(len(point))
    curvature: Vector = (0.0,) * len(point)
    for _ in range(_ITERATIONS):
        around = [tuple(value + _DIFFERENCE * (i == j) for j, value in enumerate(point)) for i in size]
        matrix = [[0.0] * len(point) for _ in size]
        gradient = [p * (value - wanted) for p, value, wanted in zip(precision, point, expected)]
        predicted = []
        for (here, *others), target, weight in zip(predict([point, *around]), targets, weights):
            predicted.append(here)
            slopes = [(other - here) / _DIFFERENCE for other in others]
            for i in size:
                factor = weight * slopes[i]
                gradient[i] += factor * (here - target)
                line = matrix[i]
                for j in range(i + 1):
                    line[j] += factor * slopes[j]
        for i in size:
            for j in range(i):
                matrix[j][i] = matrix[i][j]
        curvature = tuple(matrix[i][i] for i in size)
        current = loss(point, predicted)
        for _ in range(_TRIES):
            damped = [
                [matrix[i][j] + ((curvature[i] + precision[i]) * damping + precision[i]) * (i == j) for j in size]
                for i in size
            ]
            step = solved(damped, gradient)
            other = tuple(value - max(-_LONGEST, min(_LONGEST, change)) for value, change in zip(point, step))
            if loss(other, [value for (value,) in predict([other])]) < current:
                point, damping = other, max(damping * _BETTER, 1e-5)
                break
            damping *= _WORSE
        else:
            break
    return point, curvature


def solved(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """The x of matrix * x = vector, for a symmetric positive definite matrix; by Gaussian elimination."""
    lines = [[*line, value] for line, value in zip(matrix, vector)]
    size = len(lines)
    for i in range(size):
        pivot = lines[i]
        for other in lines[i + 1 :]:
            factor = other[i] / pivot[i]
            if factor:
                for j in range(i, size + 1):
                    other[j] -= factor * pivot[j]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (lines[i][size] - sum(lines[i][j] * found[j] for j in range(i + 1, size))) / lines[i][i]
    return found
