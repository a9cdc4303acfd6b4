"""`python -m generator bench`: the call, what it runs, and its exit status."""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from generator.bench import comparison_plan, markdown_tables, measurements
from generator.bench.arguments import above_0, peer_words, positive, require_gpu, whole
from generator.bench.measurements import Record, Results
from generator.bench.suite import (
    DEFAULT_PEERS,
    DEFAULT_SHAPES,
    DEFAULT_SUITE,
    find,
    find_shapes,
    read_shapes,
    read_suite,
)
from generator.language.errors import CallError, SpecError

if TYPE_CHECKING:
    from generator.bench.device import Device

DONE, WRONG_RESULT, WRONG_CALL = 0, 1, 2

_EPILOG = "Exit status: 0 done; 1 a result was wrong or a kernel failed; 2 the call, a spec or the suite is wrong."


@dataclass
class Call:
    """The options of one call."""

    specs: list[Path] = field(default_factory=list)
    suite: str | None = None
    shapes: str | None = None
    out: Path = Path("generated")
    only: str | None = None
    peers: tuple[str, ...] | None = None
    json: Path | None = None
    plot: Path | None = None
    rounds: int = 40
    seconds: float | None = None
    bound: float = 1.0
    table: bool = False
    summary: bool = False
    configs: str = "select"
    workers: int = 0


def main(argv: Sequence[str]) -> int:
    """Run a call and return its exit status; a wrong command line raises SystemExit(2) with the usage."""
    call = parse(argv)
    try:
        if call.table or call.summary:
            return show(call)
        comparisons = plan_of(call)
        require_gpu("--table prints kept results")
        from generator.bench.device import CudaDevice

        return run(call, comparisons, CudaDevice())
    except SpecError as error:
        print(error, file=sys.stderr)
    except CallError as error:
        print(f"bench: {error}", file=sys.stderr)
    return WRONG_CALL


