"""What a file of winners or of regret comes to, as a `RunReport`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from generator.bench.results_report import tile
from generator.bench.summary import by_rows
from generator.emit.report import NONE, Mark, Plot, ReportTable, RunReport
from generator.problem.product import ROW_CLASSES, Shape
from generator.tune.journal import JournalEntry
from generator.tune.outcome import ConfirmedWinner, Timed
from generator.tune.winners import MeasurementSource, Winners

#: Rows of C up to which a product reads its weights once, and little else.
_FEW_ROWS = 64
_WORDS = frozenset(("contract", "size", "fastest", "configuration", "chosen", "its configuration"))


def of_winners(tuned: Winners) -> RunReport:
    """The ratios to torch's product of each contract and size; the legend has the error of the fitted cost model."""
    columns = ["contract", "size", "fastest", "configuration", "µs", "torch, µs", "ratio"]
    rows = [[w.contract, str(w.shape), *_how(w), _micros(w.library_seconds), _ratio(w)] for w in tuned.winners]
    marks = [
        Mark(w.contract, _volume(w.shape.sizes), w.library_seconds / w.seconds, row)
        for row, w in enumerate(tuned.winners)
        if w.library_seconds is not None
    ]
    return RunReport(
        "winners",
        ReportTable("Winners", columns, rows, _WORDS, frozenset(("contract", "fastest"))),
        notes=[_place(tuned.place)],
        summaries=[_ratios(tuned.winners)],
        plots=[
            Plot("Ratio to torch's product", "(M N K)^(1/3)", "torch's time / ours (above 1: ours is faster)", marks)
        ],
        legend=[
            f"The median error of the fitted cost model is {tuned.fit.error:.1%}. At sizes that it was not fitted to, "
            f"its choice takes\n{tuned.fit.regret:.1%} longer than the fastest measured configuration (geometric mean)."
        ],
    )


def of_regret(entries: Sequence[JournalEntry]) -> RunReport:
    """How much longer the choice takes than the fastest, for each contract and size with both times."""
    outcomes = [each.outcome for each in entries]
    compared = [(x.winner, x.chosen, x.regret) for x in outcomes if x.winner and x.chosen and x.regret is not None]
    columns = ["contract", "size", "chosen", "its configuration", "µs", "fastest", "configuration", "µs of the fastest"]
    rows = [[w.contract, str(w.shape), *_how(chosen), *_how(w), f"{regret:.1%}"] for w, chosen, regret in compared]
    marks = [Mark(w.contract, _volume(w.shape.sizes), 1 + regret, row) for row, (w, _, regret) in enumerate(compared)]
    return RunReport(
        "regret",
        ReportTable("Sizes", [*columns, "regret"], rows, _WORDS, frozenset(("contract", "fastest"))),
        notes=[_place(source) for source in dict.fromkeys(each.place for each in entries)],
        summaries=[_regrets([(w.contract, w.shape, regret) for w, _, regret in compared])],
        plots=[Plot("Time of the choice over that of the fastest", "(M N K)^(1/3)", "times the fastest", marks)],
    )


def _place(source: MeasurementSource) -> str:
    return f"{source.device}, torch {source.torch}, triton {source.triton}."


def _how(timed: Timed | ConfirmedWinner) -> list[str]:
    return [timed.kernel.partition("__")[2], tile(timed.config), _micros(timed.seconds)]


def _micros(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds * 1e6:.4g}"


def _volume(sizes: Sequence[int]) -> float:
    return math.pow(math.prod(sizes[-3:]), 1 / 3)


def _ratio(winner: ConfirmedWinner) -> str:
    return NONE if winner.library_seconds is None else f"{winner.library_seconds / winner.seconds:.3f}"


def _ratios(winners: Sequence[ConfirmedWinner]) -> ReportTable:
    """For each contract the mean and the smallest ratio."""
    columns = ["contract", "sizes", "mean ratio", "M up to 64", "larger M", "smallest ratio", "under 0.93"]
    rows = []
    for contract in dict.fromkeys(winner.contract for winner in winners):
        own = [winner for winner in winners if winner.contract == contract]
        ratios = {w.shape: w.library_seconds / w.seconds for w in own if w.library_seconds is not None}
        few = [ratio for shape, ratio in ratios.items() if shape.m <= _FEW_ROWS]
        many = [ratio for shape, ratio in ratios.items() if shape.m > _FEW_ROWS]
        means = [f"{geometric_mean(each):.3f}" if each else NONE for each in (list(ratios.values()), few, many)]
        least = min(ratios, key=lambda shape: ratios[shape], default=None)
        smallest = NONE if least is None else f"{ratios[least]:.3f} at {least}"
        under = str(sum(ratio < 0.93 for ratio in ratios.values())) if ratios else NONE
        rows.append([contract, str(len(own)), *means, smallest, under])
    return ReportTable("Contracts (means are geometric)", columns, rows, _WORDS)


def _regrets(regrets: Iterable[tuple[str, Shape, float]]) -> ReportTable:
    """The mean regret of each contract and of all together, also by M, and the largest."""
    groups: dict[str, list[tuple[Shape, float]]] = {}
    for contract, shape, regret in regrets:
        groups.setdefault(contract, []).append((shape, regret))
    if len(groups) != 1:
        groups["all"] = [each for group in groups.values() for each in group]
    rows = []
    for name, group in groups.items():
        shape, most = max(group, key=lambda each: each[1])
        classes = by_rows((shape.m, 1 + regret) for shape, regret in group).values()
        means = _mean(1 + regret for _, regret in group), *map(_mean, classes)
        rows.append([name, str(len(group)), *means, f"{most:.1%} at {shape}"])
    columns = ["contract", "sizes", "mean regret", *ROW_CLASSES, "largest"]
    return ReportTable("Contracts (means are geometric)", columns, rows, _WORDS)


def _mean(times: Iterable[float]) -> str:
    """The geometric mean of times over the best times, as the share by which it exceeds 1."""
    values = list(times)
    return f"{geometric_mean(values) - 1:.1%}" if values else NONE
