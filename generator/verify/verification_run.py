"""A run of `verify`: the function of the command line and of `import generator`, which prints and writes nothing."""

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from generator.emit.manifest_reader import Rendered
from generator.emit.rendering_call import Paths, folder_of, paths_of, require_pattern
from generator.files.parent_process import own_command
from generator.language.call_numbers import MOST_PROCESSES
from generator.language.errors import CallError, lacks, nearest, shown
from generator.language.gpus import nearest_target
from generator.language.targets import TARGETS
from generator.verify import proof_records, static_checks, worker_pool
from generator.verify.coverage import Coverage, CoveringArray
from generator.verify.job_selection import cost, covered, plan, rendered
from generator.verify.job_selection import shard as shard_of
from generator.verify.jobs import LEVELS, WHOLE, Failure, Job, JobResult, JobState
from generator.verify.level_scope import out_of_reach
from generator.verify.result_cache import ResultCache
from generator.verify.worker_pool import workers_by_default


@dataclass(frozen=True)
class VerificationPlan:
    """What a call proves, before any of it is proved."""

    families: tuple[Rendered, ...]
    #: The jobs of this call, those that cannot run here among them, and how many there are in all shards together.
    jobs: tuple[Job, ...]
    total: int
    #: How many jobs of this call the record of `lacking` has.
    recorded: int
    #: The results of the jobs that cannot run here, with the reasons.
    out_of_reach: Mapping[Job, JobResult]
    #: How `coverage` has chosen among the combinations of each level; none where all of them run.
    choices: tuple[CoveringArray, ...]
    #: The names of the families of which `only` matches nothing.
    unmatched: tuple[str, ...]
    #: The GPU of this machine, if a level needs it.
    device: str | None


