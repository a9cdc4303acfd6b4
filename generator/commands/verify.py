"""`python -m generator verify`: verify rendered kernels.

Exit status: 0 everything passed; 1 something failed, or was not proved without --allow-undecided; 2 the spec or the
command line is wrong; 130 stopped by Ctrl-C or SIGTERM, as `timeout` and CI send it, with what passed in the files.
Jobs that a level leaves out, and reports with a reason, do not change the exit status.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from generator.commands.answering import status_of
from generator.commands.argument_types import Parser, folder, reported, several
from generator.files.program import program
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
    parser = Parser(
        prog=f"{program()} verify",
        description="Verify rendered kernels: each file is loaded by its path and compared with float64.",
    )
    parser.add_argument(
        "specs",
        nargs="+",
        type=Path,
        metavar="SPEC",
        help="spec files whose kernels to verify, or folders of rendered families, which need no spec",
    )
    parser.add_argument(
        "--level",
        action="append",
        choices=LEVELS,
        help="level to prove; may be given several times (default: static, bounds, interpret, and gpu with a GPU)",
    )
    parser.add_argument(
        "--target",
        action="append",
        type=reported(_target),
        metavar="TARGET",
        help=f"target of the compile level: all, {', '.join(TARGETS)}; may be given several times "
        "(default: the targets of each kernel)",
    )
    parser.add_argument(
        "--coverage",
        type=reported(lambda text: Coverage(text).word),
        default="all",
        metavar="all|pairs|triples|kernels|N%",
        help="which combinations of kernel, configuration, class of arguments and target to run: all; enough to cover "
        "every pair or triple of axis values; enough kernels to cover every pair, with one launch each; or a share "
        "(default: all)",
    )
    parser.add_argument(
        "--out", type=folder, default=Path("generated"), help="the folder of the rendered families (default: generated)"
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="only kernels and contracts whose name matches")
    parser.add_argument("--case", metavar="GLOB", help="only cases whose name matches")
    parser.add_argument(
        "--shard", type=reported(part), default=(1, 1), metavar="I/N", help="run the I-th of N parts of equal cost"
    )
    parser.add_argument("--jobs", type=several, metavar="N", help="worker processes (default: one per processor)")
    parser.add_argument(
        "--allow-undecided",
        action="store_true",
        help="do not fail if cases are not proved (they could not run here, or bounds does not understand them)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as one HTML page")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="add the results that passed to FILE as JSON, keyed by syntax trees; records of more cases stay",
    )
    parser.add_argument(
        "--lacking",
        action="store_true",
        help="prove only what the record in --results FILE lacks: new kernels, and new configurations of the others",
    )
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="FILE", help="prove nothing; print the records in FILE as Markdown"
    )
    parser.add_argument(
        "--cache", type=folder, metavar="DIR", help="folder of the result cache (default: in the user's cache folder)"
    )
    parser.add_argument("--fresh", action="store_true", help="run every job again and ignore cached results")
    return parser
