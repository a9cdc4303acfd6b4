"""Render a family and compare it with its folder; then write it, check it or show the differences."""

from __future__ import annotations

import fnmatch
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import generator
from generator.emit import code_parts
from generator.emit.apply import (
    MANIFEST,
    Change,
    Refused,
    Survey,
    carry_out,
    compare,
    compare_manifest,
    read_manifest,
    survey,
    unified,
)
from generator.emit.manifest import manifest
from generator.emit.manifest_reader import VERSION
from generator.emit.render import (
    body_digest,
    kernel_source,
    kernel_sources,
    named_digest,
    package_names,
    package_source,
)
from generator.plan.kernels import Family, Kernel, LeftOut

#: Fewer kernels than this are rendered too fast for a progress bar.
_MANY = 500
#: Where families go by default.
OUT = Path("generated")


@dataclass(frozen=True)
class Job:
    """The rendering of one family with the options of a call."""

    family: Family
    out: Path
    only: str | None = None
    force: bool = False

    @property
    def folder(self) -> Path:
        return self.out / self.family.spec.name

    @cached_property
    def selected(self) -> tuple[Kernel, ...]:
        """The kernels whose name matches `only`, or all."""
        return tuple(kernel for kernel in self.family.kernels if self._matches(kernel.name))

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(left for left in self.family.left_out if self._matches(left.name))

    def _matches(self, name: str) -> bool:
        return self.only is None or fnmatch.fnmatchcase(name, self.only)

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The manifest's entries of the kernels that a call with `only` does not render and leaves in the folder."""
        if self.only is None:
            return {}
        entries = dict(self.before.get("kernels", {}))
        names = {kernel.name for kernel in self.family.kernels} - {kernel.name for kernel in self.selected}
        return {n: e for n, e in entries.items() if n in names and (self.folder / f"{n}.py").is_file()}

    @cached_property
    def present(self) -> Family:
        """The family with the kernels that the folder will have: the selected ones, and those already there."""
        names = {kernel.name for kernel in self.selected} | self.recorded.keys()
        kernels = tuple(k for k in self.family.kernels if k.name in names)
        contracts = {kernel.variant.contract for kernel in kernels}
        # A contract has gradients if all contracts that compute them are there.
        gradients = tuple(each for each in self.family.gradients if each.contracts <= contracts)
        return replace(self.family, kernels=kernels, gradients=gradients)

    @cached_property
    def own_names(self) -> tuple[str, ...]:
        """The names of the folder's files other than kernels."""
        return package_names(self.present)

    @cached_property
    def before(self) -> dict[str, Any]:
        """The manifest in the folder, empty if there is none; raise `Refused` for one of a later format."""
        found = read_manifest(self.folder) or {}
        number = found.get("manifest", VERSION)
        if not isinstance(number, int) or number > VERSION:
            told = f"version {number!r} of the manifest; this generator writes {VERSION}: install a later one"
            raise Refused(f"{self.folder / MANIFEST}: {told}")
        return found

    def survey(self) -> Survey:
        """The state of the folder; raise `Refused` if it cannot be written."""
        names = [*(f"{kernel.name}.py" for kernel in self.selected), *self.own_names]
        kept = frozenset(f"{name}.py" for name in self.recorded)
        found = survey(self.folder, names, self._text, lambda text: body_digest(text) is not None, kept, self.force)
        # Refused here, too, where nothing else reads it.
        _ = self.before
        return found

    def _text(self, name: str) -> str:
        if name in self.own_names:
            return package_source(self.present, name)
        kernel = next(kernel for kernel in self.selected if f"{kernel.name}.py" == name)
        return kernel_source(self.family.spec, kernel)

    def files(self, bodies: dict[str, str]) -> Iterator[tuple[str, str]]:
        """The name and text of every file but the manifest; adds the digest of each kernel's body to `bodies`."""
        shown = len(self.selected) >= _MANY and sys.stderr.isatty()
        sources = kernel_sources(self.family.spec, self.selected)
        if shown:
            from tqdm import tqdm

            sources = iter(tqdm(sources, self.family.spec.name, len(self.selected), leave=False, unit=" kernels"))
        for kernel, text in zip(self.selected, sources, strict=True):
            bodies[kernel.name] = named_digest(text) or ""
            yield f"{kernel.name}.py", text
        yield from ((name, package_source(self.present, name)) for name in self.own_names)

    def manifest(self, bodies: dict[str, str]) -> dict[str, object]:
        return manifest(self.present, bodies, self.recorded)

    def listing(self) -> dict[str, object]:
        """The variants for `--list --json`: the manifest's entries without digests, because nothing is rendered."""
        entries: dict[str, Any] = manifest(
            replace(self.family, kernels=self.selected, left_out=self.left_out),
            {kernel.name: "" for kernel in self.selected},
        )
        for entry in entries["kernels"].values():
            del entry["sha256"]
        return {key: entries[key] for key in ("name", "summary", "spec", "kernels", "left_out")}


