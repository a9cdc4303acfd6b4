"""The command that renders: what a call does with its specs, after the options are parsed (`generator.cli`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from generator.cost import tuned
from generator.emit.advice import SPECS
from generator.emit.apply import MANIFEST, has_manifest
from generator.emit.differences import check, diff
from generator.emit.job import Job, counted, render
from generator.emit.staging import stage
from generator.language.errors import CallError, Mistake
from generator.plan.families import families
from generator.plan.kernels import Family


def run(options: argparse.Namespace) -> int:
    """Render, check, compare or list; return the exit status.

    Raises `CallError` and `SpecError` for a wrong call or spec, and `Refused` for a folder that cannot be written.
    """
    if options.json and not options.list:
        raise CallError("--json goes with --list")
    for name in ("force", "stage"):
        if getattr(options, name) and (options.check or options.diff or options.list):
            raise CallError(f"--{name} goes with rendering, not with --check, --diff or --list")
    found = families(spec_paths(options.specs, options.all))
    for family in found:
        for warning in (*family.spec.warnings, *_not_entered(family)):
            print(f"{warning.path}:{warning.line}:{warning.column}: warning: {warning.message}", file=sys.stderr)
    jobs = [Job(family, options.out, options.only, options.force) for family in found]
    if options.only is not None and not any(job.selected for job in jobs):
        names = [kernel.name for family in found for kernel in family.kernels]
        raise CallError(f"--only {options.only!r} matches no kernel; there are {len(names)}, the first {names[0]}")
    if options.list:
        return _list(jobs, options.json)
    if options.check or options.diff:
        orphans = _orphans(options.out, found) if options.all else []
        return check(jobs, orphans, options.all) if options.check else diff(jobs, orphans)
    status = render(jobs)
    if options.stage:
        stage(jobs)
    return status


def spec_paths(specs: Sequence[Path], every: bool) -> list[Path]:
    """The spec files of a call; raise `CallError` if there are none."""
    paths = list(specs)
    if every:
        found = sorted(SPECS.glob("*.yaml"))
        if not found:
            raise CallError(f"--all: no spec found as {SPECS}/*.yaml")
        paths += [path for path in found if path not in paths]
    if not paths:
        raise CallError("no spec given; name one, such as specs/fp16_rcr.yaml, or use --all (--help for more)")
    return paths


def _not_entered(family: Family) -> Iterator[Mistake]:
    """What of the spec's measurements does not enter the family."""
    for file, told in tuned.left_out(family):
        yield Mistake(family.spec.path, *family.spec.positions["tuned", file], f"tuned: {file!r} {told}")


def _orphans(out: Path, found: Sequence[Family]) -> list[Path]:
    """Rendered folders that belong to no spec."""
    names = {family.spec.name for family in found}
    folders = sorted(path.parent for path in out.glob(f"*/{MANIFEST}"))
    return [folder for folder in folders if folder.name not in names and has_manifest(folder)]


def _list(jobs: Sequence[Job], as_json: bool) -> int:
    if as_json:
        print(json.dumps([job.listing() for job in jobs], indent=1))
        return 0
    for job in jobs:
        print(f"{job.family.spec.name}: {counted(len(job.selected), 'kernel')} from {job.family.spec.path}")
        for kernel in job.selected:
            print(f"  {kernel.name}  [{' '.join(kernel.targets)}]")
        left = job.left_out
        if left:
            print(f"  left out: {len(left)}")
        for entry in left:
            print(f"  - {entry.name}{f' on {entry.target}' if entry.target else ''}: {entry.reason}")
    return 0
