"""Families of drawn specs put through a level of `verify`, by its own workers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from generator.emit.manifest_reader import read
from generator.language.targets import TARGETS
from generator.plan.kernels import Kernel
from generator.plan.resources import TENSOR_MEMORY
from generator.verify.job_selection import plan
from generator.verify.jobs import Job, JobResult
from generator.verify.launches import REFUSED, launches

#: Beside the plain launch of each row and that of each row which must not fit, so many others of a kernel are compiled.
_OTHERS = 2


def jobs(level: str, folders: Iterable[Path], target: str, wanted: int) -> list[Job]:
    """What proves so many launches of the families at the compile level, so many kernels of them at another.

    All there are, where there are fewer; families behind the last that is needed are not looked at.
    """
    found: list[Job] = []
    count = 0
    for folder in folders:
        kernels = read(folder).kernels
        if level == "compile":
            some = [_some(folder, kernel, target) for kernel in kernels]
            count += sum(len(job.chosen) for job in some)
            found += some
        else:
            found += plan([read(folder)], [level])
            count += len(kernels)
        if count >= wanted:
            break
    return found


def _some(folder: Path, kernel: Kernel, target: str) -> Job:
    """Of each row the plain launch, and a few of the others, the same each time."""
    names = [(launch.name, launch.case.name) for launch in launches(kernel, target)]
    plain = [name for name, case in names if case in ("aligned", REFUSED)]
    others = [name for name, _ in names if name not in plain]
    chosen = random.Random(f"{folder.name} {kernel.name}").sample(others, min(_OTHERS, len(others)))
    return Job("compile", folder, kernel.name, target=target, chosen=(*plain, *chosen))


def needlessly_refused(results: Iterable[JobResult]) -> Iterator[str]:
    """The rows that the legality table refuses for want of memory, and that would fit by this version of Triton."""
    for result in results:
        for launch, figures in result.measured:
            needs, target = dict(figures), TARGETS[str(result.job.target)]
            fits = needs["shared"] <= target.shared_memory and needs["tensor_memory"] <= TENSOR_MEMORY
            if launch.endswith(f"-{REFUSED}") and fits:
                yield f"{result.job.folder.name} {result.job.name} {launch}: {needs['shared']} bytes"


def refused(results: Sequence[JobResult]) -> int:
    """How many rows were compiled that must not fit."""
    return sum(launch.endswith(f"-{REFUSED}") for result in results for launch, _ in result.measured)