def render(jobs: Sequence[Job]) -> int:
    """Write every family and return 0; if a folder of one cannot be written, write nothing and raise `Refused`."""
    surveys: list[tuple[Job, Survey]] = []
    obstacles: list[str] = []
    for job in jobs:
        if job.selected:
            try:
                surveys.append((job, job.survey()))
            except Refused as error:
                obstacles.append(str(error))
    if obstacles:
        raise Refused("\n".join(obstacles))
    for job, found in surveys:
        bodies: dict[str, str] = {}
        digests: dict[str, str] = {}
        outcomes = Counter(outcome for _, outcome in carry_out(found, compare(found, job.files(bodies), digests)))
        last = compare_manifest(found, job.manifest(bodies), digests)
        outcomes.update(outcome for _, outcome in carry_out(found, [last]))
        words = ", ".join(f"{outcomes[word]} {word}" for word in OUTCOMES if outcomes[word])
        print(f"{job.folder}: {counted(len(job.selected), 'kernel')}; {words}")
    return 0


def counted(number: int, one: str, several: str | None = None) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{number} {one if number == 1 else several or one + 's'}"


OUTCOMES = ("created", "updated", "removed", "same")


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
        except (SyntaxError, ValueError):
            return
        kind = "device code" if old.device != new.device else "host code" if old.host != new.host else "comments"
        self.counts[kind] += 1

    def __str__(self) -> str:
        found = ", ".join(f"the {kind} of {counted(count, 'file')}" for kind, count in sorted(self.counts.items()))
        told = f"rendered by gemm-generator {self.version}, and this is {generator.__version__}, which changes"
        return f"{told} {found or 'no code'}; docs/changelog.md says why"


def check(jobs: Sequence[Job], orphans: Sequence[Path]) -> int:
    """Print what would change; return 1 if anything would, else 0."""
    different = 0
    older: dict[Path, _Older] = {}
    for job, change in _differences(jobs):
        different += 1
        print(f"{job.folder / change.name}: would be {change.outcome}", file=sys.stderr)
        if job.before and job.before.get("generator") != generator.__version__:
            older.setdefault(job.folder, _Older(str(job.before.get("generator")))).add(change)
    for folder, found in older.items():
        print(f"{folder}: {found}", file=sys.stderr)
    for folder in orphans:
        different += 1
        print(f"{folder}: no spec makes this family", file=sys.stderr)
    if different:
        print(f"{counted(different, 'file')} to change; render with: {_command(jobs)}", file=sys.stderr)
        return 1
    kernels = sum(len(job.selected) for job in jobs)
    print(f"{counted(kernels, 'kernel')} of {counted(len(jobs), 'family', 'families')} as the specs say")
    return 0


def _command(jobs: Sequence[Job]) -> str:
    """The call that renders the families of the jobs."""
    first = jobs[0]
    words = [str(job.family.spec.path) for job in jobs] if len(jobs) < 4 else ["--all"]
    words += ["--out", str(first.out)] if first.out != OUT else []
    words += ["--only", first.only] if first.only is not None else []
    return f"python -m generator {shlex.join(words)}"


def diff(jobs: Sequence[Job], orphans: Sequence[Path]) -> int:
    """Print what would change as a unified diff; return 1 if anything would, else 0."""
    different = bool(orphans)
    for job, change in _differences(jobs):
        different = True
        sys.stdout.writelines(unified(job.folder, change))
    for folder in orphans:
        print(f"{folder}: no spec makes this family", file=sys.stderr)
    return 1 if different else 0


def _differences(jobs: Sequence[Job]) -> Iterator[tuple[Job, Change]]:
    """The changes that rendering would make with `force`."""
    for job in jobs:
        if not job.selected:
            continue
        found = replace(job, force=True).survey()
        bodies: dict[str, str] = {}
        digests: dict[str, str] = {}
        yield from ((job, change) for change in compare(found, job.files(bodies), digests) if change.outcome != "same")
        if job.only is None:
            last = compare_manifest(found, job.manifest(bodies), digests)
            if last.outcome != "same":
                yield job, last
