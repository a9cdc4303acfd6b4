"""Update a folder with rendered files: write only what changed, each file atomically, and no file of anyone else.

Nothing here depends on GEMM. A folder belongs to the generator if it has a manifest, a JSON file whose `files` maps
names to sha256. Only files that the manifest lists are replaced or removed. A listed file that was edited since is left
alone unless `force` is set.
"""

from __future__ import annotations

import contextlib
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

#: Folders that Python creates beside imported files; they do not count as files of someone else.
_IGNORED = frozenset({"__pycache__"})


class Refused(Exception):
    """A folder, or a file in it, does not belong to the generator or cannot be read or written.

    `survey` raises it before anything is written.
    """


@dataclass(frozen=True)
class Change:
    """What happens to one file, with its old and its new text."""

    name: str
    #: created, updated, same or removed.
    outcome: str
    old: str = ""
    new: str = ""


@dataclass(frozen=True)
class Survey:
    """A folder that the generator may change, as it was found."""

    folder: Path
    #: The names in the folder before anything is written.
    present: frozenset[str]
    #: File name -> sha256, as the manifest records them.
    recorded: Mapping[str, str]
    #: Names in the manifest that stay although they are not rendered now.
    kept: frozenset[str]

    def read(self, name: str) -> str | None:
        """The text of a file as it was found; None if there is no such file."""
        return _read(self.folder / name) if name in self.present else None


def digest(text: str) -> str:
    """sha256 of the text in UTF-8, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest; None if there is none. Raise `Refused` for one that cannot be read."""
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
        raise Refused(f"{path}: is not a manifest; restore it, or move the folder away") from None
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not all(_is_name(name) and isinstance(d, str) for name, d in files.items()):
        raise Refused(f"{path}: is not a manifest; restore it, or move the folder away")
    return dict(found)


def _is_name(name: str) -> bool:
    """Whether a name that a manifest lists is a file name, not a path that leads out of the folder."""
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
    """Check that `names` can be written into the folder, before anything is written.

    `text` renders a name; it is called only for files whose text on disk differs from the manifest. `untouched` returns
    whether a text is exactly as the generator wrote it, whatever the manifest says: an interrupted run leaves such
    files. `kept` names files of the manifest that stay although they are not among `names`.

    Raises `Refused` for a folder that does not belong to the generator, and for files edited by hand unless `force`.
    """
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder}: is a file, and the family's folder must be there; move the file away")
    manifest = read_manifest(folder)
    wanted = dict.fromkeys(names)
    if manifest is None and folder.exists():
        foreign = sorted(path.name for path in folder.iterdir() if not _may_be_ours(path, wanted, untouched))
        if foreign:
            raise Refused(f"{folder}: holds files ({', '.join(foreign[:3])}) and no {MANIFEST}: not rendered here")
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
    """Whether a file in a folder without a manifest can come from an interrupted run."""
    if path.name in _IGNORED or (path.name.startswith(".") and path.name.endswith(".new")):
        return True
    text = _read(path) if path.name in wanted and path.is_file() else None
    return text is not None and untouched(text)


def compare(found: Survey, files: Iterable[tuple[str, str]], digests: dict[str, str]) -> Iterator[Change]:
    """The change of each of `files`, names and texts, and of the files that only the old manifest lists.

    Adds the sha256 of each file of the new manifest to `digests`.
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
    """Make the changes one after another; yield each file's name and outcome."""
    try:
        found.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{found.folder}: cannot be created: {error.strerror}") from None
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
    """The change of the manifest, which is written last."""
    text = manifest_text({**manifest, "files": dict(sorted(digests.items()))})
    old = found.read(MANIFEST)
    if old == text:
        return Change(MANIFEST, "same")
    return Change(MANIFEST, "created" if old is None else "updated", old or "", text)


def manifest_text(manifest: Mapping[str, object]) -> str:
    """JSON with one line for each entry of a table or list, so that diffs are readable."""
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
    """Write a file atomically: under a temporary name in its folder, then renamed. Raise `Refused` if that fails.

    A file or a symbolic link with the temporary name is replaced, never followed.
    """
    final = os.fspath(path)
    temporary = os.path.join(os.path.dirname(final), f".{os.path.basename(final)}.new")
    data = text.encode()
    try:
        try:
            handle = os.open(temporary, _CREATE, 0o666)
        except FileExistsError:
            os.unlink(temporary)
            handle = os.open(temporary, _CREATE, 0o666)
        try:
            try:
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
            os.replace(temporary, final)
        except BaseException:
            # An interrupt may come after the renaming.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
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
