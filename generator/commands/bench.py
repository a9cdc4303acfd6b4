"""The command `python -m generator bench`: its options."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from generator.bench.benchmark_run import BenchmarkOptions, answer
from generator.bench.plain_rows import FORMATS
from generator.bench.suite import DEFAULT_SUITE, peers
from generator.commands.answering import status_of
from generator.commands.argument_types import Parser, above_0, folder, positive, reported, workers
from generator.files.program import program

_EPILOG = (
    "Exit status: 0 done; 1 a result was wrong, a kernel failed or a file cannot be written; "
    "2 the call, a spec or the suite is wrong."
)


def main(argv: Sequence[str]) -> int:
    """Run a call and return its exit status; a wrong command line prints the usage and raises SystemExit(2)."""
    return status_of(answer, parse(argv), "bench")


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = Parser(
        prog=f"{program()} bench",
        description="Time rendered kernels in the same rounds as torch's product, and check each against float64. "
        f"Without a spec and a suite: the suite {DEFAULT_SUITE!r}.",
        epilog=_EPILOG,
    )
    made.add_argument("specs", nargs="*", type=Path, metavar="SPEC", help="time every kernel of these specs")
    made.add_argument("--suite", metavar="NAME_OR_FILE", help="a suite of generator/bench/suites, or a suite file")
    made.add_argument(
        "--shapes",
        metavar="SIZES|NAME|FILE",
        help="shapes for SPEC: MxNxK, of which each size may be a range, as in 1:8192:*2x4096x4096, or "
        "M=1:64,N=4096,K=4096; a list of these in YAML or JSON; or a name in generator/bench/suites/shapes",
    )
    made.add_argument(
        "--out", type=folder, default=Path("generated"), metavar="DIR", help="the folder of rendered families"
    )
    made.add_argument("--only", metavar="GLOB", help="only kernels, or cases of a suite, whose name matches")
    made.add_argument(
        "--peer",
        type=reported(peers),
        dest="peers",
        metavar="PEERS",
        help="peers to compare with: cublas (torch's product, which fuses a leading bias), eager (nothing fused), "
        "fused (torch's call of cuBLASLt for product and epilogue), inductor (torch.compile, max-autotune), several "
        "with a comma, or none (default: the suite's peers, else cublas)",
    )
    made.add_argument(
        "--json", type=Path, metavar="FILE", help="save results to FILE; results that it has are not measured again"
    )
    made.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="how results are printed: tables in Markdown (the default), or a row for each kernel and peer as CSV or "
        "JSON; with --summary a row for each case and peer",
    )
    made.add_argument("--plot", type=Path, metavar="FILE", help="draw roofline and ratios (needs matplotlib)")
    made.add_argument("--html", type=Path, metavar="FILE", help="write the results as one HTML page")
    made.add_argument("--rounds", type=positive, default=40, metavar="N", help="timed rounds (default 40)")
    made.add_argument(
        "--seconds",
        type=above_0,
        metavar="S",
        help="end the rounds of a comparison after about S seconds (default: the suite's limit, else none)",
    )
    made.add_argument(
        "--bound",
        type=above_0,
        metavar="RATIO",
        help="count the ratios under RATIO (default: the suite's bound, else 1)",
    )
    made.add_argument(
        "--by-rows",
        action="store_true",
        help="also summarize by M, and with rows that are multiples of 16 bytes (default: as the suite says)",
    )
    made.add_argument(
        "--table", action="store_true", help="print the results in --json FILE; measures nothing and needs no GPU"
    )
    made.add_argument("--summary", action="store_true", help="the same without the tables of single comparisons")
    made.add_argument(
        "--configs", choices=("select", "all"), default="select", help="all: also time every configuration in CONFIGS"
    )
    default = min(8, (os.cpu_count() or 1) // 2)
    made.add_argument(
        "--workers", type=workers, default=default, metavar="N", help="processes that compile before the measurements"
    )
    return made


def parse(argv: Sequence[str]) -> BenchmarkOptions:
    """The command line as `BenchmarkOptions`; a wrong one prints the usage and raises SystemExit(2)."""
    made = parser()
    call = made.parse_args(argv, namespace=BenchmarkOptions())
    call.command = shlex.join([*program().split(), "bench", *argv])
    if call.by_rows and call.format != "markdown":
        made.error("--by-rows adds a table in Markdown; rows of --format have M, by which a program can sum up")
    if call.table or call.summary:
        printing = "--table" if call.table else "--summary"
        if call.json is None:
            made.error(f"{printing} prints a results file: name it with --json FILE")
        if measuring := _of_measuring(call):
            made.error(f"{printing} measures nothing and prints what {call.json} has: leave out {measuring[0]}")
    if call.shapes is not None and (call.suite is not None or not call.specs):
        made.error("--shapes goes with SPEC; a suite has its own shapes")
    return call


def _of_measuring(call: BenchmarkOptions) -> list[str]:
    """The options of a call that say what is measured, or how."""
    plain = BenchmarkOptions()
    names = {"SPEC": "specs", "--peer": "peers"}
    names |= {f"--{name}": name for name in ("shapes", "rounds", "seconds", "configs")}
    return [option for option, name in names.items() if getattr(call, name) != getattr(plain, name)]
