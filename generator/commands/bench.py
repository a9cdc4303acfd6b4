"""The command `python -m generator bench`: its options."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence

from generator.bench.benchmark_run import BenchmarkOptions, answer
from generator.bench.plain_rows import FORMATS
from generator.bench.suite import DEFAULT_SUITE, peers
from generator.commands.argument_types import Parser, positive, reported, workers
from generator.commands.command_line import status_of
from generator.files.program import program


def main(argv: Sequence[str]) -> int:
    """Run a call and return its exit status; a wrong command line prints the usage and raises SystemExit(2)."""
    return status_of(answer, parse(argv), "bench")


def parser() -> argparse.ArgumentParser:
    cli = Parser(
        "bench",
        "Time rendered kernels in the same rounds as torch's product, and check each against float64. "
        f"Without a spec and a suite: the suite {DEFAULT_SUITE!r}.",
        epilog="Exit status: 0 done; 1 a result was wrong, a kernel failed or a file cannot be written; "
        "2 the call, a spec or the suite is wrong.",
        allow_abbrev=True,
    )
    cli.option("specs SPEC", "time every kernel of these specs", nargs="*")
    cli.option("--suite NAME_OR_FILE", "a suite of generator/bench/suites, or a suite file")
    cli.option(
        "--shapes SIZES|NAME|FILE",
        "shapes for SPEC: MxNxK, of which each size may be a range, as in 1:8192:*2x4096x4096, or "
        "M=1:64,N=4096,K=4096; a list of these in YAML or JSON; or a name in generator/bench/suites/shapes",
    )
    cli.option("--out DIR", "the folder of rendered families")
    cli.option("--only GLOB", "only kernels, or cases of a suite, whose name matches")
    cli.option(
        "--peer PEERS",
        "peers to compare with: cublas (torch's product, which fuses a leading bias), eager (nothing fused), "
        "fused (torch's call of cuBLASLt for product and epilogue), inductor (torch.compile, max-autotune), several "
        "with a comma, or none (default: the suite's peers, else cublas)",
        type=reported(peers),
        dest="peers",
    )
    cli.option("--json FILE", "save results to FILE; results that it has are not measured again")
    cli.add_argument(
        "--format",
        choices=FORMATS,
        help="how results are printed: tables in Markdown (the default), or a row for each kernel and peer as CSV or "
        "JSON; with --summary a row for each case and peer",
    )
    cli.option("--plot FILE", "draw roofline and ratios (needs matplotlib)")
    cli.option("--html FILE", "write the results as one HTML page")
    cli.option("--rounds N", "timed rounds (default 40)", type=positive)
    cli.option(
        "--seconds S", "end the rounds of a comparison after about S seconds (default: the suite's limit, else none)"
    )
    cli.option("--bound RATIO", "count the ratios under RATIO (default: the suite's bound, else 1)")
    cli.option(
        "--by-rows", "also summarize by M, and with rows that are multiples of 16 bytes (default: as the suite says)"
    )
    cli.option("--table", "print the results in --json FILE; measures nothing and needs no GPU")
    cli.option("--summary", "the same without the tables of single comparisons")
    cli.add_argument("--configs", choices=("select", "all"), help="all: also time every configuration in CONFIGS")
    cli.option(
        "--workers N",
        "processes that compile before the measurements (default: half of the processors, at most 8)",
        type=workers,
    )
    return cli


def parse(argv: Sequence[str]) -> BenchmarkOptions:
    """The command line as `BenchmarkOptions`; a wrong one prints the usage and raises SystemExit(2)."""
    cli = parser()
    call = cli.parse_args(argv, namespace=BenchmarkOptions(workers=min(8, (os.cpu_count() or 1) // 2)))
    call.command = shlex.join([*program().split(), "bench", *argv])
    if call.by_rows and call.format != "markdown":
        cli.error("--by-rows adds a table in Markdown; rows of --format have M, by which a program can sum up")
    if call.table or call.summary:
        printing = "--table" if call.table else "--summary"
        if call.json is None:
            cli.error(f"{printing} prints a results file: name it with --json FILE")
        names = {"SPEC": "specs", "--peer": "peers"}
        names |= {f"--{name}": name for name in ("shapes", "rounds", "seconds", "configs")}
        plain = BenchmarkOptions()
        if measuring := [option for option, name in names.items() if getattr(call, name) != getattr(plain, name)]:
            cli.error(f"{printing} measures nothing and prints what {call.json} has: leave out {measuring[0]}")
    if call.shapes is not None and (call.suite is not None or not call.specs):
        cli.error("--shapes goes with SPEC; a suite has its own shapes")
    return call