@dataclass(frozen=True)
class VerifyResult:
    """The results of a call, in the order of its jobs."""

    results: tuple[JobResult, ...]
    #: How many jobs did not run, because the call was stopped by Ctrl-C or a signal.
    stopped: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether everything was proved: all jobs have run, and each has passed or is left out with a reason."""
        return not (self.stopped or self.failed or self.not_proved)

    @property
    def failed(self) -> tuple[JobResult, ...]:
        """The results with a case that failed."""
        return tuple(result for result in self.results if result.state is JobState.FAILED)

    @property
    def not_proved(self) -> tuple[JobResult, ...]:
        """The results with a case that could not be decided here."""
        return tuple(result for result in self.results if result.state is JobState.NOT_PROVED)


def verify(
    families: Paths,
    out: str | os.PathLike[str] = "generated",
    *,
    levels: Sequence[str] | None = None,
    targets: Sequence[str] = (),
    coverage: str = "all",
    only: str = "*",
    case: str | None = None,
    shard: tuple[int, int] = (1, 1),
    lacking: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    progress: bool = False,
    report: Callable[[VerificationPlan | JobResult], object] | None = None,
) -> VerifyResult:
    """Prove rendered families, given by the paths of their folders or of their specs, whose folders are in `out`.

    `levels` are those of `LEVELS`, by default the fast ones, and gpu where there is a GPU; `targets` those of the level
    compile, or `all`. `coverage` says which combinations run, `only` and `case` are patterns of names, `shard` is the
    I-th of N parts, `jobs` the number of worker processes. `lacking` is a record that `verify --results` wrote on this
    machine: what it has is not proved again, neither a kernel nor a configuration of one. `cache` is the folder of the
    result cache; `fresh` ignores what it holds. `progress` shows a bar on a terminal. `report` is called with the plan
    before anything is proved, and with each result when it is there.

    Raises `CallError` for a wrong call, `SpecError` for a wrong spec, and `FileError` for a folder that cannot be read.
    A proof that fails raises nothing: see `VerifyResult.ok`.
    """
    started = time.monotonic()
    chosen = _require_words(levels, targets, shard)
    require_pattern("only", only)
    require_pattern("case", case)
    if jobs is not None and (not isinstance(jobs, int) or not 1 <= jobs <= MOST_PROCESSES):
        raise CallError(f"jobs: expected a whole number from 1 to {MOST_PROCESSES}, got {shown(jobs)}")
    given = paths_of(families)
    read = rendered(given, folder_of(out), only)
    planned = plan_of(given, read, levels, chosen, _coverage(coverage), only, case, shard, lacking)
    if report is not None:
        report(planned)
    kept = ResultCache(None if cache is None else Path(cache), read, planned.device, fresh=fresh)
    try:
        done = _run(planned, kept, jobs or workers_by_default(), progress=progress, report=report)
    finally:
        kept.flush()
    stopped = len(planned.jobs) - len(done)
    if case is not None and not stopped:
        _refuse_unmatched(case, [result for result in done if result.job not in planned.out_of_reach])
    return VerifyResult(tuple(done), stopped, time.monotonic() - started)


def _require_words(levels: Sequence[str] | None, targets: Sequence[str], shard: tuple[int, int]) -> tuple[str, ...]:
    """The targets, each once; raises `CallError` for an unknown word, and for a shard beyond their number."""
    for name, words in ("levels", levels), ("targets", targets):
        if isinstance(words, str):
            raise CallError(f"{name}: expected several words, as in [{words!r}], got {words!r}")
    for level in levels or ():
        if level not in LEVELS:
            raise CallError(f"there is no level {level!r}; {nearest(level, LEVELS)}")
    for target in targets:
        if target not in ("all", *TARGETS):
            raise CallError(f"there is no target {target!r}; {nearest_target(target, ('all', *TARGETS))}")
    if not (isinstance(shard, tuple) and [*map(type, shard)] == [int, int] and 1 <= shard[0] <= shard[1]):
        raise CallError(f"shard: expected (I, N) with I from 1 to N, got {shown(shard)}")
    return tuple(TARGETS) if "all" in targets else tuple(dict.fromkeys(targets))


def _coverage(word: str) -> Coverage:
    try:
        return Coverage(word)
    except ValueError as error:
        raise CallError(f"coverage: {error}") from None


def plan_of(
    given: Sequence[Path],
    families: Sequence[Rendered],
    wanted: Sequence[str] | None,
    targets: Sequence[str],
    coverage: Coverage,
    only: str = "*",
    case: str | None = None,
    part: tuple[int, int] = (1, 1),
    record: str | os.PathLike[str] | None = None,
    *,
    plugin: bool = False,
) -> VerificationPlan:
    """What a call proves of `families`, which are those of the paths `given`; the other parameters as in `verify`.

    The level compile of pytest's `plugin` is one of the default levels, and the only one at which `coverage` chooses:
    all else takes seconds a kernel. Raises `CallError`.
    """
    front = "--gemm-" if plugin else "--"
    # The query imports torch, which takes seconds.
    device = gpu() if not wanted or "gpu" in wanted else None
    asked = wanted or (*default_levels(device), *["compile"] * plugin)
    levels = [level for level in LEVELS if level in asked]
    if "gpu" in levels and device is None:
        anywhere = ", ".join(LEVELS[:-1])
        raise CallError(f"{front}level gpu: torch sees no GPU here; levels that run anywhere: {anywhere}")
    if "interpret" in levels and importlib.util.find_spec("numpy") is None:
        raise lacks("verify --level interpret", "numpy", "verify")
    if targets and "compile" not in levels:
        raise CallError(f"{front}target goes with {front}level compile")
    if case is not None and all(level in WHOLE for level in levels):
        raise CallError(f"--case {case!r} matches no case: the level {levels[0]} proves a kernel as a whole")
    jobs = plan(families, levels, only, case, targets)
    _refuse_idle(jobs, only, wanted or (), given)
    # Computed for the whole run: every shard then agrees on what a level leaves out.
    aside = out_of_reach(jobs, families, here()[1] if "gpu" in levels else None)
    chosen, choices = covered(jobs, families, coverage, aside, ("compile",) if plugin else LEVELS)
    # Of each part what is lacking: parts that are recorded in turn stay the same.
    mine = shard_of(chosen, *part, cost)
    left = mine if record is None else _lacking(mine, aside, families, Path(record), device)
    folders = {job.folder for job in jobs}
    return VerificationPlan(
        tuple(families),
        tuple(left),
        len(chosen),
        len(mine) - len(left),
        aside,
        tuple(choices),
        tuple(family.name for family in families if family.folder not in folders),
        device,
    )


def _lacking(
    jobs: Sequence[Job], aside: Collection[Job], families: Sequence[Rendered], path: Path, device: str | None
) -> list[Job]:
    """The jobs that the record in `path` lacks, and those in `aside`; raises `CallError` for another machine's."""
    record = proof_records.read(path)
    runs = {"device": device} if device and any(job.level == "gpu" for job in jobs) else {}
    proof_records.require_same_machine(path, record, here()[2] | runs)
    return proof_records.lacking(jobs, families, record, aside)


