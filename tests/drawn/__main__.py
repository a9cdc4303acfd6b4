"""Prove kernels of specs that nobody wrote: `python -m tests.drawn --level compile --target sm90 --launches 2000`.

Exit status: 0 all passed, 1 one failed or was not proved, 2 the call is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from generator.emit.apply import MANIFEST
from generator.language.targets import TARGETS
from generator.verify import worker_pool
from generator.verify.jobs import LEVELS, Job, status
from generator.verify.parallel import workers_by_default
from generator.verify.run_report import summary, whole_text

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
    parser.add_argument("--out", type=Path, metavar="DIR", help="leave specs and families in this empty folder")
    parser.add_argument("--render-only", action="store_true", help="prove nothing")
    parser.add_argument("--of", type=Path, metavar="DIR", help="draw nothing: prove what --out left in this folder")
    arguments = parser.parse_args(argv)
    if arguments.launches < 1 or arguments.jobs < 1:
        parser.error("--launches and --jobs must be at least 1")
    if arguments.of is not None:
        folders = sorted(manifest.parent for manifest in arguments.of.glob(f"*/{MANIFEST}"))
        if not folders:
            parser.error(f"{arguments.of} holds no family")
        wanted = proving.jobs(arguments.level, folders, arguments.target, arguments.launches)
        return prove(wanted, arguments.level, arguments.jobs)
    # Not where families are drawn already: the machine may have no hypothesis.
    from .specs import rendered

    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        drawn = rendered(folder, arguments.target, arguments.seed)
        wanted = proving.jobs(arguments.level, drawn, arguments.target, arguments.launches)
        if arguments.render_only:
            print(f"{len(wanted)} kernels and functions")
            return 0
        return prove(wanted, arguments.level, arguments.jobs)


def prove(wanted: Sequence[Job], level: str, workers: int) -> int:
    """Put the jobs through their level, and tell what came of it; the exit status."""
    started = time.monotonic()
    found = []
    for result in worker_pool.results(level, wanted, workers):
        found.append(result)
        if text := whole_text(result):
            print(text, result.job.folder.with_suffix(".yaml").read_text(), sep="\n", flush=True)
    if level == "compile":
        needlessly = list(proving.needlessly_refused(found))
        if needlessly:
            print("refused for want of memory, and fits by this version of Triton:", *needlessly, sep="\n  ")
        print(f"{proving.refused(found)} rows are refused for want of memory, {len(needlessly)} of them fit")
    print(*summary(found, time.monotonic() - started), sep="\n")
    return status(found)


if __name__ == "__main__":
    sys.exit(main())
