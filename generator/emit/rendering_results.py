"""What rendering, checking and listing return: frozen values. The command line prints what they say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from generator.emit.manifest import manifest
from generator.emit.never_chosen import NeverChosen
from generator.language.errors import Mistake
from generator.plan.kernels import Family, Kernel, LeftOut


@dataclass(frozen=True)
class RenderedFolder:
    """One family as it was rendered: its kernels, and what happened to each file of its folder."""

    name: str
    folder: Path
    spec: Path
    #: The names of the kernels that the call rendered.
    kernels: tuple[str, ...]
    #: The names of files, by what happened to them.
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    #: Why the folder's manifest, which was written again, could not be used; None if it could.
    damage: str | None = None

    @property
    def changed(self) -> bool:
        """Whether a file was written or removed."""
        return bool(self.created or self.updated or self.removed)


@dataclass(frozen=True)
class RenderResult:
    """What a call rendered, a folder for each family."""

    families: tuple[RenderedFolder, ...]
    #: What is doubtful in the specs, each with its position.
    warnings: tuple[Mistake, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether a file of any family was written or removed."""
        return any(family.changed for family in self.families)


@dataclass(frozen=True)
class FileDifference:
    """A file that is not as the spec says."""

    name: str
    #: What rendering would make it: `created`, `updated` or `removed`.
    outcome: str
    #: Whether it was edited by hand since it was rendered.
    edited: bool = False
    #: In a folder of another version of the generator, the most that is different: `device code`, `host code` or
    #: `comments`; else empty.
    code: str = ""
    #: The unified diff, if the call asked for it.
    diff: str = field(default="", repr=False)


@dataclass(frozen=True)
class CheckedFolder:
    """One family as it is on disk, compared with what its spec renders."""

    name: str
    folder: Path
    spec: Path
    #: The names of the kernels that were compared.
    kernels: tuple[str, ...]
    differences: tuple[FileDifference, ...] = ()
    #: Files that another formatter has laid out, which is no difference.
    formatted: tuple[str, ...] = ()
    #: What is in the way of rendering, or was damaged: a message each.
    blocked: tuple[str, ...] = ()
    damage: str | None = None
    #: Why the folder is not the generator's; it was not compared then.
    refused: str | None = None
    #: The version of the generator that rendered the folder; None where it cannot be read from a manifest.
    version: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the folder is as the spec says."""
        return self.refused is None and not self.differences and not self.blocked


@dataclass(frozen=True)
class CheckResult:
    """How the folders of a call compare with their specs."""

    families: tuple[CheckedFolder, ...]
    #: Rendered folders that no spec of the call makes, if the call asked for them.
    orphans: tuple[Path, ...] = ()
    warnings: tuple[Mistake, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every folder is as its spec says, and no folder is without a spec."""
        return not self.orphans and all(family.ok for family in self.families)


@dataclass(frozen=True)
class FamilyVariants:
    """The variants of one spec: those that are rendered, and those that are not, with the reasons."""

    name: str
    spec: Path
    summary: str
    kernels: tuple[Kernel, ...]
    left_out: tuple[LeftOut, ...]
    #: Kernels that are rendered, and that no function of the family runs.
    never_chosen: tuple[NeverChosen, ...]
    family: Family = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """The entry of `--list --json`: the manifest's entries without digests, because nothing is rendered."""
        entries: dict[str, Any] = manifest(
            replace(self.family, kernels=self.kernels, left_out=self.left_out),
            {kernel.name: "" for kernel in self.kernels},
        )
        for entry in entries["kernels"].values():
            del entry["sha256"]
        unused = [{"name": each.name, "reason": each.reason} for each in self.never_chosen]
        kept = {key: entries[key] for key in ("name", "summary", "spec", "kernels", "left_out")}
        return {**kept, "never_chosen": unused}


@dataclass(frozen=True)
class VariantsResult:
    """The variants of the specs of a call."""

    families: tuple[FamilyVariants, ...]
    warnings: tuple[Mistake, ...] = ()
