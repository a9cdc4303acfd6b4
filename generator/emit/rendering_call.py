"""A call that renders, checks, compares or lists: what it does with its specs, after the options are parsed."""

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
from generator.emit.job import RenderingJob, counted, render
from generator.emit.staging import stage
from generator.language.errors import CallError, Mistake
from generator.plan.families import families
from generator.plan.kernels import Family, LeftOut


def run(options: argparse.Namespace) -> int:
    """Render, check, compare or list; return the exit status.

    Raises `CallError` and `SpecError` for a wrong call or spec, and `Refused` for a folder that cannot be written.
    """
    if options.json and not options.list:
        raise CallError("--json goes with --list")
    for name in ("force", "stage"):
        if getattr(options, name) and (options.check or options.diff or options.list):
            raise CallError(f"--{name} goes with rendering, not with --check, --diff or --list")
    found = families(spec_paths(options.specs, options.all), options.package)
    for family in found:
        for warning in (*family.spec.warnings, *_not_entered(family)):
            print(f"{warning.path}:{warning.line}:{warning.column}: warning: {warning.message}", file=sys.stderr)
    # A hook of a formatter that runs after the one that renders would change the files at each commit.
    keeps_layout = options.stage and not options.force
    jobs = [RenderingJob(family, options.out, options.only, options.force, keeps_layout) for family in found]
    if options.only is not None and not any(job.selected for job in jobs):
        names = [kernel.name for family in found for kernel in family.kernels]
        raise CallError(f"--only {options.only!r} matches no kernel; there are {len(names)}, the first {names[0]}")
    if options.list:
        return _list(jobs, options.json)
    if options.check or options.diff:
        orphans = _orphans(options.out, found) if options.all else []
        return check(jobs, orphans, options.all, options.package) if options.check else diff(jobs, orphans)
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


def _list(jobs: Sequence[RenderingJob], as_json: bool) -> int:
    if as_json:
        print(json.dumps([job.listing() for job in jobs], indent=1))
        return 0
    for job in jobs:
        print(f"{job.family.spec.name}: {counted(len(job.selected), 'kernel')} from {job.family.spec.path}")
        for kernel in job.selected:
            print(f"  {kernel.name}  [{' '.join(kernel.targets)}]")
        for title, entries in _left_out(job):
            print(f"  {title}: {len(entries)}")
            for entry in entries:
                print(f"  - {entry.name}{f' on {entry.target}' if entry.target else ''}: {entry.reason}")
        unused = job.never_chosen
        if unused:
            print(f"  never chosen by a function: {len(unused)}")
        for each in unused:
            print(f"  - {each.name}: {each.reason}")
    return 0


def _left_out(job: RenderingJob) -> Iterator[tuple[str, list[LeftOut]]]:
    """What is left out: kernels, targets of kernels that are rendered, and tiles of these on one of their targets."""
    targets = {kernel.name: kernel.targets for kernel in job.selected}
    kernels = [entry for entry in job.left_out if entry.name not in targets]
    rendered = [entry for entry in job.left_out if entry.name in targets]
    ran = [entry for entry in rendered if entry.target in targets[entry.name]]
    not_ran = [entry for entry in rendered if entry.target not in targets[entry.name]]
    titles = ("left out", "targets of kernels above left out", "tiles of kernels above left out")
    yield from ((title, entries) for title, entries in zip(titles, (kernels, not_ran, ran)) if entries)
