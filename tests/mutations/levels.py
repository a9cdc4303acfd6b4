"""Every mutation goes through the levels, in their order, until one of them finds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from generator.emit.manifest_reader import read
from generator.verify.cases import smallest_row
from generator.verify.jobs import LEVELS, Failure, Job
from generator.verify.verification_run import gpu, results_at

from .catalogue import Mutation
from .tool import plant

#: What the compile level compiles for.
TARGET = "sm90"


@dataclass(frozen=True)
class Fate:
    """What became of a mutation: the level that found it, and its failures there; None where it passed every level."""

    level: str | None
    failures: tuple[Failure, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(f"{failure.case}: {failure.message}" for failure in self.failures)


def surprise(mutation: Mutation, fate: Fate) -> str | None:
    """What is otherwise than the catalogue foretells, or None."""
    if mutation.equivalent is not None:
        return None if fate.level is None else f"equivalent, and found at the {fate.level} level: {fate.text}"
    if fate.level is None and mutation.by == "gpu" and gpu() is None:
        return None
    if fate.level is None:
        return "passes every level"
    if LEVELS.index(fate.level) > LEVELS.index(mutation.by):
        return f"found at the {fate.level} level, and should be at the {mutation.by} level: {fate.text}"
    if fate.level == mutation.by and not any(mutation.says in failure.message for failure in fate.failures):
        return f"found, but no message says {mutation.says!r}: {fate.text}"
    return None


def job(mutation: Mutation, folder: Path, level: str) -> Job | None:
    """What `level` does to the mutation that was planted in the family's `folder`; None where it has no such job."""
    name = mutation.kernel[1]
    if mutation.contract is not None:
        if level in ("interpret", "gpu"):
            return Job(level, folder, mutation.contract, contract=True)
        # A family's `__init__.py` is counted to the kernel that stands for it.
        return Job(level, folder, name) if level == "static" else None
    if level != "compile":
        return Job(level, folder, name)
    launches = mutation.launches or (f"row{smallest_row(read(folder).by_name[name])}-aligned",)
    return Job(level, folder, name, target=TARGET, chosen=launches)


def fates(mutations: Sequence[Mutation], folder: Path) -> Iterator[tuple[Mutation, Fate]]:
    """What becomes of each of `mutations`, which are planted in `folder`: those that are found first come first."""
    # Each under a folder of its own, since that of the family gives the package its name.
    planted = {mutation: plant(mutation, folder / str(number)) for number, mutation in enumerate(mutations)}
    device = gpu()
    for level in LEVELS:
        if level == "gpu" and device is None:
            continue
        jobs = {job(mutation, at, level): mutation for mutation, at in planted.items()}
        for result in results_at(level, [work for work in jobs if work is not None]):
            if result.failures:
                mutation = jobs[result.job]
                del planted[mutation]
                yield mutation, Fate(level, result.failures)
    for mutation in planted:
        yield mutation, Fate(None)
