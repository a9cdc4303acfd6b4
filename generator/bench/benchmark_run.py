"""A run of `bench`: what a call measures, saves and prints, and its exit status."""

from __future__ import annotations

import fnmatch
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from generator.bench import comparison_plan, measurements, plain_rows, results_report, summary, workers
from generator.bench.measurements import BenchmarkResults, ComparisonRecord
from generator.bench.suite import DEFAULT_SHAPES, DEFAULT_SUITE, Suite, find, given_shapes, read_suite
from generator.emit.report import page
from generator.files import output_files
from generator.files.reading import FileError
from generator.language.errors import CallError

if TYPE_CHECKING:
    from generator.bench.device import CudaDevice

DONE, WRONG_RESULT, CANNOT_WRITE = 0, 1, 1


@dataclass
class BenchmarkOptions:
    """The options of one call."""

    specs: list[Path] = field(default_factory=list)
    suite: str | None = None
    shapes: str | None = None
    out: Path = Path("generated")
    only: str | None = None
    peers: tuple[str, ...] | None = None
    json: Path | None = None
    plot: Path | None = None
    html: Path | None = None
    rounds: int = 40
    seconds: float | None = None
    bound: float | None = None
    by_rows: bool = False
    table: bool = False
    summary: bool = False
    configs: str = "select"
    workers: int = 0
    format: str = "markdown"
    #: The whole command line, as the page of results repeats it.
    command: str = ""


def answer(call: BenchmarkOptions) -> int:
    """Measure, or print what was measured, and return the exit status; raises `CallError` and `SpecError`."""
    wrong = output_files.clash(_outputs(call), [path for path in call.specs if path.is_file()])
    if wrong is not None:
        raise CallError(wrong)
    if call.table or call.summary:
        return show(call)
    comparisons = plan_of(call)
    _check_outputs(call)
    workers.require_gpu("--table prints recorded results")
    from generator.bench.device import CudaDevice

    return run(call, comparisons, CudaDevice())


def plan_of(call: BenchmarkOptions) -> list[comparison_plan.Comparison]:
    """The comparisons that a call requests; raises `CallError` or `SpecError`, before anything is timed.

    Sets the options that the command line does not give to those of the suite.
    """
    families = comparison_plan.Families(call.specs, call.out)
    if call.specs and call.suite is None:
        comparisons = comparison_plan.of_specs(families, given_shapes(call.shapes or DEFAULT_SHAPES), call.only)
    else:
        suite = read_suite(find(call.suite or DEFAULT_SUITE))
        call.seconds = suite.seconds if call.seconds is None else call.seconds
        _reported_as(call, suite)
        comparisons = comparison_plan.of_suite(suite, families, call.only)
    return comparisons if call.peers is None else [replace(each, peers=call.peers) for each in comparisons]


def _outputs(call: BenchmarkOptions) -> dict[str, Path]:
    """The file of each option that names one to write."""
    named = {"--json": call.json, "--plot": call.plot, "--html": call.html}
    return {option: path for option, path in named.items() if path is not None}


def _check_outputs(call: BenchmarkOptions) -> None:
    """Raise `CallError` or `FileError` for a file that cannot be written, before anything is measured."""
    for option, path in _outputs(call).items():
        # The other tables are of this file, and write none.
        if not (option == "--json" and (call.table or call.summary)):
            output_files.check(path)
    if call.plot is not None:
        from generator.bench import plot

        plot.check(call.plot)


def _reported_as(call: BenchmarkOptions, suite: Suite) -> None:
    """Set how results are reported to what the suite says, if the command line does not say it."""
    call.bound = suite.bound if call.bound is None else call.bound
    call.by_rows |= suite.by_rows


def show(call: BenchmarkOptions) -> int:
    """Print the tables of a results file, and plot it if requested; raise `CallError` if it has no such results."""
    assert call.json is not None
    if call.suite is not None:
        _reported_as(call, read_suite(find(call.suite)))
    if not call.json.exists():
        raise CallError(f"--json: there is no file {call.json}; without --table and --summary the call measures")
    results = measurements.load(call.json)
    if call.only is not None:
        results = results.of(record for record in results.records if _matches(record, call.only))
    if not results.records:
        raise CallError(f"--json: {call.json} holds no measurement" + (f" of {call.only!r}" if call.only else ""))
    _check_outputs(call)
    return _present(results, call)


def _matches(record: ComparisonRecord, only: str) -> bool:
    names = [record.case, *(side.name for side in record.sides if side.role != "peer")]
    return any(fnmatch.fnmatchcase(name, only) for name in names)


def _present(results: BenchmarkResults, call: BenchmarkOptions) -> int:
    """Print tables of `results`, make the plot and the page if requested, and return the exit status.

    Failures are printed to stderr.
    """
    bound, records = 1.0 if call.bound is None else call.bound, results.records
    if call.format == "markdown":
        text = results_report.markdown(results, bound, brief=call.summary, by_rows=call.by_rows)
    else:
        rows = plain_rows.summaries(results, bound) if call.summary else plain_rows.comparisons(results)
        text = plain_rows.as_csv(rows) if call.format == "csv" else plain_rows.as_json(rows)
    print(text, end="")
    written = output_files.attempt(_reports(results, call, bound))
    faults = [(record, side) for record in records for side in record.faults]
    for record, side in faults:
        print(f"bench: {record.case} {record.problem.shape} {side.label}: {side.failure}", file=sys.stderr)
    nothing = summary.why_none(records) if call.summary else _why_no_time(records)
    if nothing is not None:
        print(f"bench: {nothing}", file=sys.stderr)
    return WRONG_RESULT if faults or written or nothing is not None else DONE


