"""Winners that are none: the rates promise far more of a row that was not measured beside them.

A call that measures few candidates may miss all good ones of a size. The winner then is the best of the bad, and a
table that believed it would be worse there than no table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from generator.bench.comparison_plan import Families, of_specs
from generator.cost import analytic
from generator.tune.outcome import Winner
from generator.tune.rate_fit import Row, Sample, row_of
from generator.tune.trial_selection import by_rates, candidates_of

#: How many times as fast a row must promise to be: beyond what the rates were ever off by where the row was measured.
DOUBTED = 1.3


def doubtful(
    families: Families,
    name: str,
    winners: Sequence[Winner],
    samples: Iterable[Sample],
    rates: Mapping[Row, tuple[float, ...]],
    device: analytic.Device,
    triton: str,
) -> Iterator[tuple[Winner, float]]:
    """The winners of the family `name` that another row promises to beat `DOUBTED` times, with its seconds.

    Of `samples` the times are known: they promise nothing, and neither do rows that cannot run there. A winner that was
    no slower than the library is not in doubt: rates know no roofline.
    """
    behind = [winner for winner in winners if winner.seconds > (winner.library_seconds or 0.0)]
    timed = {(sample.sizes, sample.row) for sample in samples}
    timed |= {(w.shape.sizes, row_of(w.contract, w.kernel, w.config)) for w in behind}
    for contract in sorted({winner.contract for winner in behind}):
        own = {winner.shape: winner for winner in behind if winner.contract == contract}
        for comparison in of_specs(families, tuple(own), f"{contract}__*"):
            if comparison.case != f"{name}/{contract}":
                continue
            shape, winner = comparison.problem.shape, own[comparison.problem.shape]
            candidates = candidates_of(comparison, families, device, triton, Counter())
            for promised, candidate in by_rates(contract, comparison.problem, candidates, rates, device):
                if promised * DOUBTED >= winner.seconds:
                    break
                if (shape.sizes, row_of(contract, candidate.contestant.kernel, candidate.config)) not in timed:
                    yield winner, promised
                    break
