"""Render a family into its folder, which no other process changes meanwhile, or compare it with its folder."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import generator
from generator.emit import code_parts
from generator.emit.apply import (
    MANIFEST,
    Change,
    DamagedManifest,
    Refused,
    Survey,
    carry_out,
    compare,
    compare_manifest,
    read_manifest,
    remove_temporary,
    survey,
    unified,
)
from generator.emit.authorship import Author, is_name
from generator.emit.file_digests import Digests
from generator.emit.folder_lock import held
from generator.emit.manifest import manifest, spec_entry, why_not_beside, written_by
from generator.emit.manifest_reader import VERSION
from generator.emit.never_chosen import NeverChosen, never_chosen
from generator.emit.package_files import package_names, package_source
from generator.emit.render import ATTRIBUTES, ATTRIBUTES_TEXT, kernel_source, stated_and_actual_digest
from generator.emit.rendering_results import CheckedFolder, FileDifference, RenderedFolder
from generator.language.errors import SpecError
from generator.language.spec import read
from generator.plan.kernels import Family, Kernel, LeftOut

#: Fewer kernels than this are rendered too fast for a progress bar.
_MANY = 200
#: What happens to a file of a folder.
OUTCOMES = ("created", "updated", "removed", "same")


@dataclass(frozen=True)
class RenderingJob:
    """The rendering of one family with the options of a call."""

    family: Family
    out: Path
    only: str | None = None
    force: bool = False
    #: Whether files that differ in layout alone stay as they are: a formatter runs after this call.
    keeps_layout: bool = False

    @property
    def folder(self) -> Path:
        return self.out / self.family.spec.name

    @property
    def described(self) -> tuple[str, Path, Path, tuple[str, ...]]:
        """What results say of the job: the family's name, its folder, its spec, and the names of the kernels."""
        spec = self.family.spec
        return spec.name, self.folder, spec.path, tuple(kernel.name for kernel in self.selected)

    @cached_property
    def selected(self) -> tuple[Kernel, ...]:
        """The kernels whose name matches `only`, or all."""
        return tuple(kernel for kernel in self.family.kernels if self._matches(kernel.name))

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(left for left in self.family.left_out if self._matches(left.name))

    @cached_property
    def never_chosen(self) -> tuple[NeverChosen, ...]:
        """The kernels that no function of the whole family chooses."""
        return tuple(each for each in never_chosen(self.family) if self._matches(each.name))

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
        return (*package_names(self.present), ATTRIBUTES)

    @cached_property
    def before(self) -> dict[str, Any]:
        """The manifest in the folder, empty if there is none that can be used; `Refused` for one of a later format."""
        content: object
        try:
            content = usable = read_manifest(self.folder) or {}
        except DamagedManifest as error:
            content, usable = error.value, {}
        number = content.get("manifest", VERSION) if isinstance(content, dict) else VERSION
        if isinstance(number, int) and number > VERSION:
            reason = f"version {number!r} of the manifest; this generator writes {VERSION}: install a later one"
            raise Refused(f"{self.folder / MANIFEST}: {reason}")
        return usable

    def survey(self) -> Survey:
        """The state of the folder; raise `Refused` if it is not the generator's, or if it is another spec's."""
        self._require_one_spec()
        names = [*(f"{kernel.name}.py" for kernel in self.selected), *self.own_names]
        kept = frozenset(f"{name}.py" for name in self.recorded)
        author = Author(self._heads(), frozenset(names), any_spec="kernels" not in self.before)
        disk = survey(self.folder, names, self._text, author.origin, is_name, kept)
        self._require_manifest(disk)
        self._require_fitting(disk)
        return disk

    def _heads(self) -> list[tuple[Sequence[str], str]]:
        """The headers that files of the folder may have, each with the name of the spec's file."""
        header, spec = self.family.spec.header, spec_entry(self.family.spec)
        files = (spec["file"], self.before.get("spec", spec).get("file", ""))
        return [*((header, file) for file in files), *((each["header"], each["file"]) for each in self._begun)]

    @property
    def _begun(self) -> list[dict[str, Any]]:
        """The heads of files that renderings which have not ended may have written, from the manifest."""
        begun: list[dict[str, Any]] = self.before.get("begun", [])
        return begun

    def begin(self, disk: Survey) -> Change | None:
        """The manifest as it is until the rendering has ended; None if it can stay as it is.

        It names the head of the new files. If the rendering is killed, they are known even if the spec has another
        header by the next one.
        """
        header, spec = self.family.spec.header, spec_entry(self.family.spec)
        if self.before.get("spec") == spec:
            return None
        begun = [*self._begun, {"file": spec["file"], "header": list(header)}]
        return compare_manifest(disk, {**written_by(), **self.before, "begun": begun}, disk.recorded)

    def _require_manifest(self, disk: Survey) -> None:
        """Raise `Refused` if `only` leaves out kernels in the folder of which no manifest says what they are."""
        others = {f"{kernel.name}.py" for kernel in self.family.kernels} & disk.unlisted
        if self.only is not None and "kernels" not in self.before and others:
            reason = disk.damage or f"{self.folder}: has no {MANIFEST} of a whole rendering"
            raise Refused(f"{reason}; --only would lose the other kernels: render without --only first")

    def _require_fitting(self, disk: Survey) -> None:
        """Raise `Refused` if kernels that `only` leaves in the folder do not fit what the others become."""
        reason = why_not_beside(self.family, self.before, self.recorded)
        for name, entry in self.recorded.items() if reason is None else ():
            # A rendering that was interrupted has written the file, and no manifest.
            digest, _ = stated_and_actual_digest(disk.read(f"{name}.py") or "")
            if digest not in (None, entry.get("sha256")):
                reason = f"{name} is not the one of {MANIFEST}"
                break
        if reason is not None:
            remedy = "--only would leave kernels that do not fit the other files: render without --only first"
            raise Refused(f"{self.folder}: {reason}; {remedy}")

    def _require_one_spec(self) -> None:
        """Raise `Refused` if the folder was rendered from another spec that is still there and has the same name."""
        other = self.before.get("spec", {}).get("file", "")
        path = self.family.spec.path.with_name(Path(other).name or "spec")
        try:
            if path.name == self.family.spec.path.name or not path.is_file() or path.samefile(self.family.spec.path):
                return
            name = read(path).name
        except (OSError, SpecError):
            return
        if name == self.family.spec.name:
            reason = f"was rendered from {path}, which has the same name: give one of the two specs another `name`"
            raise Refused(f"{self.folder}: {reason}")

    def require_same_spec(self) -> None:
        """Raise `Refused` if another process has rendered another spec into the folder."""
        entry, own = self.before.get("spec"), spec_entry(self.family.spec)
        if entry is None or entry == own or self._begun:
            # The other process has not ended its rendering.
            return
        if entry.get("file") != own["file"]:
            text = f"{entry.get('file')} into it, which has the same name; give one of the two specs another `name`"
        else:
            text = f"another text of {own['file']} into it; give one of two specs another `name`, or render once more"
        raise Refused(f"{self.folder}: another process has rendered {text}")

    def _text(self, name: str) -> str:
        kernel = next((kernel for kernel in self.selected if f"{kernel.name}.py" == name), None)
        return self._own_text(name) if kernel is None else kernel_source(self.family.spec, kernel)

    def _own_text(self, name: str) -> str:
        return ATTRIBUTES_TEXT if name == ATTRIBUTES else package_source(self.present, name)

    def changes(self, disk: Survey) -> Iterator[Change]:
        """What becomes of each file of the folder, the manifest last."""
        bodies: dict[str, str] = {}
        digests = Digests()
        yield from compare(disk, self._files(bodies), digests)
        yield compare_manifest(disk, manifest(self.present, bodies, self.recorded), digests)

    def _files(self, bodies: dict[str, str]) -> Iterator[tuple[str, str]]:
        """The name and text of every file but the manifest; adds the digest of each kernel's body to `bodies`."""
        kernels: Iterable[Kernel] = self.selected
        if len(self.selected) >= _MANY and sys.stderr.isatty():
            # Its import takes longer than a small family.
            from tqdm import tqdm

            kernels = tqdm(self.selected, self.family.spec.name, leave=False, unit=" kernels")
        for kernel in kernels:
            text = kernel_source(self.family.spec, kernel)
            bodies[kernel.name] = stated_and_actual_digest(text)[1]
            yield f"{kernel.name}.py", text
        yield from ((name, self._own_text(name)) for name in self.own_names)


