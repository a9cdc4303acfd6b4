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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)

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


@dataclass(frozen=True)
class Survey:
    """A folder that was found to be the generator's to change: what its manifest records and which of it stays."""

    folder: Path
    #: The names in the folder before anything is written.
    present: frozenset[str]
    recorded: Mapping[str, str]
    kept: frozenset[str]

    def read(self, name: str) -> str | None:
        """The text of a file as it was found; None where there is none."""
        return _read(self.folder / name) if name in self.present else None


def digest(text: str) -> str:
    """sha256 of the text as it lies on disk."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest; None where there is none. Raise `Refused` for one that cannot be read."""
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
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


def survey(
    folder: Path,
    names: Iterable[str],
    text: Callable[[str], str],
    untouched: Callable[[str], bool],
    kept: frozenset[str] = frozenset(),
    force: bool = False,
) -> Survey:
    """Find everything that could be wrong with writing `names` into the folder, before anything is written.

    `text` renders a name, asked only for the few files whose text on disk is in doubt. `untouched` says of a text
    whether it is as the generator once wrote it, whatever the manifest says: a run that was interrupted leaves such.
    `kept` names files of the manifest that stay although they are not among `names`.
    Raises `Refused` for a folder that is not the generator's, and for files edited by hand unless `force`.
    """
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder}: is a file, and the family's folder is to be there")
    manifest = read_manifest(folder)
    wanted = dict.fromkeys(names)
    if manifest is None and folder.exists():
        strangers = sorted(path.name for path in folder.iterdir() if not _may_be_ours(path, wanted, untouched))
        if strangers:
            raise Refused(f"{folder}: holds files ({', '.join(strangers[:3])}) and no {MANIFEST}: not rendered here")
    recorded = manifest["files"] if manifest else {}
    assert isinstance(recorded, dict)
    found = Survey(folder, _names(folder), recorded, kept)
    obstacles = []
    for name in [*wanted, *sorted(recorded.keys() - wanted.keys() - kept)]:
        old = found.read(name)
        if old is None or recorded.get(name) == digest(old) or (force and name in recorded) or untouched(old):
            continue
        if name in wanted and text(name) == old:
            continue
        if name in recorded:
            obstacles.append(f"{folder / name}: edited by hand; keep the edit elsewhere, or overwrite it with --force")
        else:
            obstacles.append(f"{folder / name}: was not rendered here; move it away")
    if obstacles:
        raise Refused("\n".join(obstacles))
    return found


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise Refused(f"{folder}: cannot be read: {error.strerror}") from None


def _may_be_ours(path: Path, wanted: Mapping[str, None], untouched: Callable[[str], bool]) -> bool:
    """Whether a file in a folder without a manifest can come from a run that was interrupted."""
    if path.name in _IGNORED or (path.name.startswith(".") and path.name.endswith(".new")):
        return True
    text = _read(path) if path.name in wanted and path.is_file() else None
    return text is not None and untouched(text)


def compare(found: Survey, files: Iterable[tuple[str, str]], digests: dict[str, str]) -> Iterator[Change]:
    """What becomes of each of `files`, and of those that the manifest lists and that no longer belong.

    Fills `digests` with what the manifest is to record.
    """
    for name, text in files:
        digests[name] = digest(text)
        old = found.read(name)
        if old == text:
            yield Change(name, "same")
        else:
            yield Change(name, "created" if old is None else "updated", old or "", text)
    for name in sorted(found.recorded.keys() - digests.keys()):
        if name in found.kept:
            digests[name] = found.recorded[name]
            continue
        old = found.read(name)
        if old is not None:
            yield Change(name, "removed", old)


def carry_out(found: Survey, changes: Iterable[Change]) -> Iterator[tuple[str, str]]:
    """Make the changes one after another; each file's name and outcome."""
    try:
        found.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{found.folder}: cannot be made: {error.strerror}") from None
    for change in changes:
        path = found.folder / change.name
        if change.outcome in ("created", "updated"):
            write(path, change.new)
        elif change.outcome == "removed":
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise Refused(f"{path}: cannot be removed: {error.strerror}") from None
        yield change.name, change.outcome


def compare_manifest(found: Survey, manifest: Mapping[str, object], digests: Mapping[str, str]) -> Change:
    """What becomes of the manifest, the last file of all."""
    text = manifest_text({**manifest, "files": dict(sorted(digests.items()))})
    old = found.read(MANIFEST)
    if old == text:
        return Change(MANIFEST, "same")
    return Change(MANIFEST, "created" if old is None else "updated", old or "", text)


def manifest_text(manifest: Mapping[str, object]) -> str:
    """JSON with an entry of each table or list a line, so that a diff of it can be read."""
    lines = []
    for key, value in manifest.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {_json(name)}: {_json(entry)}" for name, entry in value.items())
            lines.append(f" {_json(key)}: {{\n{inner}\n }}")
        elif isinstance(value, list) and value:
            inner = ",\n".join(f"  {_json(entry)}" for entry in value)
            lines.append(f" {_json(key)}: [\n{inner}\n ]")
        else:
            lines.append(f" {_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


_json = json.JSONEncoder(ensure_ascii=False).encode


def write(path: Path, text: str) -> None:
    """Write a file that is whole or absent: beside it first, then moved into place; raise `Refused` where it cannot be.

    What stands at the place beside it is replaced, never followed.
    """
    final = os.fspath(path)
    beside = os.path.join(os.path.dirname(final), f".{os.path.basename(final)}.new")
    data = text.encode()
    try:
        try:
            handle = os.open(beside, _CREATE, 0o666)
        except FileExistsError:
            os.unlink(beside)
            handle = os.open(beside, _CREATE, 0o666)
        try:
            try:
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
            os.replace(beside, final)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None


def unified(folder: Path, change: Change) -> Iterator[str]:
    """The change as a unified diff."""
    old_name = f"{folder.as_posix()}/{change.name}" if change.outcome != "created" else "/dev/null"
    new_name = f"{folder.as_posix()}/{change.name}" if change.outcome != "removed" else "/dev/null"
    yield from difflib.unified_diff(
        change.old.splitlines(keepends=True), change.new.splitlines(keepends=True), old_name, new_name
    )
