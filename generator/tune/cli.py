"""The command `python -m generator tune`: its options, what it runs, and its exit status."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from generator.bench import precompilation
from generator.bench.arguments import above_0, positive, require_gpu, whole
from generator.bench.comparison_plan import Families
from generator.bench.device import versions
from generator.bench.markdown_tables import tile
from generator.bench.problem import Shape
from generator.bench.suite import DEFAULT_SHAPES, find_shapes, read_shapes
from generator.language.errors import CallError, SpecError, nearest
from generator.plan import devices
from generator.tune import executors, trial_worker, tuning_run, winners
from generator.tune import winners_report as reports
from generator.tune.journal import Journal
from generator.tune.samples import Row
from generator.tune.trial_selection import Plan, calls, plan
from generator.tune.winners import Place

DONE, WRONG_CALL = 0, 2

TUNED = Path("specs") / "tuned"
JOURNALS = Path(".tune_cache")

#: Seconds that parallel compilation before the measurements may take at most.
_LONGEST_AHEAD = 600.0

_EPILOG = (
    "Exit status: 0 done, or the budget is spent; 1 a result was wrong, a kernel failed or a worker lost its GPU; "
    "2 the call or a spec is wrong. A repeated call continues where the last one stopped."
)


@dataclass
class Call:
    """The options of one call."""

    specs: list[Path] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    out: Path = Path("generated")
    only: str | None = None
    candidates: int = 12
    budget: float = float("inf")
    gpus: int = 1
    executor: str = executors.PROCESSES
    tuned: Path | None = None
    journal: Path | None = None
    dry_run: bool = False
    report: bool = False
    again: bool = False
    refine: bool = False
    device: str | None = None
    workers: int = 0


def main(argv: Sequence[str]) -> int:
    """Run a call and return its exit status; a wrong command line prints the usage and raises SystemExit(2)."""
    call = parse(argv)
    try:
        if call.report:
            return report(call)
        if call.again:
            return again(call)
        return dry_run(call) if call.dry_run else tune(call)
    except SpecError as error:
        print(error, file=sys.stderr)
    except CallError as error:
        print(f"tune: {error}", file=sys.stderr)
    return WRONG_CALL


def parse(argv: Sequence[str]) -> Call:
    """The command line as a `Call`; a wrong one prints the usage and raises SystemExit(2)."""
    parser = argparse.ArgumentParser(
        prog="python -m generator tune",
        description="Measure which kernel and configuration is the fastest for each contract and size, and write the "
        "winners to a file.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("specs", nargs="*", type=Path, metavar="SPEC", help="families to tune, rendered beforehand")
    parser.add_argument(
        "--shapes",
        action="append",
        default=[],
        metavar="NAME_OR_FILE",
        help="a YAML or JSON list of MxNxK, or one of generator/bench/suites/shapes; may be given several times",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("generated"), metavar="DIR", help="the folder of rendered families"
    )
    parser.add_argument(
        "--only",
        metavar="GLOB",
        help="measure only kernels whose name matches; a contract of which only some kernels match gets no winner",
    )
    parser.add_argument(
        "--candidates",
        type=positive,
        default=12,
        metavar="N",
        help="measure the N best by the analytic cost model (default 12)",
    )
    parser.add_argument(
        "--refine", action="store_true", help="also measure the N best by the cost model fitted to earlier measurements"
    )
    parser.add_argument(
        "--budget", type=above_0, default=float("inf"), metavar="SECONDS", help="start no measurement after this time"
    )
    parser.add_argument(
        "--gpus", type=positive, default=1, metavar="N", help="GPUs to measure on, one problem each (default 1)"
    )
    parser.add_argument(
        "--executor",
        default=executors.PROCESSES,
        metavar="MODULE:CALLABLE",
        help="where to measure: in processes of this machine (the default), or on the workers of the "
        "concurrent.futures.Executor that the callable returns; each worker must see one GPU",
    )
    parser.add_argument(
        "--tuned", type=Path, metavar="FILE", help="the file of winners (default specs/tuned/DEVICE/FAMILY.json)"
    )
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="the file of measurements (default .tune_cache/DEVICE.jsonl)"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured; measure nothing")
    parser.add_argument(
        "--report", action="store_true", help="print a summary of --tuned FILE; needs no GPU and no SPEC"
    )
    parser.add_argument(
        "--again", action="store_true", help="choose winners and fit again from the journal only; needs no GPU"
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="with --dry-run and --again: the name of a device, such as nvidia_h200"
    )
    default = min(16, os.cpu_count() or 1)
    parser.add_argument(
        "--workers", type=whole, default=default, metavar="N", help="processes that compile before the measurements"
    )
    call = parser.parse_args(argv, namespace=Call())
    if call.report and call.tuned is None:
        parser.error("--report prints a file of winners: name it with --tuned FILE")
    if not call.report and not call.specs:
        parser.error("the following arguments are required: SPEC")
    if call.device is not None and not call.dry_run and not call.again:
        parser.error("--device goes with --dry-run and --again; measurements use the GPU of this machine")
    if call.again and call.device is None:
        parser.error("--again chooses for a device: name it with --device DEVICE")
    if call.tuned is not None and len(call.specs) > 1:
        parser.error("--tuned names the file of one family; give one SPEC, or omit --tuned")
    return call


def shapes_of(call: Call) -> tuple[Shape, ...]:
    """The shapes of a call, each once; prints which are left out. Raises `SpecError` and `CallError`."""
    files = [find_shapes(name) for name in call.shapes or [DEFAULT_SHAPES]]
    found = dict.fromkeys(shape for file in files for shape in read_shapes(file))
    others = [str(shape) for shape in found if shape.pad]
    if others:
        print(f"tune: left out, because winners are recorded without padding: {', '.join(others)}", file=sys.stderr)
    return tuple(shape for shape in found if not shape.pad)


def report(call: Call) -> int:
    """Print a summary of a file of winners; raise `CallError` if there is none."""
    assert call.tuned is not None
    try:
        print(reports.render(winners.read(call.tuned)), end="")
    except FileNotFoundError:
        raise CallError(f"--tuned: there is no file {call.tuned}") from None
    return DONE


def dry_run(call: Call) -> int:
    """Print what would be measured, on the device that `--device` names or else on the GPU of this machine."""
    families, shapes = Families(call.specs, call.out), shapes_of(call)
    if call.device is None:
        require_gpu("--device nvidia_h200, or another, plans")
        from generator.bench.device import CudaDevice

        device = CudaDevice().figures
    else:
        device = _device_named(call.device)
    rates = _rates(call, _files(call, families, device.slug))
    found = plan(families, shapes, device, versions()["triton"], call.candidates, call.only, rates)
    for trial in found.trials:
        print(f"{trial.contract} {trial.problem.shape}")
        for candidate in trial.candidates:
            how = candidate.contestant.label
            print(f"  {candidate.predicted * 1e6:10.1f} µs  {how} [{candidate.index}] {tile(candidate.config)}")
    _print_counts(found, device)
    return DONE


def again(call: Call) -> int:
    """Write the winners and rates that follow from the journal's measurements of a device.

    Raises `CallError` if there are none.
    """
    assert call.device is not None
    families = Families(call.specs, call.out)
    journal = Journal(_journal(call, call.device))
    places = sorted((p for p in journal.places if devices.slug(p.device) == call.device), key=str)
    if not places:
        raise CallError(f"--again: {journal.path} has no measurement of {call.device}")
    if len(places) > 1:
        raise CallError(f"--again: {journal.path} mixes {' and '.join(map(winners.spelled, places))}")
    tuning_run.write(journal, _files(call, families, call.device), places[0], families, _device_named(call.device))
    return DONE


def _device_named(slug: str) -> devices.Device:
    if slug not in devices.DEVICES:
        raise CallError(f"--device: {slug!r} is not known; {nearest(slug, devices.DEVICES)}")
    return devices.DEVICES[slug]


def _files(call: Call, families: Families, slug: str) -> dict[str, Path]:
    """The file of winners of each family."""
    return {name: call.tuned or TUNED / slug / f"{name}.json" for name in families.known}


def _journal(call: Call, slug: str) -> Path:
    return call.journal or JOURNALS / f"{slug}.jsonl"


def _rates(call: Call, files: Mapping[str, Path]) -> dict[Row, tuple[float, ...]]:
    """The rates in the files of winners for a call with `--refine`, else none."""
    existing = [path for path in files.values() if path.exists()] if call.refine else []
    return {row: rates for path in existing for row, rates in winners.read(path).fit.rates.items()}


def _print_counts(found: Plan, device: devices.Device) -> None:
    count = sum(len(trial.candidates) for trial in found.trials)
    print(
        f"{len(found.trials)} problems, {count} configurations to measure on {device.name}, "
        f"{len(calls(found.trials))} to compile"
    )
    for reason, number in found.left_out.most_common():
        if number:
            print(f"  left out: {number} configurations, {reason}")


def tune(call: Call, factory: str = trial_worker.CUDA) -> int:
    """Measure what is not in the journal, write the winners and return the exit status.

    `factory` names the callable that makes the device of a worker. Raises `CallError` for a wrong call and `SpecError`
    for wrong specs or shapes, before anything is measured.
    """
    until = time.monotonic() + call.budget
    families, shapes = Families(call.specs, call.out), shapes_of(call)
    local = call.executor == executors.PROCESSES
    if local and factory == trial_worker.CUDA:
        require_gpu("--dry-run --device nvidia_h200 lists what would be measured")
        _require_gpus(call.gpus)
    executor = executors.make(call.executor, call.gpus)
    try:
        return _tune(call, families, shapes, executor, until, factory)
    finally:
        # If the call was stopped, do not wait for trials that are running.
        executor.shutdown(wait=sys.exc_info()[0] is None)


def _require_gpus(count: int) -> None:
    import torch

    if count > torch.cuda.device_count():
        raise CallError(f"--gpus: {count} requested, and torch finds {torch.cuda.device_count()}")


def _tune(
    call: Call, families: Families, shapes: tuple[Shape, ...], executor: Executor, until: float, factory: str
) -> int:
    facts = _facts(executor, factory)
    place = Place(
        facts.figures.name,
        facts.figures.multiprocessors,
        str(facts.environment["torch"]),
        str(facts.environment["triton"]),
    )
    slug = facts.figures.slug
    files = _files(call, families, slug)
    rates = _rates(call, files)
    found = plan(families, shapes, facts.figures, place.triton, call.candidates, call.only, rates)
    journal = Journal(_journal(call, slug))
    progress = tuning_run.progress_of(found.trials, facts, journal)
    # A file that the winners cannot be merged into raises an error here, before hours of measuring.
    tuning_run.write(journal, files, place, families, facts.figures, checked=True)
    left = progress.left
    if len(left) < len(progress.keys):
        done = len(progress.keys) - len(left)
        print(f"{done} of {len(progress.keys)} problems are already in {journal.path}", file=sys.stderr)
    if left and call.executor == executors.PROCESSES:
        longest = min(_LONGEST_AHEAD, max(0.0, until - time.monotonic()))
        precompilation.compile_ahead(calls([progress.keys[key] for key in left]), call.workers, longest)
    with journal:
        tuning_run.hand_out(progress, executor, journal, place, call.gpus, until, factory)
    tuning_run.write(journal, files, place, families, facts.figures)
    return tuning_run.status(progress)


def _facts(executor: Executor, factory: str) -> trial_worker.Facts:
    """The description of a worker's device; raise `CallError` if a worker has none."""
    try:
        return executor.submit(trial_worker.describe, factory).result()
    except Exception as error:
        raise CallError(f"a worker has no device to measure on ({type(error).__name__}: {error})") from None
