"""The command `python -m generator tune`: its options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from generator.bench.workers import PROCESSES
from generator.commands.answering import status_of
from generator.commands.argument_types import Parser, above_0, add_device, folder, positive, several, workers
from generator.files.program import program
from generator.tune.tuning_call import CANDIDATES, TuningOptions, answer

_EPILOG = (
    "Exit status: 0 done, or the budget is spent; 1 a result was wrong, a kernel failed, a worker lost its GPU, or "
    "there is no winner, no regret or nothing to report, and why is printed; "
    "2 the call or a spec is wrong. A repeated call continues where the last one stopped."
)


def main(argv: Sequence[str]) -> int:
    """Run a call and return its exit status; a wrong command line prints the usage and raises SystemExit(2)."""
    return status_of(answer, parse(argv), "tune")


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = Parser(
        prog=f"{program()} tune",
        description="Measure which kernel and configuration is the fastest for each contract and size, and write the "
        "winners to a file; or, with --regret, how far from the fastest a family's own choice is.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    made.add_argument(
        "specs",
        nargs="*",
        type=Path,
        metavar="SPEC",
        help="families to tune; they are rendered first, and again with the winners",
    )
    made.add_argument(
        "--shapes",
        action="append",
        default=[],
        metavar="SIZES|NAME|FILE",
        help="MxNxK, of which each size may be a range, as in 1:8192:*2x4096x4096, or M=1:64,N=4096,K=4096; a YAML or "
        "JSON list of these; or one of generator/bench/suites/shapes; may be given several times",
    )
    made.add_argument(
        "--out", type=folder, default=Path("generated"), metavar="DIR", help="the folder of rendered families"
    )
    made.add_argument(
        "--only",
        metavar="GLOB",
        help="measure only kernels whose name matches; a contract of which only some kernels match gets no winner",
    )
    made.add_argument(
        "--candidates",
        type=positive,
        metavar="N",
        help=f"measure the N best by the analytic cost model (default {CANDIDATES}; with --regret all)",
    )
    made.add_argument(
        "--complete",
        action="store_true",
        help="measure every configuration that can run, and write to the journal only; --again then fits to it",
    )
    made.add_argument(
        "--refine", action="store_true", help="also measure the N best by the cost model fitted to earlier measurements"
    )
    made.add_argument(
        "--import",
        dest="imported",
        nargs=2,
        metavar=("vllm", "FILE"),
        help="also measure the tiles of a JSON file of vLLM, of fused experts or of fp8 with scaled blocks, at "
        "the sizes in the file's name or those of --shapes",
    )
    made.add_argument(
        "--trust", action="store_true", help="with --import: write its tiles as winners, without a measurement"
    )
    made.add_argument(
        "--budget", type=above_0, default=float("inf"), metavar="SECONDS", help="start no measurement after this time"
    )
    made.add_argument(
        "--gpus", type=several, default=1, metavar="N", help="GPUs to measure on, one problem each (default 1)"
    )
    made.add_argument(
        "--executor",
        default=PROCESSES,
        metavar="MODULE:CALLABLE",
        help="where to measure: in processes of this machine (the default), or on the workers of the "
        "concurrent.futures.Executor that the callable returns; each worker must see one GPU",
    )
    made.add_argument(
        "--tuned",
        type=Path,
        metavar="FILE",
        help="the file of winners (default: that of the spec, or tuned/DEVICE/FAMILY.json beside the spec)",
    )
    made.add_argument(
        "--journal", type=Path, metavar="FILE", help="the file of measurements (default .tune_cache/DEVICE.jsonl)"
    )
    made.add_argument(
        "--regret",
        type=Path,
        metavar="FILE",
        help="measure how much longer what the family's function chooses takes than the fastest configuration, and "
        "write that to FILE instead of winners",
    )
    made.add_argument(
        "--torch",
        nargs="+",
        default=[],
        type=Path,
        metavar="FILE",
        help="fit at which sizes torch's own product is faster to results of bench, print "
        "how that does at sizes that it was not fitted to, and write it to --tuned FILE; needs no GPU and no "
        "SPEC, whose key `tuned` names the file",
    )
    made.add_argument("--dry-run", action="store_true", help="list what would be measured; measure nothing")
    made.add_argument(
        "--report",
        action="store_true",
        help="print a summary of --tuned FILE, or of --regret FILE; needs no GPU and no SPEC",
    )
    made.add_argument("--html", type=Path, metavar="FILE", help="with --report: also write it as one HTML page")
    made.add_argument(
        "--again", action="store_true", help="choose winners and fit again from the journal only; needs no GPU"
    )
    made.add_argument(
        "--smallest",
        action="store_true",
        help="with --again: keep only the kernels and configurations without which the measured sizes, and by the "
        "fitted model those of --shapes, lose more than 0.2 %% in the mean, or one size more than 2 %%",
    )
    made.add_argument(
        "--also",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="with --again: a journal of another GPU of the same architecture, whose times the model is also fitted "
        "to, scaled by clock rate and memory bandwidth; may be given several times",
    )
    add_device(made, "with --dry-run and --again: the device that is planned or chosen for")
    default = min(16, os.cpu_count() or 1)
    made.add_argument(
        "--workers", type=workers, default=default, metavar="N", help="processes that compile before the measurements"
    )
    return made


def parse(argv: Sequence[str]) -> TuningOptions:
    """The command line as `TuningOptions`; a wrong one prints the usage and raises SystemExit(2)."""
    made = parser()
    call = made.parse_args(argv, namespace=TuningOptions())
    if call.regret is not None and (call.tuned is not None or call.again):
        made.error("--regret writes no winners, which --tuned and --again are about")
    if call.complete and (call.candidates or call.refine or call.again or call.regret or call.tuned or call.trust):
        made.error("--complete measures every configuration into the journal: no other option chooses or writes more")
    if call.report and call.tuned is None and call.regret is None:
        made.error("--report prints a file of winners or of regret: name it with --tuned FILE or --regret FILE")
    if call.html is not None and not call.report:
        made.error("--html goes with --report")
    if call.torch and (call.tuned is None or call.specs or call.report):
        made.error("--torch reads results of bench and writes rules to --tuned FILE, and nothing else")
    if not (call.report or call.torch or call.specs):
        made.error("the following arguments are required: SPEC")
    if call.device is not None and not (call.dry_run or call.again or call.trust):
        made.error(
            "--device goes with --dry-run, --again and --trust, as --gpu does; measurements use the GPU of this machine"
        )
    if call.trust and (call.imported is None or call.device is None):
        made.error("--trust goes with --import, and with --device DEVICE or --gpu GPU, which the tiles are for")
    if call.imported is not None and (call.again or call.report):
        made.error("--import gives candidates, and --again and --report measure none")
    if call.again and call.device is None:
        made.error("--again chooses for a device: name it with --device DEVICE or --gpu GPU")
    if call.smallest and not call.again:
        made.error("--smallest goes with --again")
    if call.also and not call.again:
        made.error("--also goes with --again")
    if call.again and call.shapes and not call.smallest:
        made.error("--again chooses at the sizes of the journal: --shapes goes with it only beside --smallest")
    if call.tuned is not None and len(call.specs) > 1:
        made.error("--tuned names the file of one family; give one SPEC, or omit --tuned")
    return call
