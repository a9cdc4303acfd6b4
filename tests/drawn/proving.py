"""Families of drawn specs put through a level of `verify`, by its own workers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from generator.emit.manifest_reader import read
from generator.plan.kernels import Kernel
from generator.verify.job_selection import plan
from generator.verify.jobs import Job
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
