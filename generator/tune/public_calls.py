"""Render the families that are tuned, before and after their winners are written, and time their public functions."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from generator.bench.comparison_plan import Contestant, Families
from generator.bench.device import reason
from generator.cost import tuned
from generator.emit.apply import Refused
from generator.emit.job import RenderingJob, render
from generator.emit.rendering_report import show
from generator.emit.report import NONE, line
from generator.language.errors import CallError
from generator.plan.kernels import Family
from generator.tune import trial_worker
from generator.tune.trial_selection import Trial

#: The public functions by family and contract.
Functions = Mapping[tuple[str, str], Contestant]


def rendered(families: Iterable[Family], out: Path) -> None:
    """Write the families into `out`; a folder that was edited by hand stays as it is, which is printed."""
    for family in families:
        try:
            render([RenderingJob(family, out)], show)
        except Refused as error:
            print(f"tune: {family.spec.name} is measured as it is: {error}", file=sys.stderr)


def named(family: Family, file: Path) -> bool:
    """Whether the family's spec names `file` as `tuned`."""
    return any(each.resolve() == file.resolve() for each in family.spec.tuned_files)


def keep(families: Families, folder: Path) -> Functions:
    """The functions of all contracts as they are now, in copies of the families in `folder`.

    A copy has a name of its own: Python imports it beside the family that it is of.
    """
    own = functions(families)
    for name in families.known:
        shutil.copytree(families.out / name, folder / f"{name}_before", ignore=shutil.ignore_patterns("__pycache__"))
    return {key: replace(each, file=folder / f"{key[0]}_before") for key, each in own.items()}


def functions(families: Families) -> Functions:
    """The functions of all contracts of the families."""
    return {
        (name, contract): families.contract(kernels, name, contract)
        for name, family in families.known.items()
        for contract, kernels in family.contracts.items()
    }


def with_functions(trials: Sequence[Trial], families: Families) -> list[Trial]:
    """The trials, each with the function of its contract, whose choice is then timed too.

    Raises `CallError` for a trial in which only some kernels of the contract are measured.
    """
    own = functions(families)
    for trial in trials:
        if not trial.whole:
            raise CallError(f"--regret compares with all kernels of a contract; --only omits some of {trial.contract}")
    return [replace(trial, function=own[trial.family, trial.contract]) for trial in trials]


def again(families: Families, specs: Sequence[Path], files: Mapping[str, Path]) -> Families:
    """Render the families whose specs name the files that were written; print which specs do not, and what is unused.

    Returns the families as they are now.
    """
    now = Families(specs, families.out)
    for name, family in now.known.items():
        file = files[name]
        if not file.exists():
            continue
        if not named(family, file):
            print(f"{family.spec.path} does not name {file}: add it as `tuned`, with `select: table` or `fastest`")
            continue
        rendered([family], now.out)
        for unused, why in tuned.left_out(family):
            print(f"{family.spec.path}: {unused} {why}")
    return now


def compare(
    trials: Iterable[Trial], before: Functions, after: Functions, executor: Executor, until: float, factory: str
) -> bool:
    """Time the functions before and after in the same rounds, and print the table; return whether the device was lost.

    Left out are contracts of families that rendering has not changed, and sizes that are not reached before
    `time.monotonic()` is `until`.
    """
    pairs = [(x, before[x.family, x.contract], after[x.family, x.contract]) for x in trials]
    changed = [(trial, (old, new)) for trial, old, new in pairs if old.digest != new.digest]
    if not changed:
        return False
    columns = ["contract", "size", "before, µs", "after, µs", "torch, µs", "before / after"]
    print(line(columns), line(["---"] * len(columns)), sep="\n")
    ratios, left = [], 0
    for trial, sides in changed:
        if time.monotonic() >= until:
            left += 1
            continue
        try:
            calls = executor.submit(trial_worker.functions, trial.problem, sides, factory).result()
        except Exception as error:
            # A worker that has lost its device, or died, measures nothing more.
            print(f"tune: {trial.contract} {trial.problem.shape}: {reason(error)}", file=sys.stderr)
            return True
        ratio = calls[0] / calls[1] if calls[0] and calls[1] else None
        ratios += [ratio] if ratio else []
        cells = [NONE if seconds is None else f"{seconds * 1e6:.4g}" for seconds in calls]
        print(line([trial.contract, str(trial.problem.shape), *cells, f"{ratio:.3f}" if ratio else NONE]), flush=True)
    if ratios:
        print(f"The public functions are {geometric_mean(ratios):.3f} times as fast as before (geometric mean).")
    if left:
        print(f"tune: {left} sizes were left out, because the budget is spent", file=sys.stderr)
    return False
