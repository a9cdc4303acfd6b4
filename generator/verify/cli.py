"""`python -m generator verify`: prove rendered kernels right.

Exit status: 0 everything passed, 1 something failed, 2 the spec or the call is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from generator.errors import CallError, SpecError
from generator.model import Family
from generator.verify.jobs import LEVELS, Job, Result
from generator.verify.plan import families, plan, require_rendered, run_static, shard
from generator.verify.report import failure_text, summary, write_junit, write_results
from generator.verify.run import results, workers_by_default


def main(argv: Sequence[str] | None = None) -> int:
    """Verify what the arguments name; the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return _verify(arguments)
    except SpecError as error:
        print(error, file=sys.stderr)
    except CallError as error:
        print(f"error: {error}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m generator verify", description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="+", type=Path, metavar="SPEC", help="spec files whose kernels to verify")
    parser.add_argument(
        "--level",
        action="append",
        choices=LEVELS,
        help="what to prove; may be given several times (default: static, interpret, and gpu where there is one)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("generated"), help="where the families lie (default: generated)"
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="only kernels and contracts whose name matches")
    parser.add_argument("--case", metavar="GLOB", help="only cases whose name matches")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N", help="the I-th of N parts, I from 1")
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: one a processor)")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the outcome as JUnit XML")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write what passed as JSON, keyed by body digest")
    return parser


def _shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with I from 1 to N, such as 1/4, got {text!r}")
    return int(index), int(count)


def _verify(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    if arguments.jobs is not None and arguments.jobs < 1:
        raise CallError(f"--jobs must be at least 1, got {arguments.jobs}")
    found = families(list(dict.fromkeys(arguments.specs)))
    levels = tuple(dict.fromkeys(arguments.level or default_levels()))
    if "gpu" in levels and not _has_gpu():
        raise CallError("--level gpu: torch sees no GPU here; levels that run anywhere: static, interpret")
    jobs = plan(found, levels, arguments.out, arguments.only, arguments.case)
    if not jobs:
        raise CallError(f"--only {arguments.only!r} matches no kernel of {', '.join(map(str, found))}")
    jobs = shard(jobs, *arguments.shard)
    require_rendered(jobs, found)
    done = _run(jobs, found, arguments.jobs or workers_by_default())
    ran = [result for result in done if result.job.level != "static"]
    if arguments.case is not None and not any(result.cases or result.failures for result in ran):
        raise CallError(f"--case {arguments.case!r} matches no case")
    for line in summary(done, time.monotonic() - started):
        print(line)
    if arguments.junit:
        write_junit(arguments.junit, done)
    if arguments.results:
        write_results(arguments.results, done)
    return 1 if any(result.failures for result in done) else 0


def _run(jobs: Sequence[Job], found: dict[Path, Family], workers: int) -> list[Result]:
    """Every result, failures printed as they come; sorted as the jobs are, since workers finish as they like."""
    done = []
    for level in LEVELS:
        at_level = [job for job in jobs if job.level == level]
        if not at_level:
            continue
        outcomes = run_static(at_level, found) if level == "static" else results(level, at_level, workers)
        for result in _progress(outcomes, len(at_level), level):
            if result.failures:
                print(failure_text(result), flush=True)
            done.append(result)
    order = {job: place for place, job in enumerate(jobs)}
    return sorted(done, key=lambda result: order[result.job])


def _progress(outcomes: Iterable[Result], total: int, level: str) -> Iterable[Result]:
    """The same results, counted on a terminal."""
    if not sys.stderr.isatty():
        return outcomes
    from tqdm import tqdm

    return tqdm(outcomes, total=total, desc=level, unit="kernel")


def default_levels() -> tuple[str, ...]:
    """The levels that this machine has: static, interpret, and gpu where torch sees one."""
    return LEVELS if _has_gpu() else LEVELS[:2]


def _has_gpu() -> bool:
    """Whether torch sees a GPU; asked of a process of its own, so that this one stays small and free of CUDA."""
    if importlib.util.find_spec("torch") is None:
        raise CallError("verify needs torch; install the extra: pip install 'gemm-generator[gpu]'")
    code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 3)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
