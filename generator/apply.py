"""Bring a folder to what was rendered: only what changed, each file whole or absent, never another's work.

Nothing here knows of GEMM. A folder belongs to its manifest, a JSON file whose `files` maps names to sha256: only files
that it lists are replaced or removed, and one whose text is no longer what was written is left alone unless forced.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MANIFEST = "manifest.json"

#: Folders that Python leaves beside what it imports; they make no folder foreign.
_IGNORED = frozenset({"__pycache__"})


class Refused(Exception):
    """A folder or a file in it is not the generator's to change; nothing was written."""


@dataclass(frozen=True)
class Change:
    """What became, or would become, of one file: created, updated, same or removed; the old and the new text."""

    name: str
    outcome: str
    old: str = ""
    new: str = ""


@dataclass
class Plan:
    """The changes that would bring a folder to what was rendered, and what stands in the way."""

    folder: Path
    changes: list[Change] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return any(change.outcome != "same" for change in self.changes)


def digest(text: str) -> str:
    """sha256 of the text as it lies on disk."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, object] | None:
    """The folder's manifest; None where there is none. Raise `Refused` for one that cannot be read."""
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: cannot be read: {error}") from None
    try:
        found = json.loads(text)
    except ValueError:
        raise Refused(f"{path}: is no manifest; restore it, or move the folder away") from None
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not all(_is_name(name) and isinstance(d, str) for name, d in files.items()):
        raise Refused(f"{path}: is no manifest; restore it, or move the folder away")
    return dict(found)


def _is_name(name: str) -> bool:
    """Whether a name that a manifest lists is a file of the folder, not a path out of it."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\\", "\0"} and name != MANIFEST


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None


def plan(
    folder: Path,
    files: Iterable[tuple[str, str]],
    untouched: Callable[[str], bool],
    kept: frozenset[str] = frozenset(),
    force: bool = False,
) -> Plan:
    """Compare `files` with the folder.

    `untouched` says of a text on disk whether it is as the generator once wrote it, whatever the manifest says: a run
    that was interrupted leaves such. `kept` names files of the manifest that stay although they are not in `files`.
    Raises `Refused` for a folder that is not the generator's.
    """
    manifest = read_manifest(folder)
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder}: is a file, and the family's folder is to be there")
    if manifest is None and folder.exists():
        strangers = sorted(path.name for path in folder.iterdir() if path.name not in _IGNORED)
        if strangers:
            raise Refused(f"{folder}: holds files ({', '.join(strangers[:3])}) and no {MANIFEST}: not rendered here")
    recorded = manifest["files"] if manifest else {}
    assert isinstance(recorded, dict)
    result = Plan(folder)
    for name, text in files:
        result.digests[name] = digest(text)
        old = _read(folder / name)
        if old is None:
            result.changes.append(Change(name, "created", "", text))
        elif old == text:
            result.changes.append(Change(name, "same"))
        else:
            result.changes.append(Change(name, "updated", old, text))
            _guard(result, name, old, recorded, untouched, force)
    for name in sorted(recorded.keys() - result.digests.keys()):
        old = _read(folder / name)
        if name in kept:
            result.digests[name] = recorded[name]
        elif old is not None:
            result.changes.append(Change(name, "removed", old, ""))
            _guard(result, name, old, recorded, untouched, force)
    return result


def _guard(
    result: Plan, name: str, old: str, recorded: Mapping[str, str], untouched: Callable[[str], bool], force: bool
) -> None:
    """Record why a file that is to change may not be."""
    if (name in recorded and force) or untouched(old) or recorded.get(name) == digest(old):
        return
    path = result.folder / name
    if name in recorded:
        result.obstacles.append(f"{path}: edited by hand; keep the edit elsewhere, or overwrite it with --force")
    else:
        result.obstacles.append(f"{path}: was not rendered here; move it away")


def carry_out(plan: Plan, manifest: Mapping[str, object]) -> list[Change]:
    """Write the plan and then the manifest, with the digests of all files in it; the changes made.

    Raises `Refused`, with nothing written, where something stands in the way.
    """
    if plan.obstacles:
        raise Refused("\n".join(plan.obstacles))
    plan.folder.mkdir(parents=True, exist_ok=True)
    for change in plan.changes:
        path = plan.folder / change.name
        if change.outcome in ("created", "updated"):
            write(path, change.new)
        elif change.outcome == "removed":
            path.unlink(missing_ok=True)
    text = manifest_text(plan, manifest)
    old = _read(plan.folder / MANIFEST)
    outcome = "same" if old == text else "created" if old is None else "updated"
    if outcome != "same":
        write(plan.folder / MANIFEST, text)
    return [*plan.changes, Change(MANIFEST, outcome, old or "", text)]


def manifest_text(plan: Plan, manifest: Mapping[str, object]) -> str:
    """The manifest as it lies on disk: one line an entry, so that a diff of it can be read."""
    complete = {**manifest, "files": dict(sorted(plan.digests.items()))}
    return json.dumps(complete, indent=1, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file that is whole or absent: beside it first, then moved into place."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(text.encode())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def unified(folder: Path, change: Change) -> Iterator[str]:
    """The change as a unified diff."""
    old_name = f"{folder.as_posix()}/{change.name}" if change.outcome != "created" else "/dev/null"
    new_name = f"{folder.as_posix()}/{change.name}" if change.outcome != "removed" else "/dev/null"
    yield from difflib.unified_diff(
        change.old.splitlines(keepends=True), change.new.splitlines(keepends=True), old_name, new_name
    )
