"""Every kernel of every spec, at every level that this machine has: one test a kernel and level."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from generator.verify.cli import default_levels
from generator.verify.jobs import Job, Result
from generator.verify.plan import families, plan, require_rendered, run_static
from generator.verify.report import failure_text
from generator.verify.run import results, workers_by_default

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = families(sorted((ROOT / "specs").glob("*.yaml")))
JOBS = plan(FAMILIES, default_levels(), ROOT / "generated")


def label(job: Job) -> str:
    return f"{job.level}-{job.spec.stem}-{job.name}"


class Outcomes:
    """The results of all tests that were selected, worked out side by side while the first are waited for."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.done: dict[Job, Result] = {}
        self.error: Exception | None = None
        self.changed = threading.Condition()
        self.threads: dict[str, threading.Thread] = {}
        self.stopped = False

    def __call__(self, job: Job) -> Result:
        if "PYTEST_XDIST_WORKER" in os.environ:
            # Each process runs a part of what it collected: it works out one at a time.
            return next(iter(self.iterate(job.level, [job])))
        if job.level not in self.threads:
            self.threads[job.level] = threading.Thread(target=self.work, args=(job.level,), daemon=True)
            self.threads[job.level].start()
        with self.changed:
            self.changed.wait_for(lambda: job in self.done or self.error is not None)
        if job not in self.done:
            assert self.error is not None
            raise self.error
        return self.done[job]

    def iterate(self, level: str, jobs: list[Job]) -> Iterator[Result]:
        return run_static(jobs, FAMILIES) if level == "static" else results(level, jobs, workers_by_default())

    def work(self, level: str) -> None:
        try:
            for result in self.iterate(level, [job for job in self.jobs if job.level == level]):
                with self.changed:
                    self.done[result.job] = result
                    self.changed.notify_all()
                if self.stopped:
                    return
        except Exception as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def close(self) -> None:
        self.stopped = True
        for thread in self.threads.values():
            thread.join()


@pytest.fixture(scope="session")
def outcome(request: pytest.FixtureRequest) -> Iterator[Callable[[Job], Result]]:
    selected = [item.callspec.params["job"] for item in request.session.items if item.name.startswith("test_verified[")]
    require_rendered(selected, FAMILIES)
    outcomes = Outcomes(selected)
    yield outcomes
    outcomes.close()


@pytest.mark.parametrize("job", JOBS, ids=label)
def test_verified(job: Job, outcome: Callable[[Job], Result], record_property: Callable[[str, object], None]) -> None:
    result = outcome(job)
    if result.left_out is not None:
        record_property("left_out", result.left_out)
        return
    assert not result.failures, failure_text(result)
    assert result.cases > 0
