"""`python -m generator verify`: verify rendered kernels.

Exit status: 0 everything passed; 1 something failed, or was not proved without --allow-undecided; 2 the spec or the
command line is wrong; 130 stopped by Ctrl-C or SIGTERM, as `timeout` and CI send it, with what passed in the files.
Jobs that a level leaves out, and reports with a reason, do not change the exit status.
"""

from __future__ import annotations

import argparse
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
from functools import cache
from pathlib import Path
from typing import TypeVar

from generator.emit.apply import MANIFEST
from generator.emit.manifest_reader import Rendered
from generator.files import output_files
from generator.files.reading import FileError
from generator.files.updating import require_regular
from generator.language.call_numbers import MOST_PROCESSES, whole_number
from generator.language.errors import CallError, SpecError, shown
from generator.language.targets import TARGETS
from generator.verify import proof_records, static_checks, worker_pool
from generator.verify.coverage import Coverage
from generator.verify.job_costs import Costs
from generator.verify.job_selection import plan, rendered, shard, within_reach
from generator.verify.jobs import LEVELS, WHOLE, Failure, Job, Result, status
from generator.verify.level_scope import out_of_reach
from generator.verify.page import page
from generator.verify.parallel import workers_by_default
from generator.verify.result_cache import ResultCache
from generator.verify.run_report import failure_text, summary, write_junit

_Parsed = TypeVar("_Parsed")
#: The most parts that a run can be divided into.
_MOST_PARTS = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run `verify` with the command line's arguments; return the exit status."""
    arguments = parser().parse_args(argv)
    try:
        return _verify(arguments)
    except SpecError as error:
        print(error, file=sys.stderr)
    except CallError as error:
        print(f"error: {error}", file=sys.stderr)
    except FileError as error:
        print(error, file=sys.stderr)
        return 1
    return 2


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m generator verify",
        description="Verify rendered kernels: each file is loaded by its path and compared with float64.",
    )
    parser.add_argument(
        "specs",
        nargs="+",
        type=Path,
        metavar="SPEC",
        help="spec files whose kernels to verify, or folders of rendered families, which need no spec",
    )
    parser.add_argument(
        "--level",
        action="append",
        choices=LEVELS,
        help="level to prove; may be given several times (default: static, bounds, interpret, and gpu with a GPU)",
    )
    parser.add_argument(
        "--target",
        action="append",
        choices=("all", *TARGETS),
        help="target of the compile level; may be given several times (default: the targets of each kernel)",
    )
    parser.add_argument(
        "--coverage",
        type=_reported(Coverage.parse),
        default=Coverage.parse("all"),
        metavar="all|pairs|triples|kernels|N%",
        help="which combinations of kernel, configuration, class of arguments and target to run: all; enough to cover "
        "every pair or triple of axis values; enough kernels to cover every pair, with one launch each; or a share "
        "(default: all)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("generated"), help="the folder of the rendered families (default: generated)"
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="only kernels and contracts whose name matches")
    parser.add_argument("--case", metavar="GLOB", help="only cases whose name matches")
    parser.add_argument(
        "--shard", type=_reported(part), default=(1, 1), metavar="I/N", help="run the I-th of N parts of equal cost"
    )
    parser.add_argument(
        "--jobs", type=_reported(_processes), metavar="N", help="worker processes (default: one per processor)"
    )
    parser.add_argument(
        "--allow-undecided",
        action="store_true",
        help="do not fail if cases are not proved (they could not run here, or bounds does not understand them)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as one HTML page")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="add the results that passed to FILE as JSON, keyed by syntax trees; records of more cases stay",
    )
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="FILE", help="prove nothing; print the records in FILE as Markdown"
    )
    parser.add_argument("--costs", type=Path, metavar="FILE", help="write the durations of jobs, used by --shard")
    parser.add_argument(
        "--cache",
        type=_reported(_folder),
        metavar="DIR",
        help="folder of the result cache (default: in the user's cache folder)",
    )
    parser.add_argument("--fresh", action="store_true", help="run every job again and ignore cached results")
    return parser


