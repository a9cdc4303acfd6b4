"""The kernels of every spec, at every level that this machine has: one test a kernel, level and target.

All of them where that takes seconds or a GPU. Interpreted, and proved for any size, are a few that have between them
every value of every axis, and all pairs of values but those of layout, dtype and epilogue; those that are there for
their epilogue alone are interpreted in some cases, and the rest of them on demand (`-m product`). Compiled are fewer
that have every value, one launch of each. Of these, what measured/proofs has for a kernel's code is proved again with
the long tests. Every other kernel is proved for any size unless measured/proofs has that of its code. That every kernel
was interpreted as it is, on each Triton version, is there too, and tests/test_docs.py asks for it; `verify --coverage`
runs as many as one likes.
"""

from dataclasses import replace
from functools import cache

import pytest

from generator.emit.manifest_reader import remembered
from generator.verify import proof_records
from generator.verify.coverage import Coverage, choose
from generator.verify.job_selection import covered, plan, rendered
from generator.verify.jobs import JobState, subject
from generator.verify.run_report import whole_text
from generator.verify.verification_run import default_levels, gpu
from tests.helpers import shipped
from tests.helpers.support import ROOT

#: The target that is compiled for by default: that of the reference device.
PRIMARY = "sm90"
#: Axes of so many values that all pairs with these would take a third of all kernels.
LONG = ("layout", "dtype", "epilogue")
#: The cases of a kernel that is there for its epilogue: edges of tiles, pitches, special values, a plain call.
FOR_EPILOGUES = "[ps]*"


def few(points, *, pairs):
    """The places of points that have every value of every axis, and with `pairs` all pairs of values of the short."""
    short = [{axis: word for axis, word in point.items() if axis not in LONG} for point in points]
    chosen = list(choose(short, Coverage("pairs")).indices) if pairs else []
    left = {word for point in points for word in point.items()}
    left -= {word for place in chosen for word in points[place].items()}
    while left:
        chosen.append(max(range(len(points)), key=lambda place: len(points[place].items() & left)))
        left -= points[chosen[-1]].items()
    return chosen


FAMILIES = rendered(shipped.folders(), shipped.GENERATED)


def jobs():
    """Every kernel at the quick level and where there is a GPU, and at the slow levels a few; the same again; others.

    The few have every value of every axis, and those that run with the long tests all pairs of values of the short
    ones. A kernel that is there for its epilogue alone is interpreted in the cases `FOR_EPILOGUES`. On demand it is
    interpreted in all cases and proved for any size, and its contract's function is called.
    """
    found = plan(FAMILIES, ("interpret",))
    kernels = [(job, remembered(job.folder).by_name[job.name].variant) for job in found if not job.contract]
    points = [{axis: word for axis, word in v.words.items() if axis != "epilogue"} for _, v in kernels]
    first = [kernels[place] for place in few(points, pairs=False)]
    second = [kernels[place] for place in few(points, pairs=True) if kernels[place] not in first]
    names = {v.epilogue.word for _, v in first}
    added = {v.epilogue.word: job for job, v in reversed(kernels) if v.epilogue.word not in names}.values()
    called = {(job.folder, v.contract) for job, v in first}
    chosen, later = (
        [each for job, _ in some for each in (job, replace(job, level="bounds"))] for some in (first, second)
    )
    chosen += [replace(job, case=FOR_EPILOGUES) for job in added]
    others = [each for job in added for each in (job, replace(job, level="bounds"))]
    paired = {(job.folder, v.contract) for job, v in second}
    added_contracts = {(job.folder, remembered(job.folder).by_name[job.name].variant.contract) for job in added}
    for job in found:
        if job.contract and (job.folder, job.name) in called | paired | added_contracts:
            of = (job.folder, job.name)
            (chosen if of in called else later if of in paired else others).append(job)
    found = plan(FAMILIES, ("compile",), targets=(PRIMARY,))
    known = {job: remembered(job.folder).by_name[job.name] for job in found}
    compiled = [job for job, kernel in known.items() if PRIMARY in kernel.targets]
    compiled = [compiled[place] for place in few([known[job].variant.words for job in compiled], pairs=False)]
    # One launch of each.
    chosen += covered(compiled, FAMILIES, Coverage("kernels"))[0]
    quick = [level for level in default_levels(gpu()) if level not in ("bounds", "interpret")]
    again = [job for job in chosen if is_recorded(job)]
    return plan(FAMILIES, quick) + [job for job in chosen if job not in again], again, later, others


@cache
def recorded(level):
    """The code of which measured/proofs has a whole proof of a level, on any machine."""
    records = [proof_records.read(path) for path in (ROOT / "measured" / "proofs").glob("*.json")]
    return {
        code
        for record in records
        for code, levels in record.proved.items()
        if level in levels and proof_records.complete(levels[level])
    }


def is_recorded(job):
    """Whether measured/proofs has a proof of what a job proves."""
    return not job.contract and subject(job) in recorded(job.label)


JOBS, AGAIN, PAIRS, ON_DEMAND = jobs()


def label(job):
    return f"{job.label}-{job.folder.name}-{job.name}{'-some' if job.case else ''}"


@pytest.mark.parametrize("level", ["bounds", "interpret", "compile"])
def test_the_few_have_every_value_of_every_axis(level):
    words = {
        (job.folder, kernel.name): kernel.variant.words.items()
        for job in JOBS
        if job.level == "static"
        for kernel in [remembered(job.folder).by_name[job.name]]
        if level != "compile" or PRIMARY in kernel.targets
    }
    chosen = [words[job.folder, job.name] for job in [*JOBS, *AGAIN] if job.level == level and not job.contract]
    wanted = {(axis, word) for axis, word in set().union(*words.values()) if level != "bounds" or axis != "epilogue"}
    assert wanted <= set().union(*chosen)
    assert len(chosen) < len(words) / 5


@pytest.mark.parametrize(
    "job",
    [
        *JOBS,
        *(pytest.param(job, marks=pytest.mark.long) for job in [*AGAIN, *PAIRS]),
        *(pytest.param(job, marks=pytest.mark.product) for job in ON_DEMAND),
    ],
    ids=label,
)
def test_verified(job, outcome, record_property):
    result = outcome(job)
    if result.state is JobState.LEFT_OUT:
        record_property("left_out", result.left_out)
        return
    assert result.state is JobState.PASSED, whole_text(result) or result


def test_every_other_kernel_was_proved_for_any_size_or_is(pools):
    proved = recorded("bounds")
    chosen = {job for job in [*JOBS, *AGAIN, *PAIRS] if job.level == "bounds"}
    others = {subject(job): job for job in plan(FAMILIES, ("bounds",)) if job not in chosen}
    changed = [job for code, job in others.items() if code not in proved]
    for result in [future.result() for future in [pools("bounds").submit(job) for job in changed]]:
        assert result.state is JobState.PASSED, whole_text(result) or result
