"""Regret: how much longer the configuration that a family chooses takes than the fastest of all that it has.

The file has one size on each line, sorted, with the device and the versions at its head.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from generator.bench.comparison_plan import Families
from generator.bench.stats import rounded
from generator.files.checked_json import Schema
from generator.files.updating import put
from generator.language import measured_values as values
from generator.language.errors import CallError
from generator.language.tuned_file import PLACE, TIMED
from generator.problem.product import SHAPE, Shape, shape_of
from generator.tune import public_calls
from generator.tune.outcome import CHOSEN, Chosen, Timed, TrialOutcome, timed_of
from generator.tune.trial_selection import Trial
from generator.tune.tuning_run import Progress
from generator.tune.winners import MeasurementSource, by_lines

FORMAT = 1


@dataclass(frozen=True)
class Regret:
    """One contract and size, measured. Times are median seconds of a call."""

    family: str
    contract: str
    shape: Shape
    #: By how much the choice takes longer than the best, as a share of the latter's time.
    regret: float
    chosen: Chosen
    #: The fastest candidate; the function's own call may be faster still, where `chosen.called`.
    best: Timed
    #: Configurations that were timed.
    configurations: int
    library_seconds: float | None = None


@dataclass(frozen=True)
class RegretResults:
    """The contents of a file."""

    place: MeasurementSource
    found: tuple[Regret, ...]


_REGRET = values.record(
    Regret,
    {
        "family": values.NAME,
        "contract": values.NAME,
        "shape": SHAPE,
        "regret": values.SHARE,
        "chosen": CHOSEN,
        "best": TIMED,
        "configurations": values.COUNT,
        "library_seconds": values.or_null(values.SECONDS),
    },
)
SCHEMA = Schema(values.mapping({"format": values.exactly(FORMAT), **PLACE, "sizes": values.entries(_REGRET)}))


def trials_of(trials: Sequence[Trial], families: Families) -> list[Trial]:
    """The trials, each with the function of its contract, whose choice is then timed too.

    Raises `CallError` for a trial in which only some kernels of the contract are measured.
    """
    functions = public_calls.functions(families)
    for trial in trials:
        if not trial.whole:
            raise CallError(f"--regret compares with all kernels of a contract; --only omits some of {trial.contract}")
    return [replace(trial, function=functions[trial.family, trial.contract]) for trial in trials]


def write(progress: Progress, place: MeasurementSource, path: Path) -> RegretResults | None:
    """Write the file of what the outcomes so far come to, sorted, and return its contents.

    Sizes without a time of the choice or of a candidate are left out; if all are, why is printed and nothing written.
    """
    entries = [_regret(progress.keys[key], outcome) for key, outcome in progress.outcomes.items()]
    found = [entry for entry in entries if entry is not None]
    if not found:
        measured = f"{len(progress.outcomes)} of {len(progress.keys)} problems were measured"
        print(f"tune: --regret: no size has times of the choice and of a candidate; {measured}", file=sys.stderr)
        return None
    found.sort(key=lambda each: (each.family, each.contract, each.shape.sizes))
    results = RegretResults(place, tuple(found))
    put(path, text_of(results, path))
    return results


def _regret(trial: Trial, outcome: TrialOutcome) -> Regret | None:
    winner = outcome.winner
    if outcome.regret is None or outcome.chosen is None or winner is None:
        return None
    return Regret(
        trial.family,
        trial.contract,
        trial.problem.shape,
        rounded(outcome.regret),
        outcome.chosen,
        Timed(winner.kernel, winner.config, winner.seconds),
        len(outcome.times),
        winner.library_seconds,
    )


def text_of(kept: RegretResults, path: Path) -> str:
    """The text of a file, checked; raises `FileError` if no reader would accept it."""
    head = {"format": FORMAT, **dataclasses.asdict(kept.place)}
    return values.checked(by_lines(head, {"sizes": [_plain(each) for each in kept.found]}), SCHEMA, _results, path)


def _plain(each: Regret) -> dict[str, Any]:
    return {**dataclasses.asdict(each), "shape": each.shape.numbers}


def read(path: Path) -> RegretResults:
    """The contents of `path`; raise `CallError` if there is no such file."""
    try:
        return values.read(path, SCHEMA, _results, "a file of regret", "--regret")
    except FileNotFoundError:
        raise CallError(f"--regret: there is no file {path}") from None


def _results(data: Any) -> RegretResults:
    """The contents of a file with the schema; raises `Unfit` for values that no file has."""
    found = (_read(entry, "sizes", index) for index, entry in enumerate(data["sizes"]))
    return RegretResults(MeasurementSource(*(data[name] for name in PLACE)), tuple(found))


def _read(entry: dict[str, Any], *steps: str | int) -> Regret:
    values.of_contract(entry["best"]["kernel"], entry["contract"], *steps, "best", "kernel")
    typed = {
        "shape": shape_of(entry["shape"], *steps, "shape"),
        "chosen": timed_of(Chosen, entry["chosen"], *steps, "chosen"),
        "best": timed_of(Timed, entry["best"], *steps, "best"),
    }
    return Regret(**(entry | typed))
