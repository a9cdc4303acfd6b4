"""Winners that are none: the rates promise far more of a row that was not measured beside them.

A call that measures few candidates may miss all good ones of a size. The winner then is the best of the bad, and a
table that believed it would be worse there than no table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from generator import prior
from generator.bench.plan import Families, of_specs
from generator.bench.problem import Shape
from generator.tune.fit import Row, Sizes, row_of
from generator.tune.outcome import Winner
from generator.tune.plan import by_rates, candidates_of

#: How many times as fast a row must promise to be: beyond what the rates were ever off by where the row was measured.
DOUBTED = 1.3


def doubtful(
    families: Families,
    name: str,
    winners: Sequence[Winner],
    measured: Mapping[tuple[str, Sizes], Collection[Row]],
    rates: Mapping[Row, tuple[float, ...]],
    device: prior.Device,
    triton: str,
) -> Iterator[tuple[Winner, float]]:
    """The winners of the family `name` that another row promises to beat `DOUBTED` times, with its seconds.

    `measured` are the rows that were timed for a contract at a size: of these the times are known. Rows that cannot run
    there promise nothing. A winner that was no slower than the library is not in doubt: rates know no roofline.
    """
    behind = [winner for winner in winners if winner.seconds > (winner.library_seconds or 0.0)]
    for contract in sorted({winner.contract for winner in behind}):
        own = {winner.sizes: winner for winner in behind if winner.contract == contract}
        kernels = {kernel.name: kernel for kernel in families.known[name].kernels}
        shapes = tuple(Shape(w.m, w.n, w.k, batch=w.batch) for w in own.values())
        for comparison in of_specs(families, shapes, f"{contract}__*"):
            if comparison.case != f"{name}/{contract}":
                continue
            winner = own[comparison.problem.shape.sizes]
            known = {row_of(contract, winner.kernel, winner.config), *measured.get(winner.place, ())}
            candidates = candidates_of(comparison, kernels, device, triton, Counter())
            for promised, candidate in by_rates(contract, comparison.problem, candidates, rates, device):
                if promised * DOUBTED >= winner.seconds:
                    break
                if row_of(contract, candidate.contestant.kernel, candidate.config) not in known:
                    yield winner, promised
                    break
