"""The kernels of every spec, at every level that this machine has: one test a kernel, level and target.

All of them where that takes seconds or a GPU; interpreted and compiled, a few that have between them every value of
every axis, and all pairs of values but those of layout, dtype and epilogue; of each, one launch is compiled. That every
kernel was interpreted as it is, on each Triton version, is in measured/proofs, and tests/test_readme.py asks for
it; `verify --coverage` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from generator.emit.manifest_reader import remembered
from generator.verify.cli import default_levels, gpu
from generator.verify.coverage import Coverage, choose
from generator.verify.job_selection import covered, plan, rendered
from generator.verify.jobs import Job, Result, State
from generator.verify.run_report import whole_text
from tests.helpers.support import ROOT

#: The target that is compiled for by default: that of the reference device.
PRIMARY = "sm90"
#: Axes of so many values that all pairs with these would take a third of all kernels.
LONG = ("layout", "dtype", "epilogue")


def few(points: Sequence[Mapping[str, str]]) -> list[int]:
    """The places of points that have all pairs of values of the short axes, and every value of the long ones."""
    short = [{axis: word for axis, word in point.items() if axis not in LONG} for point in points]
    chosen = list(choose(short, Coverage.parse("pairs")).indices)
    left = {word for point in points for word in point.items()}
    left -= {word for place in chosen for word in points[place].items()}
    while left:
        chosen.append(max(range(len(points)), key=lambda place: len(points[place].items() & left)))
        left -= points[chosen[-1]].items()
    return chosen


def jobs() -> list[Job]:
    """Every kernel at every quick level, and at the slow ones the same few."""
    found = rendered(sorted((ROOT / "specs").glob("*.yaml")), ROOT / "generated")
    kernels = [(family.folder, kernel) for family in found for kernel in family.kernels]
    places = few([kernel.variant.words for _, kernel in kernels])
    names = {(folder, kernel.name) for folder, kernel in (kernels[place] for place in places)}
    slow = plan(found, ("interpret",)) + plan(found, ("compile",), targets=(PRIMARY,))
    slow = [job for job in slow if job.contract or (job.folder, job.name) in names]
    # Of these few all pairs: as good as all of them, one launch of each where they are compiled.
    chosen, _ = covered(slow, found, Coverage.parse("kernels"))
    return plan(found, [level for level in default_levels(gpu()) if level != "interpret"]) + chosen


JOBS = jobs()


def label(job: Job) -> str:
    return f"{job.label}-{job.folder.name}-{job.name}"


@pytest.mark.parametrize("level", ["interpret", "compile"])
def test_the_few_have_every_value_of_every_axis(level: str) -> None:
    words = {
        (job.folder, kernel.name): kernel.variant.words.items()
        for job in JOBS
        if job.level == "static"
        for kernel in [remembered(job.folder).by_name[job.name]]
        if level == "interpret" or PRIMARY in kernel.targets
    }
    chosen = [words[job.folder, job.name] for job in JOBS if job.level == level and not job.contract]
    assert set().union(*chosen) == set().union(*words.values())
    assert len(chosen) < len(words) / 5


@pytest.mark.parametrize("job", JOBS, ids=label)
def test_verified(job: Job, outcome: Callable[[Job], Result], record_property: Callable[[str, object], None]) -> None:
    result = outcome(job)
    if result.state is State.LEFT_OUT:
        record_property("left_out", result.left_out)
        return
    assert result.state is State.PASSED, whole_text(result) or result
