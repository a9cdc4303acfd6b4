"""Drawn specs rendered, and put through a level of `verify` by its own workers."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from generator.job import Job as Rendering
from generator.job import render
from generator.model import Kernel
from generator.rendered import read
from generator.resources import TENSOR_MEMORY
from generator.verify import run
from generator.verify.jobs import Job, Result
from generator.verify.launches import REFUSED, launches
from generator.verify.plan import plan
from generator.vocabulary import TARGETS

from .specs import drawn

#: Beside the plain launch of each row and that of each row which must not fit, so many others of a kernel are compiled.
_OTHERS = 2


def rendered(folder: Path, target: str, seed: int) -> Iterator[Path]:
    """Families of drawn specs in `folder`, each with its spec beside it, without end."""
    for index, (text, family) in enumerate(drawn(target, seed)):
        name = f"drawn{index:05}"
        (folder / f"{name}.yaml").write_text(text)
        with contextlib.redirect_stdout(io.StringIO()):
            render([Rendering(replace(family, spec=replace(family.spec, name=name)), folder)])
        yield folder / name


def jobs(level: str, folder: Path, target: str, seed: int, wanted: int) -> list[Job]:
    """What proves so many launches at the compile level, so many kernels at the others."""
    found: list[Job] = []
    count = 0
    for path in rendered(folder, target, seed):
        family = read(path)
        if level == "compile":
            found += [_some(path, kernel, target, seed) for kernel in family.kernels]
            count += sum(len(job.chosen) for job in found[-len(family.kernels) :])
        else:
            found += plan([family], [level])
            count += len(family.kernels)
        if count >= wanted:
            return found
    raise AssertionError("specs are drawn without end")


def _some(folder: Path, kernel: Kernel, target: str, seed: int) -> Job:
    names = [(launch.name, launch.case.name) for launch in launches(kernel, target)]
    plain = [name for name, case in names if case in ("aligned", REFUSED)]
    others = [name for name, _ in names if name not in plain]
    chosen = random.Random(f"{seed} {folder.name} {kernel.name}").sample(others, min(_OTHERS, len(others)))
    return Job("compile", folder, kernel.name, target=target, chosen=(*plain, *chosen))


def results(level: str, wanted: Sequence[Job], workers: int) -> Iterator[Result]:
    """The result of every job, as `verify` would have it."""
    yield from run.results(level, wanted, workers)


def needlessly_refused(found: Sequence[Result]) -> list[str]:
    """The rows that the legality table refuses for want of memory, and that would fit by this version of Triton."""
    names = []
    for result in found:
        limit = TARGETS[result.job.target or ""].shared_memory if result.job.target else 0
        for launch, figures in result.measured:
            needs = dict(figures)
            fits = needs["shared"] <= limit and needs["tensor_memory"] <= TENSOR_MEMORY
            if launch.endswith(f"-{REFUSED}") and fits:
                names.append(f"{result.job.folder.name} {result.job.name} {launch}: {needs['shared']} bytes")
    return names
