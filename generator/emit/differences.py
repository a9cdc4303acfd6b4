"""Compare what families render with their folders, and say what would change and which command changes it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import generator
from generator.emit import advice, code_parts
from generator.emit.apply import Change, Refused, Survey, compare, compare_manifest, unified
from generator.emit.file_digests import Digests
from generator.emit.job import RenderingJob, counted


class _Older:
    """What changes in a folder that another version of the generator rendered."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.counts: Counter[str] = Counter()

    def add(self, change: Change) -> None:
        """Count one change by what is different: code that Triton compiles, other code, or neither."""
        if change.outcome != "updated" or not change.name.endswith(".py"):
            return
        try:
            old, new = code_parts.parts(change.old), code_parts.parts(change.new)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        kind = "device code" if old.device != new.device else "host code" if old.host != new.host else "comments"
        self.counts[kind] += 1

    def __str__(self) -> str:
        found = ", ".join(f"the {kind} of {counted(count, 'file')}" for kind, count in sorted(self.counts.items()))
        told = f"rendered by gemm-generator {self.version}, and this is {generator.__version__}, which changes"
        return f"{told} {found or 'no code'}; docs/changelog.md says why"


@dataclass
class _Remedy:
    """What has to be done so that the folders are as their specs say."""

    #: The jobs that have changes, and how many of their files were edited by hand.
    jobs: list[RenderingJob] = field(default_factory=list)
    edited: int = 0
    #: Whether files are in the way that rendering does not overwrite.
    blocked: bool = False

    def told(self, changes: int, every: bool, package: str | None) -> str:
        """One line with the number of changes and the command that makes them."""
        first, found = self.jobs[0], counted(changes, "file")
        specs = [job.family.spec.path for job in self.jobs]
        command = advice.rendering(specs, first.out, first.only, self.edited > 0, every, package)
        steps = ["move away what is in the way"] if self.blocked else []
        steps += ["keep the edits elsewhere"] if self.edited else []
        edited = f", {self.edited} of them edited by hand" if self.edited else ""
        edited = ", edited by hand" if self.edited == changes else edited
        verb = "overwrite them" if self.edited else "render"
        before = f"{' and '.join(steps)}, then " if steps else ""
        return f"{found} to change{edited}; {before}{verb} with: {command}"


def check(
    jobs: Sequence[RenderingJob], orphans: Sequence[Path], every: bool = False, package: str | None = None
) -> int:
    """Print what would change; return 1 if anything would, else 0. The call has `--all` (`every`) or `--package`."""
    changes = formatted = 0
    wrong, refused = _print_orphans(orphans), False
    older: dict[Path, _Older] = {}
    remedy = _Remedy()
    for job in (job for job in jobs if job.selected):
        found = _surveyed(job)
        if found is None:
            refused = True
            continue
        compared = list(_compared(job, found))
        made = [change for change in compared if change.outcome != "formatted"]
        formatted += len(compared) - len(made)
        for change in made:
            edited = " (edited by hand)" if change.name in found.edited else ""
            print(f"{job.folder / change.name}: would be {change.outcome}{edited}", file=sys.stderr)
            remedy.edited += bool(edited)
            if job.before and job.before.get("generator") != generator.__version__:
                older.setdefault(job.folder, _Older(str(job.before.get("generator")))).add(change)
        if made or found.blocked:
            remedy.jobs.append(job)
            remedy.blocked |= bool(found.blocked)
        changes += len(made) + len(found.blocked)
    for folder, version in older.items():
        print(f"{folder}: {version}", file=sys.stderr)
    if remedy.jobs:
        # A command for every spec would be refused as long as one of them cannot be rendered.
        print(remedy.told(changes, every and not refused, package), file=sys.stderr)
    if remedy.jobs or wrong or refused:
        return 1
    kernels = sum(len(job.selected) for job in jobs)
    layout = f"; {counted(formatted, 'file')} in the layout of another formatter" if formatted else ""
    print(f"{counted(kernels, 'kernel')} of {counted(len(jobs), 'family', 'families')} as the specs say{layout}")
    return 0


def diff(jobs: Sequence[RenderingJob], orphans: Sequence[Path]) -> int:
    """Print what would change as a unified diff; return 1 if anything would, else 0."""
    different = _print_orphans(orphans)
    for job in (job for job in jobs if job.selected):
        found = _surveyed(job)
        different |= found is None or bool(found.blocked)
        for change in () if found is None else _compared(job, found):
            if change.outcome != "formatted":
                different = True
                sys.stdout.writelines(unified(job.folder, change))
    return 1 if different else 0


def _print_orphans(orphans: Sequence[Path]) -> bool:
    for folder in orphans:
        print(f"{folder}: no spec makes this family; bring its spec back, or remove the folder", file=sys.stderr)
    return bool(orphans)


def _surveyed(job: RenderingJob) -> Survey | None:
    """The state of the job's folder, with what is in the way printed; None if the folder is not the generator's."""
    try:
        found = job.survey()
    except Refused as error:
        print(error, file=sys.stderr)
        return None
    for message in ([found.damage] if found.damage else []) + list(found.blocked.values()):
        print(message, file=sys.stderr)
    return found


def _compared(job: RenderingJob, found: Survey) -> Iterator[Change]:
    """The changes that rendering would make with `force`, those of the layout among them."""
    bodies: dict[str, str] = {}
    digests = Digests()
    yield from (change for change in compare(found, job.files(bodies), digests) if change.outcome != "same")
    # With `only`, a manifest of an older spec stays right for the other kernels.
    if job.only is None or not job.before:
        last = compare_manifest(found, job.manifest(bodies), digests)
        if last.outcome != "same":
            yield last
