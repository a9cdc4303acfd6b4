"""`python -m generator verify`: verify rendered kernels.

Exit status: 0 everything passed; 1 something failed, or was not proved without --allow-undecided; 2 the spec or the
command line is wrong; 130 stopped by Ctrl-C or SIGTERM, as `timeout` and CI send it, with what passed in the files.
Jobs that a level leaves out, and reports with a reason, do not change the exit status.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from generator.commands.argument_types import Parser, folder, reported, several
from generator.commands.command_line import status_of
from generator.language.gpus import nearest_target
from generator.language.targets import TARGETS
from generator.verify.coverage import Coverage
from generator.verify.job_selection import part
from generator.verify.jobs import LEVELS
from generator.verify.verification_call import answer


def main(argv: Sequence[str] | None = None) -> int:
    """Run `verify` with the command line's arguments; return the exit status."""
    return status_of(answer, parser().parse_args(argv), "error")


def _target(text: str) -> str:
    """A target, or `all`."""
    legal = ("all", *TARGETS)
    if text not in legal:
        raise ValueError(f"invalid choice: {text!r}; {nearest_target(text, legal)}")
    return text


def parser() -> argparse.ArgumentParser:
    cli = Parser(
        "verify",
        "Verify rendered kernels: each file is loaded by its path and compared with float64.",
        allow_abbrev=True,
    )
    cli.option(
        "specs SPEC",
        "spec files whose kernels to verify, or folders of rendered families, which need no spec",
        nargs="+",
    )
    cli.add_argument(
        "--level",
        action="append",
        choices=LEVELS,
        help="level to prove; may be given several times (default: static, bounds, interpret, and gpu with a GPU)",
    )
    cli.option(
        "--target TARGET",
        f"target of the compile level: all, {', '.join(TARGETS)}; may be given several times "
        "(default: the targets of each kernel)",
        action="append",
        type=reported(_target),
    )
    cli.option(
        "--coverage all|pairs|triples|kernels|N%",
        "which combinations of kernel, configuration, class of arguments and target to run: all; enough to cover "
        "every pair or triple of axis values; enough kernels to cover every pair, with one launch each; or a share "
        "(default: all)",
        type=reported(lambda text: Coverage(text).word),
        default="all",
    )
    cli.add_argument(
        "--out", type=folder, default=Path("generated"), help="the folder of the rendered families (default: generated)"
    )
    cli.option("--only GLOB", "only kernels and contracts whose name matches", default="*")
    cli.option("--case GLOB", "only cases whose name matches")
    cli.option("--shard I/N", "run the I-th of N parts of equal cost", type=reported(part), default=(1, 1))
    cli.option("--jobs N", "worker processes (default: one per processor)", type=several)
    cli.option(
        "--allow-undecided",
        "do not fail if cases are not proved (they could not run here, or bounds does not understand them)",
    )
    cli.option("--junit FILE", "write the results as JUnit XML")
    cli.option("--html FILE", "write the results as one HTML page")
    cli.option(
        "--results FILE",
        "add the results that passed to FILE as JSON, keyed by syntax trees; records of more cases stay",
    )
    cli.option(
        "--lacking",
        "prove only what the record in --results FILE lacks: new kernels, and new configurations of the others",
    )
    cli.option("--table FILE", "prove nothing; print the records in FILE as Markdown", nargs="+")
    cli.option("--cache DIR", "folder of the result cache (default: in the user's cache folder)")
    cli.option("--fresh", "run every job again and ignore cached results")
    return cli
