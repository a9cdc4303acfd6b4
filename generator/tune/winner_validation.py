"""Find winners that are probably not the fastest: the fitted cost model predicts a much faster configuration.

A call that measures few candidates may miss all fast ones of a size. A table with the winner of such a call would
choose worse at that size than the cost model does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from generator.bench.comparison_plan import Families, of_specs
from generator.plan import devices
from generator.tune.outcome import ConfirmedWinner, Row, row_of
from generator.tune.samples import Sample
from generator.tune.trial_selection import by_rates, candidates_of

#: The least predicted speed-up that casts doubt on a winner: four times the median error of the model.
DOUBTED = 1.2


def doubtful(
    families: Families,
    name: str,
    winners: Sequence[ConfirmedWinner],
    samples: Iterable[Sample],
    rates: Mapping[Row, tuple[float, ...]],
    device: devices.Device,
    triton: str,
) -> Iterator[tuple[ConfirmedWinner, float]]:
    """The winners of the family `name` that another configuration is predicted to beat, with its predicted seconds.

    The other configuration must be `DOUBTED` times as fast, must be able to run, and must not be in `samples`, whose
    times were measured. A winner that was no slower than torch's product is not doubted, because the model does not
    include the roofline; nor is one of operands that the model does not describe (`Sample.aligned`).
    """
    samples = list(samples)
    unaligned = {(sample.row[0], sample.sizes) for sample in samples if not sample.aligned}
    behind = [w for w in winners if w.seconds > (w.library_seconds or 0.0) and w.place not in unaligned]
    timed = {(sample.sizes, sample.row) for sample in samples}
    timed |= {(w.shape.sizes, w.row) for w in behind}
    for contract in sorted({winner.contract for winner in behind}):
        own = {winner.shape: winner for winner in behind if winner.contract == contract}
        for comparison in of_specs(families, tuple(own), f"{contract}__*"):
            if comparison.case != f"{name}/{contract}":
                continue
            shape, winner = comparison.problem.shape, own[comparison.problem.shape]
            candidates = candidates_of(comparison, families, device, triton, Counter())
            for predicted, candidate in by_rates(contract, comparison.problem, candidates, rates, device):
                if predicted * DOUBTED >= winner.seconds:
                    break
                if (shape.sizes, row_of(contract, candidate.contestant.kernel, candidate.config)) not in timed:
                    yield winner, predicted
                    break