def _reported(parse: Callable[[str], _Parsed]) -> Callable[[str], _Parsed]:
    """`parse`, with its ValueError raised as the error that argparse reports."""

    def parsed(text: str) -> _Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _processes(text: str) -> int:
    return whole_number(text, 1, MOST_PROCESSES)


def _folder(text: str) -> Path:
    """The path of a folder; raise ValueError for an empty one, as of a variable that is not set."""
    if not text:
        raise ValueError("expected the path of a folder, got an empty text")
    return Path(text)


def part(text: str) -> tuple[int, int]:
    """The numbers of `I/N`; raise ValueError for anything else."""
    index, _, count = text.partition("/")
    try:
        of = whole_number(count, 1, _MOST_PARTS)
        return whole_number(index, 1, of), of
    except ValueError:
        message = f"expected I/N with I from 1 to N, such as 1/4, and N up to {_MOST_PARTS}, got {shown(text)}"
        raise ValueError(message) from None


def _verify(arguments: argparse.Namespace) -> int:
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
    jobs = shard(chosen, index, count, Costs.shipped().of)
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


def _check_reports(arguments: argparse.Namespace, found: Sequence[Rendered]) -> None:
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
    arguments: argparse.Namespace, done: Sequence[Result], found: Sequence[Rendered], stopped: bool
) -> Iterator[Callable[[], None]]:
    """What writes each requested report; a run that is stopped has measured no durations."""
    if arguments.junit:
        yield lambda: write_junit(arguments.junit, done, allow_undecided=arguments.allow_undecided)
    if arguments.html:
        yield lambda: output_files.put(arguments.html, page(done, found))
    if arguments.costs and not stopped:
        yield lambda: output_files.put(arguments.costs, Costs.measured(done).text())
    # The last one, because results of another machine raise `CallError`.
    if arguments.results:
        yield lambda: _record(arguments.results, done)


def _record(path: Path, done: Sequence[Result]) -> None:
    for line in proof_records.write(path, done):
        print(line)


def _refuse_idle(jobs: Sequence[Job], arguments: argparse.Namespace, found: Sequence[Rendered]) -> None:
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


def _refuse_unmatched(case: str, results: Sequence[Result]) -> None:
    """Raise `CallError` if `--case` matches no case of a level that has cases."""
    matched: dict[str, bool] = {}
    for result in results:
        if result.job.level not in WHOLE:
            matched[result.job.level] = matched.get(result.job.level, False) or result.left_out is None
    missing = [level for level, found in matched.items() if not found]
    if missing:
        raise CallError(f"--case {case!r} matches no case at the level {' and at the level '.join(missing)}")


def _run(
    jobs: Sequence[Job], aside: Mapping[Job, Result], cache: ResultCache, workers: int, *, fresh: bool
) -> list[Result]:
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
            done.append(Result(job, failures=(missing,)))
            print(failure_text(done[-1]), flush=True)
    return sorted(done, key=lambda result: order[result.job])


def _outcomes(jobs: Sequence[Job], workers: int) -> Iterator[Result]:
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


def _progress(outcomes: Iterable[Result], total: int, level: str) -> Iterable[Result]:
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
        raise CallError("verify needs torch; install the extra: pip install 'gemm-generator[verify]'")
    asked = subprocess.run(
        [sys.executable, "-m", "generator.verify.gpu"], capture_output=True, encoding="utf-8", errors="replace"
    )
    if asked.returncode != 0:
        reason = asked.stderr.strip().rpartition("\n")[2] or f"status {asked.returncode}"
        raise CallError(f"torch cannot query the GPU: {reason}")
    name, architecture = json.loads(asked.stdout.splitlines()[-1])
    return name, architecture
