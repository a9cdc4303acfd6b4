"""One family on its way to its folder: rendered, compared, written, with a word on what became of it."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from generator.apply import MANIFEST, Change, Plan, Refused, carry_out, manifest_text, plan, read_manifest, unified
from generator.manifest import manifest
from generator.model import Family, Kernel, LeftOut
from generator.render import body_digest, kernel_source, package_source

#: Fewer kernels than this are rendered before a progress bar could be read.
_MANY = 500


@dataclass(frozen=True)
class Job:
    """What a call asks of one family."""

    family: Family
    out: Path
    only: str | None = None
    force: bool = False

    @property
    def folder(self) -> Path:
        return self.out / self.family.spec.name

    @cached_property
    def selected(self) -> tuple[Kernel, ...]:
        """The kernels whose name matches `only`."""
        return tuple(kernel for kernel in self.family.kernels if self._matches(kernel.name))

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(left for left in self.family.left_out if self._matches(left.name))

    def _matches(self, name: str) -> bool:
        return self.only is None or fnmatch.fnmatchcase(name, self.only)

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The kernels of the folder's manifest that a call with `only` leaves as they are."""
        if self.only is None:
            return {}
        entries = (read_manifest(self.folder) or {}).get("kernels", {})
        names = {kernel.name for kernel in self.family.kernels} - {kernel.name for kernel in self.selected}
        return {name: entry for name, entry in entries.items() if name in names} if isinstance(entries, dict) else {}

    @cached_property
    def present(self) -> Family:
        """The family as far as the folder will hold it: the selected kernels, and those already there."""
        names = {kernel.name for kernel in self.selected} | self.recorded.keys()
        return replace(self.family, kernels=tuple(k for k in self.family.kernels if k.name in names))

    def plan(self, bodies: dict[str, str]) -> Plan:
        """The comparison of what is rendered with what is on disk; fills `bodies` with each kernel's digest."""
        kept = frozenset(f"{name}.py" for name in self.recorded)
        return plan(self.folder, self._files(bodies), lambda text: body_digest(text) is not None, kept, self.force)

    def _files(self, bodies: dict[str, str]) -> Iterator[tuple[str, str]]:
        if not self.selected:
            return
        shown = len(self.selected) >= _MANY and sys.stderr.isatty()
        for kernel in tqdm(self.selected, desc=self.family.spec.name, unit=" kernels", disable=not shown, leave=False):
            text = kernel_source(self.family.spec, kernel)
            bodies[kernel.name] = body_digest(text) or ""
            yield f"{kernel.name}.py", text
        yield "__init__.py", package_source(self.present)

    def manifest(self, bodies: dict[str, str]) -> dict[str, object]:
        return manifest(self.present, bodies, self.recorded)

    def listing(self) -> dict[str, object]:
        """The variants for `--list --json`: the manifest's entries, less digests of files not rendered."""
        entries: dict[str, Any] = manifest(
            replace(self.family, kernels=self.selected, left_out=self.left_out),
            {kernel.name: "" for kernel in self.selected},
        )
        for entry in entries["kernels"].values():
            del entry["sha256"]
        return {key: entries[key] for key in ("name", "summary", "spec", "kernels", "left_out")}


def render(jobs: Sequence[Job]) -> int:
    """Write every family; 1, with nothing written, where something is in the way."""
    planned: list[tuple[Job, Plan, dict[str, str]]] = []
    obstacles: list[str] = []
    for job in jobs:
        if not job.selected:
            continue
        bodies: dict[str, str] = {}
        try:
            comparison = job.plan(bodies)
        except Refused as error:
            obstacles.append(str(error))
            continue
        obstacles += comparison.obstacles
        planned.append((job, comparison, bodies))
    if obstacles:
        raise Refused("\n".join(obstacles))
    for job, comparison, bodies in planned:
        changes = carry_out(comparison, job.manifest(bodies))
        print(f"{job.folder}: {len(job.selected)} kernels; {summary(changes)}")
    return 0


def summary(changes: Sequence[Change]) -> str:
    """`2 created, 1 updated, 5 same`."""
    counts = {word: sum(change.outcome == word for change in changes) for word in OUTCOMES}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


OUTCOMES = ("created", "updated", "removed", "same")


def check(jobs: Sequence[Job], strangers: Sequence[Path]) -> int:
    """Say what would change; 1 if anything would."""
    different = 0
    for job, changes in _compared(jobs):
        for change in changes:
            if change.outcome != "same":
                different += 1
                print(f"{job.folder / change.name}: would be {change.outcome}", file=sys.stderr)
    for folder in strangers:
        different += 1
        print(f"{folder}: no spec makes this family", file=sys.stderr)
    if different:
        specs = " ".join(str(job.family.spec.path) for job in jobs) if len(jobs) < 4 else "--all"
        print(f"{different} files differ; render with: python -m generator {specs}", file=sys.stderr)
        return 1
    kernels = sum(len(job.selected) for job in jobs)
    print(f"{kernels} kernels of {len(jobs)} families are as their specs say")
    return 0


def diff(jobs: Sequence[Job], strangers: Sequence[Path]) -> int:
    """Show what would change as a unified diff; 1 if anything would."""
    different = bool(strangers)
    for job, changes in _compared(jobs):
        for change in changes:
            if change.outcome != "same":
                different = True
                sys.stdout.writelines(unified(job.folder, change))
    for folder in strangers:
        print(f"{folder}: no spec makes this family", file=sys.stderr)
    return 1 if different else 0


def _compared(jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Change]]]:
    """Each job with the changes that rendering would make, the manifest's among them."""
    for job in jobs:
        if not job.selected:
            continue
        bodies: dict[str, str] = {}
        comparison = job.plan(bodies)
        changes = list(comparison.changes)
        if job.only is None:
            path = job.folder / MANIFEST
            old = path.read_text(encoding="utf-8") if path.exists() else ""
            new = manifest_text(comparison, job.manifest(bodies))
            changes.append(Change(MANIFEST, "same" if old == new else "updated" if old else "created", old, new))
        yield job, changes
