"""`python -m generator verify`: prove rendered kernels right.

Exit status: 0 everything passed, 1 something failed, 2 the spec or the call is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from generator.errors import CallError, SpecError
from generator.rendered import Rendered
from generator.verify import results, run, static
from generator.verify.costs import Costs
from generator.verify.coverage import Coverage
from generator.verify.jobs import LEVELS, Job, Result
from generator.verify.kept import Kept
from generator.verify.page import page
from generator.verify.plan import covered, out_of_reach, plan, rendered, shard
from generator.verify.report import failure_text, summary, write_junit
from generator.verify.run import workers_by_default
from generator.vocabulary import TARGETS

_Parsed = TypeVar("_Parsed")


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
    parser.add_argument(
        "specs",
        nargs="+",
        type=Path,
        metavar="SPEC",
        help="spec files whose kernels to verify, or folders of rendered families, whose manifest is enough",
    )
    parser.add_argument(
        "--level",
        action="append",
        choices=LEVELS,
        help="what to prove; may be given several times (default: static, bounds, interpret, and gpu if any)",
    )
    parser.add_argument(
        "--target",
        action="append",
        choices=("all", *TARGETS),
        help="what the compile level compiles for; may be given several times (default: the targets of each kernel)",
    )
    parser.add_argument(
        "--coverage",
        type=_told(Coverage.parse),
        default=Coverage.parse("all"),
        metavar="all|pairs|triples|kernels|N%",
        help="which combinations of kernel, row, class and target: every one, enough for every pair or triple of axis "
        "values that there is, enough kernels for every pair of theirs with one launch each, or a share (default: all)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("generated"), help="where the families lie (default: generated)"
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="only kernels and contracts whose name matches")
    parser.add_argument("--case", metavar="GLOB", help="only cases whose name matches")
    parser.add_argument(
        "--shard", type=_told(part), default=(1, 1), metavar="I/N", help="the I-th of N parts of equal cost, I from 1"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: one a processor)")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the outcome as JUnit XML")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the outcome as one page of HTML")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="write what passed as JSON, keyed by the code's meaning; adds to FILE, less what is there of more cases",
    )
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="FILE", help="prove nothing: print what such files hold, as Markdown"
    )
    parser.add_argument("--costs", type=Path, metavar="FILE", help="write what jobs took, by which --shard divides")
    parser.add_argument(
        "--cache", type=Path, default=Path(".verify_cache"), metavar="DIR", help="where results are kept between runs"
    )
    parser.add_argument("--fresh", action="store_true", help="do everything again, whatever results are kept")
    return parser


def _told(parse: Callable[[str], _Parsed]) -> Callable[[str], _Parsed]:
    """`parse`, with the words of its ValueError as argparse tells them."""

    def parsed(text: str) -> _Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def part(text: str) -> tuple[int, int]:
    """The numbers of `I/N`; raise ValueError for anything else."""
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ValueError(f"expected I/N with I from 1 to N, such as 1/4, got {text!r}")
    return int(index), int(count)


def _verify(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    if arguments.jobs is not None and arguments.jobs < 1:
        raise CallError(f"--jobs must be at least 1, got {arguments.jobs}")
    found = rendered(arguments.specs, arguments.out, arguments.only)
    if arguments.table:
        print(results.table(arguments.table, results.current(found)))
        return 0
    device = gpu()
    asked = arguments.level or default_levels(device)
    levels = [level for level in LEVELS if level in asked]
    if "gpu" in levels and device is None:
        raise CallError(f"--level gpu: torch sees no GPU here; levels that run anywhere: {', '.join(LEVELS[:-1])}")
    if arguments.target and "compile" not in levels:
        raise CallError("--target goes with --level compile")
    targets = tuple(TARGETS) if "all" in (arguments.target or ()) else tuple(dict.fromkeys(arguments.target or ()))
    jobs = plan(found, levels, arguments.only, arguments.case, targets)
    if not jobs:
        names = ", ".join(str(path) for path in arguments.specs)
        raise CallError(f"--only {arguments.only!r} matches no kernel of {names}")
    jobs, choices = covered(jobs, found, arguments.coverage)
    for choice in choices:
        print(choice.text())
    if not jobs:
        raise CallError(f"--coverage {arguments.coverage.word} chooses none of what there is; ask for more")
    index, count = arguments.shard
    jobs = shard(jobs, index, count, Costs.shipped().of)
    kept = Kept(arguments.cache, found, device)
    try:
        done = _run(jobs, found, kept, arguments.jobs or workers_by_default(), fresh=arguments.fresh)
    finally:
        kept.close()
    ran = [result for result in done if result.job.level not in ("static", "bounds")]
    if arguments.case is not None and not any(result.cases or result.failures for result in ran):
        raise CallError(f"--case {arguments.case!r} matches no case")
    for line in summary(done, time.monotonic() - started):
        print(line)
    if arguments.junit:
        write_junit(arguments.junit, done)
    if arguments.html:
        arguments.html.write_text(page(done, found))
    if arguments.results:
        for line in results.write(arguments.results, done):
            print(line)
    if arguments.costs:
        arguments.costs.write_text(Costs.measured(done).text())
    return 1 if any(result.failures for result in done) else 0


def _run(jobs: Sequence[Job], found: Sequence[Rendered], kept: Kept, workers: int, *, fresh: bool) -> list[Result]:
    """Every result, failures printed as they come; sorted as the jobs are, since workers finish as they like."""
    done, left = out_of_reach(jobs, found)
    if not fresh:
        known, left = kept.known(left)
        done += known
    asked = {(job.level, job.folder, job.name, job.contract, job.target): job for job in jobs}
    for level in LEVELS:
        at_level = [job for job in left if job.level == level]
        if not at_level:
            continue
        outcomes = static.run(at_level) if level == "static" else run.results(level, at_level, workers)
        for result in _progress(outcomes, len(at_level), level):
            job = result.job
            result = kept.whole(result, asked[job.level, job.folder, job.name, job.contract, job.target])
            if result.failures:
                print(failure_text(result), flush=True)
            kept.keep(result)
            done.append(result)
    order = {job: place for place, job in enumerate(jobs)}
    return sorted(done, key=lambda result: order[result.job])


def _progress(outcomes: Iterable[Result], total: int, level: str) -> Iterable[Result]:
    """The same results, counted on a terminal."""
    if not sys.stderr.isatty():
        return outcomes
    from tqdm import tqdm

    return tqdm(outcomes, total=total, desc=level, unit="kernel")


def default_levels(device: str | None) -> tuple[str, ...]:
    """The levels that are quick: static, bounds, interpret, and gpu where there is a device."""
    return ("static", "bounds", "interpret", *(("gpu",) if device else ()))


@cache
def gpu() -> str | None:
    """The name of the GPU that torch sees; asked of a process of its own, so that this one stays free of CUDA."""
    if importlib.util.find_spec("torch") is None:
        raise CallError("verify needs torch; install the extra: pip install 'gemm-generator[verify]'")
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() or None