def render(
    jobs: Sequence[RenderingJob], report: Callable[[RenderedFolder], object] | None = None
) -> tuple[RenderedFolder, ...]:
    """Write every family; if a folder of one cannot be written, write nothing and raise `Refused`.

    Calls `report` with each folder when it is written. Waits for other processes that render one of the folders.
    """
    done: list[RenderedFolder] = []
    # Copies, which have read nothing of the folders before these are locked.
    jobs = [replace(job) for job in jobs if job.selected]
    with held([job.folder for job in jobs]) as waited:
        surveys: list[tuple[RenderingJob, Survey]] = []
        obstacles: list[str] = []
        for job in jobs:
            try:
                before = waited[job.folder]
                if isinstance(before, Refused):
                    raise before
                if before:
                    job.require_same_spec()
                disk = job.survey()
            except Refused as error:
                obstacles.append(str(error))
            else:
                obstacles += disk.obstacles(job.force)
                surveys.append((job, disk))
        if obstacles:
            raise Refused("\n".join(obstacles))
        for job, disk in surveys:
            done.append(_write(job, disk))
            if report is not None:
                report(done[-1])
    return tuple(done)


def _write(job: RenderingJob, disk: Survey) -> RenderedFolder:
    """Bring the folder to what the job renders."""
    remove_temporary(disk)
    begun = job.begin(disk)
    list(carry_out(disk, [] if begun is None else [begun]))
    formatted = "same" if job.keeps_layout else "updated"
    changes = (replace(x, outcome=formatted) if x.outcome == "formatted" else x for x in job.changes(disk))
    outcomes = list(carry_out(disk, changes))
    named: dict[str, Any] = {word: tuple(name for name, outcome in outcomes if outcome == word) for word in OUTCOMES}
    return RenderedFolder(*job.described, **named, damage=disk.damage)


