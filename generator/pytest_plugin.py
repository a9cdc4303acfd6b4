"""A pytest plugin that verifies rendered families: `pytest --gemm-family path/to/family`; the option may be repeated.

The family's folder is enough; the spec is not needed. Every kernel is one test at every level that the machine
supports: static, bounds, interpret and compile on all machines, gpu where torch sees a GPU. Jobs that a level leaves
out are skipped. Jobs that are not proved fail, unless `--gemm-allow-undecided` makes them expected failures.

`gemm_generator_pytest` is what pytest loads where the package is installed: it passes its hooks on to this module.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from generator.verify.jobs import Job, JobResult
    from generator.verify.result_cache import ResultCache

#: The property of a report that says whether the result is cached.
_CACHED = "gemm_cached"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, unless `gemm_generator_pytest` has added them."""
    try:
        options = importlib.import_module("generator.commands.gemm_generator_pytest")
    except ModuleNotFoundError:
        # The wheel has it at its top.
        options = importlib.import_module("gemm_generator_pytest")
    with contextlib.suppress(ValueError):
        options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each job of the families, before `-k` and `-m` select among all tests."""
    families = config.getoption("--gemm-family")
    if not families:
        return
    from generator.files.package_data import NotInstalled
    from generator.files.plain_text import representable
    from generator.files.reading import FileError
    from generator.language.errors import CallError

    try:
        jobs, aside, cache = _jobs(config, [Path(folder) for folder in families])
    except (CallError, FileError, NotInstalled, ValueError) as error:
        raise pytest.UsageError(f"--gemm-family: {error}") from None
    from generator.verify.run_report import folder_names

    # Of the whole run, so that a shard, and each process of pytest-xdist, gives a test the same name.
    names = {folder: representable(name) for folder, name in folder_names(map(Path, families)).items()}
    outcomes = Outcomes(finished=aside, cache=cache, fresh=config.getoption("--gemm-fresh"))
    config.stash[_OUTCOMES] = outcomes
    items += [
        Proof.from_parent(session, name=f"{names[job.folder]}::{job.label}::{job.name}", job=job, outcomes=outcomes)
        for job in jobs
    ]


def _jobs(config: pytest.Config, folders: Sequence[Path]) -> tuple[list[Job], dict[Job, JobResult], ResultCache]:
    """The jobs of the session, the results of those that cannot run here, and the results of earlier sessions."""
    from generator.language.targets import TARGETS
    from generator.verify.coverage import Coverage
    from generator.verify.job_selection import cost, part, plan, rendered, shard, within_reach
    from generator.verify.level_scope import out_of_reach
    from generator.verify.result_cache import ResultCache
    from generator.verify.verification_run import architecture, default_levels, gpu

    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not the folder of a rendered family")
    unknown = sorted(set(config.getoption("--gemm-target")) - TARGETS.keys())
    if unknown:
        raise ValueError(f"--gemm-target {unknown[0]!r} is unknown; legal: {', '.join(TARGETS)}")
    folder = config.getoption("--gemm-cache")
    if folder == "":
        # As of a variable that is not set.
        raise ValueError("--gemm-cache: expected the path of a folder, got an empty text")
    coverage = Coverage(config.getoption("--gemm-coverage"))
    index, count = part(config.getoption("--gemm-shard"))
    families = rendered(folders, Path())
    # The query for a GPU takes seconds: mistakes in the options are reported first.
    asked = config.getoption("--gemm-level")
    device = gpu() if not asked or "gpu" in asked else None
    levels = asked or (*default_levels(device), "compile")
    if "gpu" in levels and device is None:
        raise ValueError("--gemm-level gpu: torch sees no GPU here")
    if config.getoption("--gemm-target") and "compile" not in levels:
        raise ValueError("--gemm-target goes with --gemm-level compile")
    jobs = plan(families, [level for level in levels if level != "compile"])
    compiled = plan(families, ("compile",) * ("compile" in levels), targets=config.getoption("--gemm-target"))
    # Computed for the whole run, as in `verify`.
    aside = out_of_reach([*jobs, *compiled], families, architecture() if "gpu" in levels else None)
    jobs += within_reach(compiled, [job for job in compiled if job in aside], families, coverage)[0]
    cache = ResultCache(Path(folder) if folder else None, families, device, "--gemm-cache")
    return shard(jobs, index, count, cost), aside, cache


def pytest_collection_finish(session: pytest.Session) -> None:
    """Pass the workers the jobs that `-k` and `-m` select, so that they run ahead of the tests."""
    outcomes = session.config.stash.get(_OUTCOMES, None)
    if outcomes is not None:
        outcomes.select([item.job for item in session.items if isinstance(item, Proof)])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many results are cached; with pytest-xdist the reports come from other processes."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    proofs = [dict(report.user_properties) for report in reports if getattr(report, "when", None) == "call"]
    cached = [counts[_CACHED] for counts in proofs if _CACHED in counts]
    if any(cached):
        message = f"{sum(cached)} of {len(cached)} proofs are cached; --gemm-fresh runs them again"
        terminalreporter.write_line(f"gemm-generator: {message}")


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
        """Wait for the job's result; raise if it failed or is not proved."""
        from generator.verify.jobs import JobState
        from generator.verify.run_report import explanation

        result = self.outcomes(self.job)
        self.user_properties.append((_CACHED, result.cached))
        if result.state is JobState.LEFT_OUT:
            pytest.skip(explanation(result))
        if result.state is JobState.NOT_PROVED and self.config.getoption("--gemm-allow-undecided"):
            pytest.xfail(explanation(result))
        if result.state is not JobState.PASSED:
            raise _Unproved(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failures and cases not proved as `verify` prints them, each with the command that repeats it."""
        if isinstance(excinfo.value, _Unproved):
            from generator.verify.run_report import whole_text

            return whole_text(excinfo.value.result)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The location of the test: the kernel's file."""
        return self.job.file, 0, self.name


class _Unproved(Exception):
    def __init__(self, result: JobResult) -> None:
        super().__init__(result.job.name)
        self.result = result


class Outcomes:
    """The results of all selected jobs: a test that asks for one waits, while worker processes go on with others.

    A process of pytest-xdist runs only some of the tests that it collected, so it runs one job at a time, when a test
    asks for it. With `together` the caller promises that one process runs the tests of all these jobs.

    Results of earlier sessions come from `cache`, and unless `fresh` is set these jobs do not run.

    It has no thread: a process that one starts reads the environment while tests, by `monkeypatch.setenv`, change it.
    """

    def __init__(
        self,
        jobs: Sequence[Job] = (),
        finished: Mapping[Job, JobResult] = {},
        *,
        together: bool | None = None,
        cache: ResultCache | None = None,
        fresh: bool = False,
    ) -> None:
        self.jobs = list(jobs)
        self.cache, self.fresh = cache, fresh
        self.together = "PYTEST_XDIST_WORKER" not in os.environ if together is None else together
        self.done = dict(finished)
        self.error: Exception | None = None
        #: The results to come, by level.
        self.begun: dict[str, Generator[JobResult]] = {}

    def select(self, jobs: Sequence[Job]) -> None:
        """Choose the jobs to run: those of `jobs` that are not done, or, where each process runs a few, none yet."""
        self.jobs = self._left(jobs) if self.together else []

    def _left(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs that are not done, now that results of earlier sessions are."""
        left = [job for job in jobs if job not in self.done]
        if self.cache is not None and not self.fresh:
            cached, left = self.cache.cached(left)
            self.done.update((result.job, result) for result in cached)
        return left

    def __call__(self, job: Job) -> JobResult:
        """The result of a job; waits for it. Raises what ended the workers, if it has none."""
        if not self.together:
            for result in _results(job.level, self._left([job])):
                self.done[job] = result
        elif job not in self.done and self.error is None:
            if job.level not in self.begun:
                self.begin((job.level,))
            self._wait(job)
        if job not in self.done:
            assert self.error is not None
            raise self.error
        if self.cache is not None:
            self.cache.store(self.done[job])
        return self.done[job]

    def begin(self, levels: Sequence[str]) -> None:
        """Run the jobs of these levels from the first one that a test asks for, one level after the other."""
        of_levels = (_results(level, [job for job in self.jobs if job.level == level]) for level in levels)
        self.begun.update(dict.fromkeys(levels, (result for results in of_levels for result in results)))

    def _wait(self, job: Job) -> None:
        try:
            for result in self.begun[job.level]:
                self.done[result.job] = result
                if result.job == job:
                    return
        except Exception as error:
            self.error = error

    def close(self) -> None:
        """Cancel the jobs that have not started."""
        for results in self.begun.values():
            results.close()
        if self.cache is not None:
            self.cache.flush()


def _results(level: str, jobs: list[Job]) -> Iterator[JobResult]:
    from generator.verify import static_checks
    from generator.verify.worker_pool import results, workers_by_default

    return static_checks.run(jobs) if level == "static" else results(level, jobs, workers_by_default())


_OUTCOMES: pytest.StashKey[Outcomes] = pytest.StashKey()
