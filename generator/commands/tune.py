"""The command `python -m generator tune`: its options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from generator.commands.argument_types import Parser, add_device, positive, several, workers
from generator.commands.command_line import status_of
from generator.tune.tuning_call import CANDIDATES, TuningOptions, answer


def main(argv: Sequence[str]) -> int:
    """Run a call and return its exit status; a wrong command line prints the usage and raises SystemExit(2)."""
    return status_of(answer, parse(argv), "tune")


def parser() -> argparse.ArgumentParser:
    cli = Parser(
        "tune",
        "Measure which kernel and configuration is the fastest for each contract and size, and write the "
        "winners to a file; or, with --regret, how far from the fastest a family's own choice is.",
        epilog="Exit status: 0 done, or the budget is spent; 1 a result was wrong, a kernel failed, a worker lost its "
        "GPU, or there is no winner, no regret or nothing to report, and why is printed; 2 the call or a spec is "
        "wrong. A repeated call continues where the last one stopped.",
    )
    cli.option("specs SPEC", "families to tune; they are rendered first, and again with the winners", nargs="*")
    cli.option(
        "--shapes SIZES|NAME|FILE",
        "MxNxK, of which each size may be a range, as in 1:8192:*2x4096x4096, or M=1:64,N=4096,K=4096; a YAML or "
        "JSON list of these; or one of generator/bench/suites/shapes; may be given several times",
        action="append",
    )
    cli.option("--out DIR", "the folder of rendered families")
    cli.option(
        "--only GLOB",
        "measure only kernels whose name matches; a contract of which only some kernels match gets no winner",
    )
    cli.option(
        "--candidates N",
        f"measure the N best by the analytic cost model (default {CANDIDATES}; with --regret all)",
        type=positive,
    )
    cli.option(
        "--complete",
        "measure every configuration that can run, and write to the journal only; --again then chooses and fits",
    )
    cli.option("--refine", "also measure the N best by the cost model fitted to earlier measurements")
    cli.option(
        "--import vllm FILE",
        "also measure the tiles of a JSON file of vLLM, of fused experts or of fp8 with scaled blocks, at "
        "the sizes in the file's name or those of --shapes",
        dest="imported",
        nargs=2,
    )
    cli.option("--trust", "with --import: write its tiles as winners, without a measurement")
    cli.option("--budget SECONDS", "start no measurement after this time")
    cli.option("--gpus N", "GPUs to measure on, one problem each (default 1)", type=several)
    cli.option(
        "--executor MODULE:CALLABLE",
        "where to measure: in processes of this machine (the default), or on the workers of the "
        "concurrent.futures.Executor that the callable returns; each worker must see one GPU",
    )
    cli.option(
        "--tuned FILE", "the file of winners (default: that of the spec, or tuned/DEVICE/FAMILY.json beside the spec)"
    )
    cli.option("--journal FILE", "the file of measurements (default .tune_cache/DEVICE.jsonl)")
    cli.option(
        "--regret FILE",
        "measure how much longer what the family's function chooses takes than the fastest configuration, and "
        "write that to FILE instead of winners",
    )
    cli.option(
        "--torch FILE",
        "fit at which sizes torch's own product is faster to results of bench, print how that does at sizes that it "
        "was not fitted to, and write it to --tuned FILE; needs no GPU and no SPEC, whose key `tuned` names the file",
        nargs="+",
    )
    cli.option("--dry-run", "list what would be measured; measure nothing")
    cli.option("--report", "print a summary of --tuned FILE, or of --regret FILE; needs no GPU and no SPEC")
    cli.option("--html FILE", "with --report: also write it as one HTML page")
    cli.option("--again", "choose winners and fit again from the journal only; needs no GPU")
    cli.option(
        "--smallest",
        "with --again: keep only the kernels and configurations without which the measured sizes, and by the "
        "fitted model those of --shapes, lose more than 0.2 %% in the mean, or one size more than 2 %%",
    )
    cli.option(
        "--also FILE",
        "with --again: a journal of another GPU of the same architecture, whose times the model is also fitted "
        "to, scaled by clock rate and memory bandwidth; may be given several times",
        action="append",
    )
    add_device(cli, "with --dry-run and --again: the device that is planned or chosen for")
    cli.option(
        "--workers N",
        "processes that compile before the measurements (default: one for each processor, at most 16)",
        type=workers,
    )
    return cli


def parse(argv: Sequence[str]) -> TuningOptions:
    """The command line as `TuningOptions`; a wrong one prints the usage and raises SystemExit(2)."""
    cli = parser()
    call = cli.parse_args(argv, namespace=TuningOptions(workers=min(16, os.cpu_count() or 1)))
    if call.regret is not None and (call.tuned is not None or call.again):
        cli.error("--regret writes no winners, which --tuned and --again are about")
    if call.complete and (call.candidates or call.refine or call.again or call.regret or call.tuned or call.trust):
        cli.error("--complete measures every configuration into the journal: no other option chooses or writes more")
    if call.report and call.tuned is None and call.regret is None:
        cli.error("--report prints a file of winners or of regret: name it with --tuned FILE or --regret FILE")
    if call.torch and (call.tuned is None or call.specs or call.report):
        cli.error("--torch reads results of bench and writes rules to --tuned FILE, and nothing else")
    if not (call.report or call.torch or call.specs):
        cli.error("the following arguments are required: SPEC")
    if call.device is not None and not (call.dry_run or call.again or call.trust):
        cli.error(
            "--device goes with --dry-run, --again and --trust, as --gpu does; measurements use the GPU of this machine"
        )
    if call.trust and (call.imported is None or call.device is None):
        cli.error("--trust goes with --import, and with --device DEVICE or --gpu GPU, which the tiles are for")
    if call.imported is not None and (call.again or call.report):
        cli.error("--import gives candidates, and --again and --report measure none")
    if call.again and call.device is None:
        cli.error("--again chooses for a device: name it with --device DEVICE or --gpu GPU")
    for option, other in (("html", "report"), ("smallest", "again"), ("also", "again")):
        if getattr(call, option) and not getattr(call, other):
            cli.error(f"--{option} goes with --{other}")
    if call.again and call.shapes and not call.smallest:
        cli.error("--again chooses at the sizes of the journal: --shapes goes with it only beside --smallest")
    if call.tuned is not None and len(call.specs) > 1:
        cli.error("--tuned names the file of one family; give one SPEC, or omit --tuned")
    return call
