"""A command line of `verify`: what it prints and writes, and its exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from generator.emit.apply import MANIFEST
from generator.emit.manifest_reader import Rendered
from generator.emit.report import page
from generator.files import output_files
from generator.files.updating import require_regular
from generator.language.errors import CallError
from generator.verify import proof_records
from generator.verify.job_selection import rendered
from generator.verify.jobs import JobResult, status
from generator.verify.page import report
from generator.verify.run_report import failure_text, summary, write_junit
from generator.verify.verification_run import VerificationPlan, verify


def answer(options: argparse.Namespace) -> int:
    """Prove what a command line asks for, write its reports and return the exit status.

    Raises `CallError` and `SpecError`.
    """
    if options.table:
        return _table(options, options.table)
    if options.lacking and options.results is None:
        raise CallError("--lacking goes with --results FILE, whose record it reads and adds to")
    plans: list[VerificationPlan] = []

    def show(event: VerificationPlan | JobResult) -> None:
        if isinstance(event, VerificationPlan):
            _check_reports(options, event.families)
            plans.append(event)
            _announce(event, options)
        elif event.failures:
            print(failure_text(event), flush=True)

    result = verify(
        options.specs,
        options.out,
        levels=options.level,
        targets=options.target or (),
        coverage=options.coverage,
        only=options.only,
        case=options.case,
        shard=options.shard,
        lacking=options.results if options.lacking and options.results and options.results.exists() else None,
        jobs=options.jobs,
        cache=options.cache,
        fresh=options.fresh,
        progress=True,
        report=show,
    )
    for line in summary(result.results, result.seconds):
        print(line)
    (planned,) = plans
    written = output_files.attempt(_reports(options, result.results, planned.families))
    if result.stopped:
        print(
            f"stopped: {result.stopped} of {len(planned.jobs)} jobs did not run; the same call runs them",
            file=sys.stderr,
        )
        return 130
    return max(written, status(result.results, allow_undecided=options.allow_undecided))


def _table(options: argparse.Namespace, files: Sequence[Path]) -> int:
    """Print records of proofs that stand, and return the exit status."""
    code = proof_records.current(rendered(options.specs, options.out, options.only))
    table, nothing = proof_records.table(files, code)
    print(table)
    if nothing is not None:
        print(nothing, file=sys.stderr)
    return 0 if nothing is None else 1


def _announce(planned: VerificationPlan, options: argparse.Namespace) -> None:
    """Print what of the call is not proved."""
    if planned.unmatched:
        print(f"--only {options.only!r} matches nothing of {', '.join(planned.unmatched)}")
    # Levels with the same kernels have the same choice.
    for line in dict.fromkeys(choice.text() for choice in planned.choices):
        print(line)
    if planned.recorded:
        print(f"{planned.recorded} of {planned.recorded + len(planned.jobs)} jobs are recorded in {options.results}")
    elif not planned.jobs:
        index, count = options.shard
        print(f"--shard {index}/{count} has no job; all shards together have {planned.total}")


#: The options that name a file to write.
_REPORTS = ("junit", "html", "results")


def _check_reports(arguments: argparse.Namespace, families: Sequence[Rendered]) -> None:
    """Raise `CallError` or `FileError` for a file that cannot be written, before anything is proved."""
    outputs = {f"--{name}": path for name in _REPORTS if (path := getattr(arguments, name)) is not None}
    specs = [path for path in arguments.specs if path.is_file()]
    rendered_files = [family.folder / name for family in families for name in (*family.files, MANIFEST)]
    wrong = output_files.clash(outputs, [*specs, *rendered_files])
    if wrong is not None:
        raise CallError(wrong)
    folders = {os.path.realpath(family.folder) for family in families}
    for option, path in outputs.items():
        if not folders.isdisjoint(map(str, Path(os.path.realpath(path)).parents)):
            raise CallError(f"{option} {path}: belongs to a family that is verified; name a file elsewhere")
    if arguments.results is not None:
        # What is in it is read, and stays.
        require_regular(arguments.results)
    for path in outputs.values():
        output_files.check(path)
    if arguments.results is not None and arguments.results.exists():
        proof_records.read(arguments.results)


def _reports(
    arguments: argparse.Namespace, done: Sequence[JobResult], families: Sequence[Rendered]
) -> Iterator[Callable[[], None]]:
    """What writes each requested report."""
    if junit := arguments.junit:
        yield lambda: write_junit(junit, done, allow_undecided=arguments.allow_undecided)
    if html := arguments.html:
        yield lambda: output_files.put(html, page(report(done, families)))
    # The last one, because results of another machine raise `CallError`.
    if results := arguments.results:
        yield lambda: sys.stdout.writelines(f"{line}\n" for line in proof_records.write(results, done))
