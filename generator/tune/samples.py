"""Measured seconds of configurations, as the fit of the cost model reads them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from generator.language.model import Layout, Variant
from generator.problem.grouping import EVEN
from generator.problem.product import Shape
from generator.runtime.spreading import scores
from generator.tune.outcome import ConfirmedWinner, Row, Sizes, Timed, TrialOutcome, row_of

#: Elements that every storage has a whole number of bytes for; the bits of a partial sum.
_ELEMENTS, _SUM = 64, 32


@dataclass(frozen=True)
class Sample:
    """The measured seconds of one configuration at one size.

    `width` is the bytes of an element of A. `aligned` says whether the operands were as the cost model assumes: inner
    extents are multiples of 16, and no row pitch crosses a line of 128 bytes.
    """

    row: Row
    sizes: Sizes
    width: int
    seconds: float
    aligned: bool = True
    #: How rows were spread over groups.
    routing: str = EVEN
    #: What is moved for an element of B and for a partial sum, if a rate says so: `moved_by`.
    moved: tuple[float, ...] = ()
    #: Clock rate and memory bandwidth of the device that was measured, relative to that of the rates.
    scale: tuple[float, float] = (1.0, 1.0)

    @property
    def borrowed(self) -> bool:
        """Whether it was measured on another device."""
        return self.scale != (1.0, 1.0)


def moved_by(v: Variant) -> tuple[float, ...]:
    """What a kernel moves for an element of B, and for each partial sum of one of C, by the bytes of one of A.

    Empty where B is stored as A is and K is not divided.
    """
    a, b = (8 * each.bytes(_ELEMENTS) / _ELEMENTS for each in (v.dtype.stored_a, v.dtype.stored_b))
    if a == b and not v.traits.splits:
        return ()
    # A B that is decoded first is written and read once more, in the type that is multiplied; sums too, in fp32.
    again = 2 * v.dtype.stored_b.multiplied_bits if v.traits.decodes else 0
    return (b + again) / a, 2 * _SUM / a


def samples_of(outcomes: Iterable[TrialOutcome], variants: Mapping[str, Variant]) -> Iterator[Sample]:
    """The seconds of each configuration at each size, of the kernels whose variants are in `variants`.

    Of a configuration that is in several outcomes of a size and routing, one sample has the median of their times.
    """
    grouped: dict[tuple[Row, Sizes, str], list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.winner is not None:
            (contract, sizes), routing = outcome.winner.place, outcome.winner.routing
            for timed in (timed for timed in outcome.times if timed.kernel in variants):
                grouped[row_of(contract, timed.kernel, timed.config), sizes, routing].append(timed.seconds)
    for (row, sizes, routing), seconds in grouped.items():
        variant = variants[row[1]]
        width, median = variant.dtype.stored_a.width, statistics.median(seconds)
        yield Sample(row, sizes, width, median, _aligned(variant, sizes, width), routing, moved_by(variant))


def all_round(winner: ConfirmedWinner, samples: Iterable[Sample]) -> ConfirmedWinner:
    """The winner for equal groups, or what `spreading.scores` chooses in its place if its size has other routings too.

    `samples` are of all sizes. Compared are the configurations that have a time for each routing.
    """
    times: dict[str, dict[Row, float]] = {EVEN: {}}
    for sample in samples:
        if (sample.row[0], sample.sizes) == winner.place:
            times.setdefault(sample.routing, {})[sample.row] = sample.seconds
    rows = [row for row in times[EVEN] if all(row in other for other in times.values())]
    if len(times) == 1 or not rows:
        return winner
    scores_of = scores([[own[row] for row in rows] for own in times.values()])
    best = rows[scores_of.index(min(scores_of))]
    if best == winner.row:
        return winner
    fastest = Timed(winner.kernel, winner.config, winner.seconds)
    return replace(winner, kernel=best[1], config=dict(best[2]), seconds=times[EVEN][best], runner_up=fastest)


def pitches(layout: Layout, sizes: Sizes, width: int) -> tuple[int, int]:
    """The bytes from one row of A, and of B, to the next, of contiguous operands; of a column-major matrix, columns."""
    *_, m, n, k = sizes
    return (m if layout.a == "column" else k) * width, (k if layout.b == "column" else n) * width


def sizes_compared(v: Variant, sizes: Sizes) -> Sizes:
    """The sizes by which configurations are compared for a call with `sizes`: of groups, those of equal ones."""
    *batch, m, n, k = sizes
    count = math.prod(batch)
    if v.products.divided:
        return Shape(m, n, k, groups=count, inner=v.products.divided == "K").sizes
    return (count, m, n, k) if v.products.several else (m, n, k)


def crossing(layout: Layout, sizes: Sizes, width: int) -> tuple[bool, bool]:
    """Whether the row pitches of contiguous A and B are not multiples of 128 bytes."""
    a, b = pitches(layout, sizes, width)
    return a % 128 != 0, b % 128 != 0


def _aligned(variant: Variant, sizes: Sizes, width: int) -> bool:
    row_pitches = pitches(variant.layout, sizes, width)
    return not any(pitch % (16 * width) or (pitch % 128 and 128 % pitch) for pitch in row_pitches)


@dataclass(frozen=True)
class RateFit:
    """The rates of each configuration, the median error of the model, and the regret of its choice at other sizes.

    `error` is relative to the measured seconds. `regret` is the geometric mean, over sizes that the model was not
    fitted to, of the seconds of the chosen configuration divided by those of the fastest one, minus 1. Both are of the
    device's own measurements.
    """

    rates: Mapping[Row, tuple[float, ...]]
    error: float
    regret: float
