"""A run of `verify`: what a call proves, prints and writes, and its exit status."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from generator.emit.apply import MANIFEST
from generator.emit.manifest_reader import Rendered
from generator.files import output_files, own_process
from generator.files.updating import require_regular
from generator.language.errors import CallError, lacks
from generator.language.targets import TARGETS
from generator.verify import proof_records, static_checks, worker_pool
from generator.verify.coverage import Coverage
from generator.verify.job_costs import JobCosts
from generator.verify.job_selection import plan, rendered, shard, within_reach
from generator.verify.jobs import LEVELS, WHOLE, Failure, Job, JobResult, status
from generator.verify.level_scope import out_of_reach
from generator.verify.page import page
from generator.verify.parallel import workers_by_default
from generator.verify.result_cache import ResultCache
from generator.verify.run_report import failure_text, summary, write_junit


@dataclass
class VerificationOptions:
    """The options of one call."""

    specs: list[Path] = field(default_factory=list)
    level: list[str] | None = None
    target: list[str] | None = None
    coverage: Coverage = field(default_factory=lambda: Coverage.parse("all"))
    out: Path = Path("generated")
    only: str = "*"
    case: str | None = None
    shard: tuple[int, int] = (1, 1)
    jobs: int | None = None
    allow_undecided: bool = False
    junit: Path | None = None
    html: Path | None = None
    results: Path | None = None
    table: list[Path] | None = None
    costs: Path | None = None
    cache: Path | None = None
    fresh: bool = False


def verify(arguments: VerificationOptions) -> int:
    """Prove what a call asks for, write its reports and return the exit status; raises `CallError` and `SpecError`."""
    started = time.monotonic()
    found = rendered(arguments.specs, arguments.out, arguments.only)
    if arguments.table:
        code = proof_records.current(found)
        print(proof_records.table(arguments.table, code))
        nothing = proof_records.why_no_row(arguments.table, code)
        if nothing is not None:
            print(nothing, file=sys.stderr)
        return 0 if nothing is None else 1
    # The query imports torch, which takes seconds.
    device = gpu() if arguments.level is None or "gpu" in arguments.level else None
    asked = arguments.level or default_levels(device)
    levels = [level for level in LEVELS if level in asked]
    if "gpu" in levels and device is None:
        raise CallError(f"--level gpu: torch sees no GPU here; levels that run anywhere: {', '.join(LEVELS[:-1])}")
    if "interpret" in levels and importlib.util.find_spec("numpy") is None:
        raise lacks("verify --level interpret", "numpy", "verify")
    if arguments.target and "compile" not in levels:
        raise CallError("--target goes with --level compile")
    targets = tuple(TARGETS) if "all" in (arguments.target or ()) else tuple(dict.fromkeys(arguments.target or ()))
    if arguments.case is not None and all(level in WHOLE for level in levels):
        raise CallError(f"--case {arguments.case!r} matches no case: the level {levels[0]} proves a kernel as a whole")
    jobs = plan(found, levels, arguments.only, arguments.case, targets)
    _refuse_idle(jobs, arguments, found)
    _check_reports(arguments, found)
    # Computed for the whole run: every shard then agrees on what a level leaves out.
    aside = out_of_reach(jobs, found, architecture() if "gpu" in levels else None)
    chosen, choices = within_reach(jobs, aside, found, arguments.coverage)
    for choice in choices:
        print(choice.text())
    index, count = arguments.shard
    jobs = shard(chosen, index, count, JobCosts.shipped().of)
    if not jobs:
        print(f"--shard {index}/{count} has no job; all shards together have {len(chosen)}")
    cache = ResultCache(arguments.cache, found, device)
    try:
        done = _run(jobs, aside, cache, arguments.jobs or workers_by_default(), fresh=arguments.fresh)
    finally:
        cache.close()
    stopped = len(done) < len(jobs)
    if arguments.case is not None and not stopped:
        _refuse_unmatched(arguments.case, [result for result in done if result.job not in aside])
    for line in summary(done, time.monotonic() - started):
        print(line)
    written = output_files.attempt(_reports(arguments, done, found, stopped))
    if stopped:
        print(
            f"stopped: {len(jobs) - len(done)} of {len(jobs)} jobs did not run; the same call runs them",
            file=sys.stderr,
        )
        return 130
    return max(written, status(done, allow_undecided=arguments.allow_undecided))


#: The options that name a file to write.
_REPORTS = ("junit", "html", "results", "costs")


def _check_reports(arguments: VerificationOptions, found: Sequence[Rendered]) -> None:
    """Raise `CallError` or `FileError` for a file that cannot be written, before anything is proved."""
    outputs = {f"--{name}": path for name in _REPORTS if (path := getattr(arguments, name)) is not None}
    specs = [path for path in arguments.specs if path.is_file()]
    rendered_files = [family.folder / name for family in found for name in (*family.files, MANIFEST)]
    wrong = output_files.clash(outputs, [*specs, *rendered_files])
    if wrong is not None:
        raise CallError(wrong)
    folders = {os.path.realpath(family.folder) for family in found}
    for option, path in outputs.items():
        if not folders.isdisjoint(map(str, Path(os.path.realpath(path)).parents)):
            raise CallError(f"{option} {path}: belongs to a family that is verified; name a file elsewhere")
    if arguments.results is not None:
        # What is in it is read, and stays.
        require_regular(arguments.results)
    for path in outputs.values():
        output_files.check(path)
    if arguments.results is not None and arguments.results.exists():
        proof_records.read(arguments.results)


def _reports(
    arguments: VerificationOptions, done: Sequence[JobResult], found: Sequence[Rendered], stopped: bool
) -> Iterator[Callable[[], None]]:
    """What writes each requested report; a run that is stopped has measured no durations."""
    if junit := arguments.junit:
        yield lambda: write_junit(junit, done, allow_undecided=arguments.allow_undecided)
    if html := arguments.html:
        yield lambda: output_files.put(html, page(done, found))
    if (costs := arguments.costs) and not stopped:
        yield lambda: output_files.put(costs, JobCosts.measured(done).text())
    # The last one, because results of another machine raise `CallError`.
    if results := arguments.results:
        yield lambda: _record(results, done)


def _record(path: Path, done: Sequence[JobResult]) -> None:
    for line in proof_records.write(path, done):
        print(line)


def _refuse_idle(jobs: Sequence[Job], arguments: VerificationOptions, found: Sequence[Rendered]) -> None:
    """Raise `CallError` if `--only` matches no job, or none at a requested level; print families without a match."""
    only, names = arguments.only, ", ".join(str(path) for path in arguments.specs)
    if not jobs:
        raise CallError(f"--only {only!r} matches no kernel of {names}")
    idle = [level for level in arguments.level or () if not any(job.level == level for job in jobs)]
    if idle:
        levels = "a contract's function runs only at the levels interpret and gpu"
        raise CallError(f"--only {only!r} matches no kernel of {names} at the {idle[0]} level: {levels}")
    folders = {job.folder for job in jobs}
    without = [family.name for family in found if family.folder not in folders]
    if without:
        print(f"--only {only!r} matches nothing of {', '.join(without)}")


def _refuse_unmatched(case: str, results: Sequence[JobResult]) -> None:
    """Raise `CallError` if `--case` matches no case of a level that has cases."""
    matched: dict[str, bool] = {}
    for result in results:
        if result.job.level not in WHOLE:
            matched[result.job.level] = matched.get(result.job.level, False) or result.left_out is None
    missing = [level for level, found in matched.items() if not found]
    if missing:
        raise CallError(f"--case {case!r} matches no case at the level {' and at the level '.join(missing)}")


def _run(
    jobs: Sequence[Job], aside: Mapping[Job, JobResult], cache: ResultCache, workers: int, *, fresh: bool
) -> list[JobResult]:
    """The result of every job, in the order of `jobs`; a job in `aside` does not run and has the result given there.

    Failures are printed as soon as they are known. A run that is stopped has the results of the jobs that are done.
    """
    done = [aside[job] for job in jobs if job in aside]
    left = [job for job in jobs if job not in aside]
    if not fresh:
        cached, left = cache.cached(left)
        done += cached
    asked = {(job.level, job.folder, job.name, job.contract, job.target): job for job in jobs}
    order = {job: place for place, job in enumerate(jobs)}
    try:
        with _terminable():
            for result in _outcomes(left, workers):
                job = result.job
                result = cache.whole(result, asked[job.level, job.folder, job.name, job.contract, job.target])
                if result.failures:
                    print(failure_text(result), flush=True)
                cache.store(result)
                done.append(result)
    except KeyboardInterrupt:
        pass
    else:
        missing = Failure("process", "every job has a result", "no worker returned a result")
        for job in order.keys() - {result.job for result in done}:
            done.append(JobResult(job, failures=(missing,)))
            print(failure_text(done[-1]), flush=True)
    return sorted(done, key=lambda result: order[result.job])


def _outcomes(jobs: Sequence[Job], workers: int) -> Iterator[JobResult]:
    """The results of the jobs as they come, level by level."""
    for level in LEVELS:
        at_level = [job for job in jobs if job.level == level]
        if at_level:
            found = static_checks.run(at_level) if level == "static" else worker_pool.results(level, at_level, workers)
            yield from _progress(found, len(at_level), level)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP too; only the main thread may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(outcomes: Iterable[JobResult], total: int, level: str) -> Iterable[JobResult]:
    """The same results, with a progress bar on a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return outcomes
    from tqdm import tqdm

    return tqdm(outcomes, total=total, desc=level, unit="kernel")


def default_levels(device: str | None) -> tuple[str, ...]:
    """The fast levels: static, bounds, interpret, and gpu if there is a device."""
    return ("static", "bounds", "interpret", *(("gpu",) if device else ()))


def gpu() -> str | None:
    """The name of the GPU that torch sees, or None."""
    return _device()[0]


def architecture() -> str | None:
    """The architecture of that GPU as a target's name, such as `sm90`, or None."""
    return _device()[1]


@cache
def _device() -> tuple[str | None, str | None]:
    """Both, queried in a separate process, so that this process does not initialise CUDA."""
    if importlib.util.find_spec("torch") is None:
        raise lacks("verify", "torch", "verify")
    command = own_process.command("generator.verify.gpu")
    asked = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if asked.returncode != 0:
        reason = asked.stderr.strip().rpartition("\n")[2] or f"status {asked.returncode}"
        raise CallError(f"torch cannot query the GPU: {reason}")
    name, architecture = json.loads(asked.stdout.splitlines()[-1])
    return name, architecture
