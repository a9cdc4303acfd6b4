"""The kernels of every spec, at every level that this machine has: one test a kernel, level and target.

All of them where that takes seconds or a GPU; interpreted and compiled, as many as have all pairs of axis values, of
which one launch each is compiled. That every kernel was interpreted as it is, on each Triton version, is in
tests/results/proofs, and tests/test_readme.py asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.verify.cli import default_levels, gpu
from generator.verify.coverage import Coverage
from generator.verify.jobs import Job, Result
from generator.verify.plan import covered, plan, rendered
from generator.verify.report import failure_text

ROOT = Path(__file__).resolve().parents[2]
#: The target that is compiled for by default: that of the reference device.
PRIMARY = "sm90"


def jobs() -> list[Job]:
    """Every kernel at every quick level, and at the slow ones the same few with all pairs of axis values."""
    found = rendered(sorted((ROOT / "specs").glob("*.yaml")), ROOT / "generated")
    slow = plan(found, ("interpret",)) + plan(found, ("compile",), targets=(PRIMARY,))
    chosen, _ = covered(slow, found, Coverage.parse("kernels"))
    return plan(found, [level for level in default_levels(gpu()) if level != "interpret"]) + chosen


JOBS = jobs()


def label(job: Job) -> str:
    return f"{job.label}-{job.folder.name}-{job.name}"


@pytest.mark.parametrize("job", JOBS, ids=label)
def test_verified(job: Job, outcome: Callable[[Job], Result], record_property: Callable[[str, object], None]) -> None:
    result = outcome(job)
    if result.left_out is not None:
        record_property("left_out", result.left_out)
        return
    assert not result.failures, failure_text(result)
    assert result.cases > 0
