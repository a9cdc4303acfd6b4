"""Statistics of repeated measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Digits kept of a measurement: a tenth of a part per thousand, well under the scatter of any clock.
DIGITS = 5
#: Digits kept of a statistic of several measurements.
STATISTIC_DIGITS = 6


@dataclass(frozen=True)
class Summary:
    """What a list of samples comes to, in the samples' unit."""

    median: float
    mean: float
    #: Standard deviation with n - 1 in the denominator; 0 for one sample.
    deviation: float
    #: First and third quartile.
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """Peer's time over ours, taken round by round: the median and the quartiles. Above 1 is faster."""

    median: float
    low: float
    high: float


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The `fraction` quantile of ascending values, interpolated linearly (Hyndman and Fan's definition 7)."""
    position = (len(ordered) - 1) * fraction
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summarize(samples: Sequence[float]) -> Summary:
    """Median, mean, deviation and quartiles; raise ValueError for no samples."""
    if not samples:
        raise ValueError("no samples to summarize")
    ordered = sorted(samples)
    mean = math.fsum(ordered) / len(ordered)
    squares = math.fsum((sample - mean) ** 2 for sample in ordered)
    deviation = math.sqrt(squares / (len(ordered) - 1)) if len(ordered) > 1 else 0.0
    return Summary(quantile(ordered, 0.5), mean, deviation, quantile(ordered, 0.25), quantile(ordered, 0.75))


def ratios(peer: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Peer's time over ours, round by round; above 1 is faster. Raise ValueError for rounds that do not pair up."""
    if len(peer) != len(ours):
        raise ValueError(f"rounds do not pair up: {len(peer)} against {len(ours)}")
    return [theirs / own for theirs, own in zip(peer, ours)]


def ratio(peer: Sequence[float], ours: Sequence[float]) -> Ratio:
    """The statistics of `ratios`; raise ValueError for no rounds, or for rounds that do not pair up."""
    found = summarize(ratios(peer, ours))
    return Ratio(*(rounded(value, STATISTIC_DIGITS) for value in (found.median, found.low, found.high)))


def rounded(value: float, digits: int = DIGITS) -> float:
    """`value` to `digits` significant digits."""
    return float(f"{value:.{digits}g}")


def rotation(count: int, turn: int) -> list[int]:
    """The order in which `count` sides run in round `turn`.

    The start moves on by one each round, and every `count` rounds the direction turns, so that over the rounds each
    side comes first and last, and after each of its neighbours, equally often.
    """
    order = [(position + turn) % count for position in range(count)]
    return order[::-1] if turn // count % 2 else order