def _reports(results: BenchmarkResults, call: BenchmarkOptions, bound: float) -> Iterator[Callable[[], None]]:
    """What makes each requested report."""
    html, drawn = call.html, call.plot
    if html is not None:
        report = results_report.report(results, bound, by_rows=call.by_rows, command=call.command)
        yield lambda: output_files.put(html, page(report))
    if drawn is not None:
        from generator.bench import plot

        yield lambda: plot.draw(results_report.plots(results), drawn)


def _why_no_time(records: Sequence[ComparisonRecord]) -> str | None:
    """Why no comparison has a time of a side of ours, or None if one has."""
    ours = [side for record in records for side in record.sides if side.role != "peer"]
    if any(side.gpu is not None for side in ours):
        return None
    reasons = Counter(side.failure or "no time" for side in ours).most_common(1)
    often = f", most often: {reasons[0][0]}" if reasons else ""
    return f"none of {len(records)} comparisons has a time of a kernel{often}"


def run(
    call: BenchmarkOptions, comparisons: Sequence[comparison_plan.Comparison], device: CudaDevice, *, scale: int = 1
) -> int:
    """Measure the comparisons that are not in the results file, save each at once, and print the tables.

    `scale` divides the sizes of the products that measure the ceilings.
    """
    from generator.bench import ceilings, measure

    recorded = measurements.load(call.json) if call.json is not None else BenchmarkResults()
    environment = measurements.digest_of(dict(device.environment))
    options = measure.Options(call.rounds, call.configs, call.seconds)
    keys = [measure.key(comparison, environment, options) for comparison in comparisons]
    pending = [comparison for comparison, key in zip(comparisons, keys) if recorded.find(key) is None]
    if len(pending) < len(comparisons):
        number = len(comparisons) - len(pending)
        print(f"{number} of {len(comparisons)} comparisons are already in {call.json}", file=sys.stderr)
    recorded.environments[environment] = device.environment
    measured = recorded.ceilings.get(environment, {})
    dtypes = {c.problem.dtype.word: c.problem.dtype for c in comparisons}
    missing = [dtype for word, dtype in dtypes.items() if word not in measured]
    keeper = _Keeper(call.json)
    if pending:
        workers.compile_ahead(workers.calls(pending, call.configs), call.workers)
    if missing and (pending or not measured):
        # What was measured before stays.
        recorded.ceilings[environment] = measured | ceilings.measure(device, missing, scale=scale) | measured
        keeper.keep(recorded)
    done = {record.key: record for key in keys if (record := recorded.find(key)) is not None}
    try:
        for number, comparison in enumerate(pending, 1):
            record = measure.measure(comparison, device, environment, options)
            device.free()
            recorded.put(record)
            done[record.key] = record
            keeper.keep(recorded, record)
            print(f"[{number}/{len(pending)}] {_line(record)}", file=sys.stderr, flush=True)
    except measure.DeviceLost as lost:
        print(f"bench: {comparison.case} {comparison.problem.shape}: {lost}", file=sys.stderr)
        print("bench: the device is lost; the same call goes on from here with --json", file=sys.stderr)
        return WRONG_RESULT
    finally:
        if pending:
            keeper.keep(recorded, now=True)
    return max(_present(recorded.of(done[key] for key in keys), call), CANNOT_WRITE if keeper.failed else DONE)


class _Keeper:
    """Saves results often enough that a stopped run loses little, and takes at most a small share of the time."""

    _SHARE = 0.05

    def __init__(self, path: Path | None) -> None:
        self._path = path
        #: Whether the last attempt to write the file failed.
        self.failed = False
        self._next = -math.inf
        self._fresh: list[ComparisonRecord] = []

    def keep(self, results: BenchmarkResults, *fresh: ComparisonRecord, now: bool = False) -> None:
        """Add what is new to the file, unless it was written a short time ago and `now` is False.

        If it cannot be written, a message says so once, and the measurements go on.
        """
        self._fresh += fresh
        begin = time.monotonic()
        if self._path is None or (begin < self._next and not now):
            return
        try:
            measurements.add(results, self._fresh, self._path)
        except (OSError, FileError) as error:
            if not self.failed:
                reason = getattr(error, "reason", None) or f"cannot be written: {getattr(error, 'strerror', error)}"
                print(f"bench: {self._path}: {reason}", file=sys.stderr)
            self.failed = True
        else:
            self._fresh = []
            self.failed = False
        end = time.monotonic()
        self._next = end + (end - begin) / self._SHARE


def _line(record: ComparisonRecord) -> str:
    """One line about a comparison: each side with its ratio, or the reason why it has none."""
    sides = []
    for side in record.sides:
        if side.failure is not None:
            sides.append(f"{side.label} {'refused' if side.refused else 'FAILED'}: {side.failure}")
        elif side.role != "peer":
            sides.append(f"{side.label} {results_report.ratio_text(record, record.peer, side, 'gpu')}")
    return f"{record.case} {record.problem.shape}: {'; '.join(sides)}"
