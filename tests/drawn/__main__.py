"""Prove kernels of specs that nobody wrote: `python -m tests.drawn --level compile --target sm90 --launches 2000`.

Exit status: 0 all passed, 1 one failed, 2 the call is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from generator.verify.jobs import LEVELS
from generator.verify.report import failure_text, summary
from generator.verify.run import workers_by_default
from generator.vocabulary import TARGETS

from . import proving


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, render and prove what the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.drawn", description=__doc__.splitlines()[0])
    parser.add_argument("--level", choices=[level for level in LEVELS if level != "static"], default="compile")
    parser.add_argument("--target", choices=tuple(TARGETS), default="sm90", help="what the specs are for")
    parser.add_argument(
        "--launches", type=int, default=2000, metavar="N", help="launches to compile; at other levels, kernels to prove"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the number of the draw")
    parser.add_argument("--jobs", type=int, default=workers_by_default(), metavar="N", help="worker processes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep specs and families in this empty folder")
    parser.add_argument("--render-only", action="store_true", help="prove nothing: leave the families in --out")
    arguments = parser.parse_args(argv)
    if arguments.launches < 1 or arguments.jobs < 1:
        parser.error("--launches and --jobs must be at least 1")
    if arguments.render_only and arguments.out is None:
        parser.error("--render-only goes with --out")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        wanted = proving.jobs(arguments.level, folder, arguments.target, arguments.seed, arguments.launches)
        if arguments.render_only:
            print(f"{len(wanted)} kernels and functions in {folder}")
            return 0
        return _prove(arguments, wanted)


def _prove(arguments: argparse.Namespace, wanted: Sequence[proving.Job]) -> int:
    started = time.monotonic()
    found = []
    for result in proving.results(arguments.level, wanted, arguments.jobs):
        found.append(result)
        if result.failures:
            print(
                failure_text(result),
                (result.job.folder.parent / f"{result.job.folder.name}.yaml").read_text(),
                sep="\n",
            )
    for line in proving.needlessly_refused(found):
        print(f"refused, and fits: {line}")
    print(*summary(found, time.monotonic() - started), sep="\n")
    return 1 if any(result.failures for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())
