"""Statistics of repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

#: Digits kept of a measurement: a tenth of a part per thousand, well under the scatter of any clock.
DIGITS = 5
#: Digits kept of a statistic of several measurements.
STATISTIC_DIGITS = 6


class Ratio(NamedTuple):
    """Peer's time over ours, taken round by round: the median and the quartiles. Above 1 is faster."""

    median: float
    low: float
    high: float


def ratio(peer: Sequence[float], ours: Sequence[float]) -> Ratio:
    """The statistics of peer's time over ours; raise ValueError for no rounds, or for rounds that do not pair up."""
    ratios = [theirs / own for theirs, own in zip(peer, ours, strict=True)]
    # One round is its own quartile.
    low, median, high = statistics.quantiles(ratios * 2 if len(ratios) == 1 else ratios, n=4, method="inclusive")
    return Ratio(*(rounded(value, STATISTIC_DIGITS) for value in (median, low, high)))


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
