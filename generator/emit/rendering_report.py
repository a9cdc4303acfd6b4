"""A command line that renders, checks, compares or lists: what it prints, and its exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import generator
from generator.emit import advice, kept_digests
from generator.emit.job import OUTCOMES, counted
from generator.emit.rendering_call import check, render, variants
from generator.emit.rendering_results import CheckedFolder, CheckResult, FamilyVariants, RenderedFolder
from generator.language.errors import CallError, Mistake
from generator.plan.kernels import LeftOut


def run(options: argparse.Namespace) -> int:
    """Render, check, compare or list; return the exit status.

    Raises `CallError` and `SpecError` for a wrong call or spec, and `Refused` for a folder that cannot be written.
    """
    if options.json and not options.list:
        raise CallError("--json goes with --list")
    for name in ("force", "stage"):
        if getattr(options, name) and (options.check or options.diff or options.list):
            raise CallError(f"--{name} goes with rendering, not with --check, --diff or --list")
    specs = spec_paths(options.specs, options.all)
    chosen = {"only": options.only, "package": options.package, "additions": options.additions}
    if options.list:
        return _list(variants(specs, **chosen, report=show).families, options.json)
    if options.check or options.diff:
        report = partial(show, diff=options.diff)
        result = check(specs, options.out, **chosen, orphans=options.all, diff=options.diff, report=report)
        if options.check:
            _conclude(result, options)
        return 0 if result.ok else 1
    render(specs, options.out, **chosen, force=options.force, stage=options.stage, digests=options.all, report=show)
    return 0


def spec_paths(specs: Sequence[Path], every: bool) -> list[Path]:
    """The spec files of a call; raise `CallError` if there are none."""
    paths = list(specs)
    if every:
        shipped = sorted(advice.SPECS.glob("*.yaml"))
        if not shipped:
            raise CallError(f"--all: no spec found as {advice.SPECS}/*.yaml")
        paths += [path for path in shipped if path not in paths]
    if not paths:
        raise CallError("no spec given; name one, such as specs/fp16_rcr.yaml, or use --all (--help for more)")
    return paths


def show(event: Mistake | Path | RenderedFolder | CheckedFolder, diff: bool = False) -> None:
    """Print a warning, or what was found or done with one folder; with `diff`, the unified diffs of what was found."""
    if isinstance(event, Mistake):
        print(f"{event.path}:{event.line}:{event.column}: warning: {event.message}", file=sys.stderr)
    elif isinstance(event, Path):
        print(f"{event}: no spec makes this family; bring its spec back, or remove the folder", file=sys.stderr)
    elif isinstance(event, RenderedFolder):
        if event.damage is not None:
            print(f"{event.damage}; it is written again", file=sys.stderr)
        words = ", ".join(f"{len(getattr(event, word))} {word}" for word in OUTCOMES if getattr(event, word))
        digest = " (its digest)" if kept_digests.FILE in (*event.same, *event.updated) else ""
        print(f"{event.folder}: {counted(len(event.kernels), 'kernel')}; {words}{digest}")
    else:
        for message in (event.refused, event.damage, *event.blocked):
            if message is not None:
                print(message, file=sys.stderr)
        for each in event.differences:
            edited = " (edited by hand)" if each.edited else ""
            line = f"{event.folder / each.name}: would be {each.outcome}{edited}\n"
            (sys.stdout if diff else sys.stderr).write(each.diff if diff else line)


def _conclude(result: CheckResult, options: argparse.Namespace) -> None:
    """Print what has to be done so that the folders are as their specs say, or that they are."""
    for folder in result.families:
        if folder.differences and folder.version not in (None, generator.__version__):
            print(f"{folder.folder}: {_by_another_version(folder)}", file=sys.stderr)
    different = [folder for folder in result.families if folder.refused is None and not folder.ok]
    if different:
        # A command for every spec would be refused as long as one of them cannot be rendered.
        every = options.all and not any(folder.refused for folder in result.families)
        print(_remedy(different, options, every), file=sys.stderr)
    if not result.ok:
        return
    kernels = sum(len(folder.kernels) for folder in result.families)
    formatted = sum(len(folder.formatted) for folder in result.families)
    layout = f"; {counted(formatted, 'file')} in the layout of another formatter" if formatted else ""
    several = counted(len(result.families), "family", "families")
    print(f"{counted(kernels, 'kernel')} of {several} as the specs say{layout}")


def _by_another_version(folder: CheckedFolder) -> str:
    """What changes in a folder that another version of the generator rendered."""
    counts = Counter(each.code for each in folder.differences if each.code)
    changed = ", ".join(f"the {kind} of {counted(count, 'file')}" for kind, count in sorted(counts.items()))
    message = f"rendered by gemm-generator {folder.version}, and this is {generator.__version__}, which changes"
    return f"{message} {changed or 'no code'}; docs/changelog.md says why"


def _remedy(folders: Sequence[CheckedFolder], options: argparse.Namespace, every: bool) -> str:
    """One line with the number of changes and the command that makes them."""
    changes = sum(len(folder.differences) + len(folder.blocked) for folder in folders)
    edits = sum(each.edited for folder in folders for each in folder.differences)
    specs = [folder.spec for folder in folders]
    command = advice.rendering(specs, options.out, options.only, edits > 0, every, options.package, options.additions)
    steps = ["move away what is in the way"] if any(folder.blocked for folder in folders) else []
    steps += ["keep the edits elsewhere"] if edits else []
    edited = f", {edits} of them edited by hand" if edits else ""
    edited = ", edited by hand" if edits == changes else edited
    verb = "overwrite them" if edits else "render"
    before = f"{' and '.join(steps)}, then " if steps else ""
    return f"{counted(changes, 'file')} to change{edited}; {before}{verb} with: {command}"


def _list(listed: Sequence[FamilyVariants], as_json: bool) -> int:
    if as_json:
        print(json.dumps([family.as_json() for family in listed], indent=1))
        return 0
    for family in listed:
        print(f"{family.name}: {counted(len(family.kernels), 'kernel')} from {family.spec}")
        for kernel in family.kernels:
            print(f"  {kernel.name}  [{' '.join(kernel.targets)}]")
        for title, entries in _left_out(family):
            print(f"  {title}: {len(entries)}")
            for entry in entries:
                print(f"  - {entry.name}{f' on {entry.target}' if entry.target else ''}: {entry.reason}")
        if family.never_chosen:
            print(f"  never chosen by a function: {len(family.never_chosen)}")
        for each in family.never_chosen:
            print(f"  - {each.name}: {each.reason}")
    return 0


def _left_out(family: FamilyVariants) -> Iterator[tuple[str, list[LeftOut]]]:
    """What is left out: kernels, targets of kernels that are rendered, and tiles of these on one of their targets."""
    targets = {kernel.name: kernel.targets for kernel in family.kernels}
    kernels = [entry for entry in family.left_out if entry.name not in targets]
    rendered = [entry for entry in family.left_out if entry.name in targets]
    ran = [entry for entry in rendered if entry.target in targets[entry.name]]
    not_ran = [entry for entry in rendered if entry.target not in targets[entry.name]]
    titles = ("left out", "targets of kernels above left out", "tiles of kernels above left out")
    yield from ((title, entries) for title, entries in zip(titles, (kernels, not_ran, ran)) if entries)