def checked(job: RenderingJob, diff: bool = False) -> CheckedFolder:
    """How the job's folder differs from what it renders; with `diff`, each difference has its unified diff."""
    try:
        disk = job.survey()
    except Refused as error:
        return CheckedFolder(*job.described, refused=str(error))
    version = str(job.before.get("generator")) if job.before else None
    older = version not in (None, generator.__version__)
    formatted: list[str] = []
    differences: list[FileDifference] = []
    for change in job.changes(disk):
        if change.outcome == "formatted":
            formatted.append(change.name)
        # With `only`, a manifest of an older spec stays right for the other kernels.
        if change.outcome in ("same", "formatted") or (change.name == MANIFEST and job.only is not None and job.before):
            continue
        code = _code(change) if older else ""
        text = "".join(unified(job.folder, change)) if diff else ""
        differences.append(FileDifference(change.name, change.outcome, change.name in disk.edited, code, text))
    return CheckedFolder(
        *job.described,
        tuple(differences),
        tuple(formatted),
        blocked=tuple(disk.blocked.values()),
        damage=disk.damage,
        version=version,
    )


def _code(change: Change) -> str:
    """What is different in a file of Python: code that Triton compiles, other code, or neither; empty for others."""
    if change.outcome != "updated" or not change.name.endswith(".py"):
        return ""
    try:
        old, new = code_parts.parts(change.old), code_parts.parts(change.new)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return "device code" if old.device != new.device else "host code" if old.host != new.host else "comments"


def counted(number: int, one: str, several: str | None = None) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{number} {one if number == 1 else several or one + 's'}"
