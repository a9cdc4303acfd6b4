"""A pytest plugin that proves rendered families: `pytest --gemm-family path/to/family`, once for each.

The family's manifest is enough; its spec need not be at hand. Every kernel is a test at every level that the machine
has: static, bounds, interpret and compile anywhere, gpu where torch sees one. What a level leaves out by its nature is
skipped; what it should have proved and could not fails, unless `--gemm-allow-undecided` makes that an expected failure.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from generator.verify.jobs import Job, Result

#: Written out, since nothing of the harness is imported for sessions that do not use the plugin.
_LEVELS = ("static", "bounds", "interpret", "compile", "gpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options; `--help` lists them under the plugin's name."""
    group = parser.getgroup("gemm-generator", "proof of rendered GEMM kernels")
    group.addoption(
        "--gemm-family", action="append", default=[], metavar="DIR", help="prove the kernels of this rendered family"
    )
    group.addoption(
        "--gemm-level", action="append", choices=_LEVELS, help="only this level (default: all that the machine has)"
    )
    group.addoption(
        "--gemm-target", action="append", default=[], metavar="TARGET", help="compile for this (default: the kernel's)"
    )
    group.addoption(
        "--gemm-coverage",
        default="pairs",
        metavar="all|pairs|triples|kernels|N%",
        help="which launches are compiled (default: enough for every pair of axis values)",
    )
    group.addoption("--gemm-shard", default="1/1", metavar="I/N", help="only the I-th of N parts of equal cost")
    group.addoption(
        "--gemm-allow-undecided", action="store_true", help="what is not proved is an expected failure (xfail)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each job of the families named, before `-k` and `-m` choose among all tests."""
    families = config.getoption("--gemm-family")
    if not families:
        return
    from generator.language.errors import CallError

    try:
        jobs, aside = _jobs(config, [Path(folder) for folder in families])
    except (CallError, ValueError) as error:
        raise pytest.UsageError(f"--gemm-family: {error}") from None
    outcomes = Outcomes(known=aside)
    config.stash[_OUTCOMES] = outcomes
    items += [
        Proof.from_parent(session, name=f"{job.folder.name}::{job.label}::{job.name}", job=job, outcomes=outcomes)
        for job in jobs
    ]


def _jobs(config: pytest.Config, folders: Sequence[Path]) -> tuple[list[Job], dict[Job, Result]]:
    """The jobs of the call, and what becomes of those that cannot run here."""
    from generator.language.vocabulary import TARGETS
    from generator.verify.cli import architecture, default_levels, gpu, part
    from generator.verify.coverage import Coverage
    from generator.verify.job_costs import Costs
    from generator.verify.job_selection import plan, rendered, shard, within_reach
    from generator.verify.level_scope import out_of_reach

    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder of a rendered family")
    unknown = sorted(set(config.getoption("--gemm-target")) - TARGETS.keys())
    if unknown:
        raise ValueError(f"--gemm-target {unknown[0]!r} is unknown; legal: {', '.join(TARGETS)}")
    coverage = Coverage.parse(config.getoption("--gemm-coverage"))
    index, count = part(config.getoption("--gemm-shard"))
    found = rendered(folders, Path())
    # It takes seconds to ask for a GPU: what is wrong with the call is said before.
    device = gpu()
    levels = config.getoption("--gemm-level") or (*default_levels(device), "compile")
    if "gpu" in levels and device is None:
        raise ValueError("--gemm-level gpu: torch sees no GPU here")
    if config.getoption("--gemm-target") and "compile" not in levels:
        raise ValueError("--gemm-target goes with --gemm-level compile")
    jobs = plan(found, [level for level in levels if level != "compile"])
    compiled = plan(found, ("compile",) * ("compile" in levels), targets=config.getoption("--gemm-target"))
    # As `verify` has it, of the whole run.
    aside = out_of_reach([*jobs, *compiled], found, architecture() if "gpu" in levels else None)
    jobs += within_reach(compiled, [job for job in compiled if job in aside], found, coverage)[0]
    return shard(jobs, index, count, Costs.shipped().of), aside


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the workers what is left after `-k` and `-m`, so that they work ahead of the tests."""
    outcomes = session.config.stash.get(_OUTCOMES, None)
    if outcomes is not None:
        selected = [item.job for item in session.items if isinstance(item, Proof)]
        outcomes.jobs = [job for job in selected if job not in outcomes.done]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers."""
    outcomes = config.stash.get(_OUTCOMES, None)
    if outcomes is not None:
        outcomes.close()


class Proof(pytest.Item):
    """One kernel, or one contract's function, at one level."""

    def __init__(self, *, job: Job, outcomes: Outcomes, **rest: Any) -> None:
        super().__init__(**rest)
        self.job, self.outcomes = job, outcomes

    def runtest(self) -> None:
        """Wait for the result of the job, and raise what is wrong."""
        from generator.verify.jobs import State
        from generator.verify.run_report import told

        result = self.outcomes(self.job)
        if result.state is State.LEFT_OUT:
            pytest.skip(told(result))
        if result.state is State.NOT_PROVED and self.config.getoption("--gemm-allow-undecided"):
            pytest.xfail(told(result))
        if result.state is not State.PASSED:
            raise _Unproved(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What failed and what is not proved as `verify` prints it, with the command that repeats each."""
        if isinstance(excinfo.value, _Unproved):
            from generator.verify.run_report import whole_text

            return whole_text(excinfo.value.result)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the test stands: in the kernel's file."""
        return self.job.file, 0, self.name


class _Unproved(Exception):
    def __init__(self, result: Result) -> None:
        super().__init__(result.job.name)
        self.result = result


class Outcomes:
    """The results of all jobs that were selected, worked out side by side while the first are waited for.

    A process of pytest-xdist, which runs a part of what it collected, works out a job when it is asked for it, unless
    the caller knows that the tests of all these jobs are run in one process and says `together`.
    """

    def __init__(
        self, jobs: Sequence[Job] = (), known: Mapping[Job, Result] = {}, *, together: bool | None = None
    ) -> None:
        self.jobs = list(jobs)
        self.together = "PYTEST_XDIST_WORKER" not in os.environ if together is None else together
        self.done = dict(known)
        self.error: Exception | None = None
        self.changed = threading.Condition()
        self.begun: set[str] = set()
        self.threads: list[threading.Thread] = []
        self.stopped = False

    def __call__(self, job: Job) -> Result:
        if job in self.done:
            return self.done[job]
        if not self.together:
            return next(iter(self._results(job.level, [job])))
        if job.level not in self.begun:
            self.begin((job.level,))
        with self.changed:
            self.changed.wait_for(lambda: job in self.done or self.error is not None)
        if job not in self.done:
            assert self.error is not None
            raise self.error
        return self.done[job]

    def begin(self, levels: Sequence[str]) -> None:
        """Work out the jobs of these levels from now on, one level after the other."""
        self.begun.update(levels)
        self.threads.append(threading.Thread(target=self._work, args=(levels,), daemon=True))
        self.threads[-1].start()

    def _results(self, level: str, jobs: list[Job]) -> Iterator[Result]:
        from generator.verify import static_checks
        from generator.verify.worker_pool import results, workers_by_default

        return static_checks.run(jobs) if level == "static" else results(level, jobs, workers_by_default())

    def _work(self, levels: Sequence[str]) -> None:
        try:
            for level in levels:
                for result in self._results(level, [job for job in self.jobs if job.level == level]):
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
        """Give up what has not begun."""
        self.stopped = True
        for thread in self.threads:
            thread.join()


_OUTCOMES: pytest.StashKey[Outcomes] = pytest.StashKey()