def parse(argv: Sequence[str]) -> Call:
    """The command line as a `Call`; raises SystemExit(2) with the usage where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m generator bench",
        description="Time rendered kernels against torch's own product, interleaved, each checked against float64. "
        f"Without a spec and a suite: the suite {DEFAULT_SUITE!r}.",
        epilog=_EPILOG,
    )
    parser.add_argument("specs", nargs="*", type=Path, metavar="SPEC", help="time every kernel of these specs")
    parser.add_argument("--suite", metavar="NAME_OR_FILE", help="a suite of generator/bench/suites, or a file like one")
    parser.add_argument(
        "--shapes",
        metavar="NAME_OR_FILE",
        help="shapes for SPEC: a list of MxNxK in YAML or JSON, or one of suites/shapes",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("generated"), metavar="DIR", help="where families are rendered"
    )
    parser.add_argument("--only", metavar="GLOB", help="only kernels, or cases of a suite, whose name matches")
    parser.add_argument(
        "--peer",
        type=peer_words,
        dest="peers",
        metavar="PEERS",
        help="what they are compared with: cublas (torch's own product), eager (nothing fused), fused (the library's "
        "call for product and epilogue), inductor (torch.compile, max-autotune), several with a comma, or none "
        "(default: as the suite says, else cublas)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep results here; what it holds is not timed again")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw roofline and ratios (needs matplotlib)")
    parser.add_argument("--rounds", type=positive, default=40, metavar="N", help="rounds that count (default 40)")
    parser.add_argument(
        "--seconds",
        type=above_0,
        metavar="S",
        help="end the rounds of a comparison after about so long (default: as the suite says, else no bound)",
    )
    parser.add_argument(
        "--bound", type=above_0, default=1.0, metavar="RATIO", help="count the ratios under it (default 1)"
    )
    parser.add_argument("--table", action="store_true", help="print what --json FILE holds, time nothing, need no GPU")
    parser.add_argument("--summary", action="store_true", help="the same, less the tables of single comparisons")
    parser.add_argument("--configs", choices=("select", "all"), default="select", help="all: every row of CONFIGS too")
    default = min(8, (os.cpu_count() or 1) // 2)
    parser.add_argument("--workers", type=whole, default=default, metavar="N", help="processes that compile ahead")
    call = parser.parse_args(argv, namespace=Call())
    if (call.table or call.summary) and call.json is None:
        parser.error(f"{'--table' if call.table else '--summary'} prints a results file: name it with --json FILE")
    if call.shapes is not None and (call.suite is not None or not call.specs):
        parser.error("--shapes goes with SPEC; a suite has its own shapes")
    return call


def plan_of(call: Call) -> list[comparison_plan.Comparison]:
    """The comparisons that a call asks for; raises `CallError` or `SpecError`, before anything is timed."""
    families = comparison_plan.Families(call.specs, call.out)
    if call.specs and call.suite is None:
        return comparison_plan.of_specs(families, read_shapes(find_shapes(call.shapes or DEFAULT_SHAPES)), call.only)
    suite = read_suite(find(call.suite or DEFAULT_SUITE))
    # What the call does not say is as the suite has it.
    call.seconds = suite.seconds if call.seconds is None else call.seconds
    comparisons = comparison_plan.of_suite(suite, families, call.only)
    if call.peers is None:
        call.peers = suite.peers
        return comparisons
    return [replace(comparison, peers=None) for comparison in comparisons]


def show(call: Call) -> int:
    """Print the table of a results file, and draw it where asked; raise `CallError` where it holds nothing."""
    assert call.json is not None
    if not call.json.is_file():
        raise CallError(f"--json: there is no file {call.json}")
    kept = measurements.load(call.json)
    records = [record for record in kept.records if call.only is None or _matches(record, call.only)]
    if not records:
        raise CallError(f"--json: {call.json} holds no measurement" + (f" of {call.only!r}" if call.only else ""))
    return _present(kept, records, call)


def _matches(record: Record, only: str) -> bool:
    names = [record.case, *(side.name for side in record.sides if side.role != "peer")]
    return any(fnmatch.fnmatchcase(name, only) for name in names)


def _present(kept: Results, records: list[Record], call: Call) -> int:
    print(markdown_tables.render(kept, records, call.bound, brief=call.summary), end="")
    if call.plot is not None:
        from generator.bench import plot

        plot.draw(kept, records, call.plot)
    faults = [(record, side) for record in records for side in record.faults]
    for record, side in faults:
        print(f"bench: {record.case} {record.problem.shape} {side.label}: {side.failure}", file=sys.stderr)
    return WRONG_RESULT if faults else DONE


def run(call: Call, comparisons: Sequence[comparison_plan.Comparison], device: Device, *, scale: int = 1) -> int:
    """Measure what the results file does not hold yet, keep each comparison at once, print the table.

    `scale` divides the sizes that ceilings are measured at.
    """
    from generator.bench import ceilings, measure, precompilation

    kept = measurements.load(call.json) if call.json is not None else Results()
    environment = measurements.digest_of(dict(device.environment))
    options = measure.Options(
        call.rounds, call.configs, DEFAULT_PEERS if call.peers is None else call.peers, call.seconds
    )
    keys = [measure.key(comparison, environment, options.of(comparison)) for comparison in comparisons]
    pending = [comparison for comparison, key in zip(comparisons, keys) if kept.find(key) is None]
    if len(pending) < len(comparisons):
        print(f"{len(comparisons) - len(pending)} of {len(comparisons)} comparisons are kept already", file=sys.stderr)
    kept.environments[environment] = device.environment
    known = {ceiling.name for ceiling in kept.ceilings.get(environment, ())}
    dtypes = {c.problem.dtype.word: c.problem.dtype for c in comparisons}
    missing = [dtype for word, dtype in dtypes.items() if word not in known]
    keeper = _Keeper(call.json)
    if pending:
        precompilation.compile_ahead(precompilation.jobs(pending, call.configs), call.workers)
    if missing and (pending or not known):
        measured = ceilings.measure(device, missing, scale=scale)
        kept.ceilings[environment] = (
            *kept.ceilings.get(environment, ()),
            *(c for c in measured if c.name not in known),
        )
        keeper.keep(kept)
    done = {record.key: record for key in keys if (record := kept.find(key)) is not None}
    try:
        for number, comparison in enumerate(pending, 1):
            record = measure.measure(comparison, device, environment, options.of(comparison))
            device.free()
            kept.put(record)
            done[record.key] = record
            keeper.keep(kept)
            print(f"[{number}/{len(pending)}] {_line(record)}", file=sys.stderr, flush=True)
    except measure.DeviceLost as lost:
        print(f"bench: {comparison.case} {comparison.problem.shape}: {lost}", file=sys.stderr)
        print("bench: the device is lost; the same call goes on from here with --json", file=sys.stderr)
        return WRONG_RESULT
    finally:
        if pending:
            keeper.keep(kept, now=True)
    return _present(kept, [done[key] for key in keys], call)


class _Keeper:
    """Saves results so often that a stopped run loses little, and so seldom that it costs little of the time."""

    _SHARE = 0.05

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._next = -math.inf

    def keep(self, kept: Results, *, now: bool = False) -> None:
        """Write the file, whole, unless it was written a moment ago and `now` does not insist."""
        begin = time.monotonic()
        if self._path is None or (begin < self._next and not now):
            return
        measurements.save(kept, self._path)
        end = time.monotonic()
        self._next = end + (end - begin) / self._SHARE


def _line(record: Record) -> str:
    """A comparison in a line: each side with its ratio, or why it has none."""
    sides = []
    for side in record.sides:
        if side.failure is not None:
            sides.append(f"{side.label} {'refused' if side.refused else 'FAILED'}: {side.failure}")
        elif side.role != "peer":
            sides.append(f"{side.label} {markdown_tables.ratio_text(record, record.peer, side, 'gpu')}")
    return f"{record.case} {record.problem.shape}: {'; '.join(sides)}"