def _refuse_idle(jobs: Sequence[Job], only: str, levels: Sequence[str], given: Sequence[Path]) -> None:
    """Raise `CallError` if `only` matches no job, or none at a level that the call names."""
    names = ", ".join(map(str, given))
    if not jobs:
        raise CallError(f"--only {only!r} matches no kernel of {names}")
    idle = [level for level in levels if not any(job.level == level for job in jobs)]
    if idle:
        reason = "a contract's function runs only at the levels interpret and gpu"
        raise CallError(f"--only {only!r} matches no kernel of {names} at the {idle[0]} level: {reason}")


def _refuse_unmatched(case: str, results: Sequence[JobResult]) -> None:
    """Raise `CallError` if `--case` matches no case of a level that has cases."""
    matched: dict[str, bool] = {}
    for result in results:
        if result.job.level not in WHOLE:
            matched[result.job.level] = matched.get(result.job.level, False) or result.left_out is None
    missing = [level for level, count in matched.items() if not count]
    if missing:
        raise CallError(f"--case {case!r} matches no case at the level {' and at the level '.join(missing)}")


def _run(
    planned: VerificationPlan,
    cache: ResultCache,
    workers: int,
    *,
    progress: bool,
    report: Callable[[JobResult], object] | None,
) -> list[JobResult]:
    """The result of every job, in the order of the plan; a job that is out of reach does not run.

    A run that is stopped has the results of the jobs that are done.
    """
    jobs, aside, tell = planned.jobs, planned.out_of_reach, report or (lambda result: None)
    cached, left = cache.cached([job for job in jobs if job not in aside])
    done = [*(aside[job] for job in jobs if job in aside), *cached]
    for result in done:
        tell(result)
    order = {job: index for index, job in enumerate(jobs)}
    try:
        with _terminable():
            for result in _outcomes(left, workers, progress):
                cache.store(result)
                done.append(result)
                tell(result)
    except KeyboardInterrupt:
        pass
    else:
        missing = Failure("process", "every job has a result", "no worker returned a result")
        for job in order.keys() - {result.job for result in done}:
            done.append(JobResult(job, failures=(missing,)))
            tell(done[-1])
    return sorted(done, key=lambda result: order[result.job])


def _outcomes(jobs: Sequence[Job], workers: int, progress: bool) -> Iterator[JobResult]:
    """The results of the jobs as they come, level by level; `progress` shows a bar on a terminal."""
    for level in LEVELS:
        at_level = [job for job in jobs if job.level == level]
        ran: Iterable[JobResult] = results_at(level, at_level, workers)
        if at_level and progress and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            ran = tqdm(ran, total=len(at_level), desc=level, unit="kernel")
        yield from ran


def results_at(level: str, jobs: Sequence[Job], workers: int | None = None) -> Iterator[JobResult]:
    """The results of jobs of one level, as they come."""
    if level == "static":
        return static_checks.run(jobs)
    return worker_pool.results(level, jobs, workers or workers_by_default())


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


def default_levels(device: str | None) -> tuple[str, ...]:
    """The fast levels: static, bounds, interpret, and gpu if there is a device."""
    return ("static", "bounds", "interpret", *(("gpu",) if device else ()))


def gpu() -> str | None:
    """The name of the GPU that torch sees, or None."""
    return here()[0]


@cache
def here() -> tuple[str | None, str | None, dict[str, str]]:
    """The GPU's name and its architecture as a target, such as `sm90`, or None; the versions as a result's place has.

    They are queried in a separate process, so that this process does not initialise CUDA.
    """
    if importlib.util.find_spec("torch") is None:
        raise lacks("verify", "torch", "verify")
    command = own_command("generator.verify.gpu")
    asked = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if asked.returncode != 0:
        reason = asked.stderr.strip().rpartition("\n")[2] or f"status {asked.returncode}"
        raise CallError(f"torch cannot query the GPU: {reason}")
    name, architecture, versions = json.loads(asked.stdout.splitlines()[-1])
    return name, architecture, versions
