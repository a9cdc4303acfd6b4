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
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from generator.verify.jobs import Job, JobResult
    from generator.verify.result_cache import ResultCache
    from generator.verify.verification_run import VerificationPlan

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

    folders = [Path(folder) for folder in families]
    try:
        planned, cache = _planned(config, folders)
    except (CallError, FileError, NotInstalled, ValueError) as error:
        raise pytest.UsageError(f"--gemm-family: {error}") from None
    from generator.verify.run_report import folder_names

    # Of the whole run, so that a shard, and each process of pytest-xdist, gives a test the same name.
    names = {folder: representable(name) for folder, name in folder_names(folders).items()}
    outcomes = Outcomes(finished=planned.out_of_reach, cache=cache)
    config.stash[_OUTCOMES] = outcomes
    items += [
        Proof.from_parent(session, name=f"{names[job.folder]}::{job.label}::{job.name}", job=job, outcomes=outcomes)
        for job in planned.jobs
    ]


def _planned(config: pytest.Config, folders: Sequence[Path]) -> tuple[VerificationPlan, ResultCache]:
    """What the session proves, and the results of earlier sessions."""
    from generator.language.targets import TARGETS
    from generator.verify.coverage import Coverage
    from generator.verify.job_selection import part, rendered
    from generator.verify.result_cache import ResultCache
    from generator.verify.verification_run import plan_of

    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not the folder of a rendered family")
    targets, cache = config.getoption("--gemm-target"), config.getoption("--gemm-cache")
    unknown = sorted(set(targets) - TARGETS.keys())
    if unknown:
        raise ValueError(f"--gemm-target {unknown[0]!r} is unknown; legal: {', '.join(TARGETS)}")
    if cache == "":
        # As of a variable that is not set.
        raise ValueError("--gemm-cache: expected the path of a folder, got an empty text")
    coverage, shard = Coverage(config.getoption("--gemm-coverage")), part(config.getoption("--gemm-shard"))
    families, levels = rendered(folders, Path()), config.getoption("--gemm-level")
    planned = plan_of(folders, families, levels, targets, coverage, part=shard, plugin=True)
    own, fresh = Path(cache) if cache else None, config.getoption("--gemm-fresh")
    return planned, ResultCache(own, families, planned.device, "--gemm-cache", fresh=fresh)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Pass the workers the jobs that `-k` and `-m` select, so that they run ahead of the tests."""
    outcomes = session.config.stash.get(_OUTCOMES, None)
    if outcomes is not None:
        outcomes.jobs = [item.job for item in session.items if isinstance(item, Proof)]


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
        from generator.verify.run_report import explanation, whole_text

        result = self.outcomes(self.job)
        self.user_properties.append((_CACHED, result.cached))
        if result.state is JobState.LEFT_OUT:
            pytest.skip(explanation(result))
        if result.state is JobState.NOT_PROVED and self.config.getoption("--gemm-allow-undecided"):
            pytest.xfail(explanation(result))
        if result.state is not JobState.PASSED:
            # As `verify` prints it: failures and cases not proved, each with the command that repeats it.
            pytest.fail(whole_text(result), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The location of the test: the kernel's file."""
        return self.job.file, 0, self.name


class Outcomes:
    """The results of all selected jobs: a test that asks for one waits, while worker processes go on with others.

    A process of pytest-xdist runs only some of the tests that it collected, so it runs one job at a time, when a test
    asks for it. With `together` the caller promises that one process runs the tests of all these jobs. Jobs whose
    results are in `cache`, from earlier sessions, do not run.

    It has no thread: a process that one starts reads the environment while tests, by `monkeypatch.setenv`, change it.
    """

    def __init__(
        self,
        jobs: Sequence[Job] = (),
        finished: Mapping[Job, JobResult] = {},
        *,
        together: bool | None = None,
        cache: ResultCache | None = None,
    ) -> None:
        self.jobs, self.done, self.cache = jobs, dict(finished), cache
        self.together = "PYTEST_XDIST_WORKER" not in os.environ if together is None else together
        #: The results to come, by level.
        self.begun: dict[str, Generator[JobResult]] = {}

    def __call__(self, job: Job) -> JobResult:
        """The result of a job; waits for it. Raises what ends the workers before it has one."""
        if not self.together:
            self.jobs, self.begun = [job], {}
        if job.level not in self.begun:
            self.begin((job.level,))
        while job not in self.done:
            try:
                result = next(self.begun[job.level])
            except BaseException:
                del self.begun[job.level]
                raise
            self.done[result.job] = result
        return self.done[job]

    def begin(self, levels: Sequence[str]) -> None:
        """Run the jobs of these levels from the first one that a test asks for, one level after the other."""
        self.begun.update(dict.fromkeys(levels, self._results(levels)))

    def _results(self, levels: Sequence[str]) -> Generator[JobResult]:
        from generator.verify.verification_run import results_at

        for level in levels:
            left = [job for job in self.jobs if job.level == level and job not in self.done]
            if self.cache is not None:
                cached, left = self.cache.cached(left)
                yield from cached
            for result in results_at(level, left):
                if self.cache is not None:
                    self.cache.store(result)
                yield result

    def close(self) -> None:
        """Cancel the jobs that have not started."""
        for results in self.begun.values():
            results.close()
        if self.cache is not None:
            self.cache.flush()


_OUTCOMES: pytest.StashKey[Outcomes] = pytest.StashKey()
