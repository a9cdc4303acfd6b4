"""Update a folder with rendered files: write only what changed, each file atomically, and no file of anyone else.

Nothing here depends on GEMM. A folder belongs to the generator if it has a manifest, a JSON file whose `files` maps
names to sha256. Only what the generator wrote is replaced or removed: files that the manifest lists, and files that
state themselves that they are as they were written, which an interrupted run leaves. Such a file that was edited since
is left alone unless `force` is set. Line endings do not count: a checkout may have them as CRLF. The layout of
Python files does not either: a formatter may change it.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any

from generator.emit.advice import rendering_into
from generator.emit.file_digests import Digests, is_same
from generator.files import writing
from generator.files.checked_json import Schema, Wrong, line_of, loaded
from generator.files.generator_error import GeneratorError
from generator.files.reading import FileError, read_bytes, with_unix_lines
from generator.files.updating import make_folder

MANIFEST = "manifest.json"

#: Folders that Python creates beside imported files; they do not count as files of someone else.
_IGNORED = frozenset({"__pycache__"})
_MANIFEST = Schema(
    {
        "type": "object",
        "required": ["files"],
        "properties": {
            "manifest": {"type": "integer"},
            "generator": {"type": "string"},
            "spec": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 255}},
            "kernels": {"type": "object", "additionalProperties": {"type": "object"}},
            "files": {"type": "object", "additionalProperties": {"type": "string"}},
            "unformatted": {"type": "object", "additionalProperties": {"type": "string"}},
            # What a rendering that has not ended may have written into the files: see `generator.emit.job`.
            "begun": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["file", "header"],
                    "properties": {
                        "file": {"type": "string"},
                        "header": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
    }
)
#: A line that a manifest has even if it was cut off or merged.
_MARK = re.compile(r'^ "(manifest|generator|templates|kernels|files|unformatted)": ', re.M)
#: What stands for a byte that is not UTF-8.
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Refused(GeneratorError):
    """A folder, or a file in it, does not belong to the generator or cannot be read or written.

    It is raised before anything is written, unless the system refuses the writing.
    """


class DamagedManifest(Refused):
    """A manifest that cannot be used: where and why, its text, and its value if it is JSON."""

    def __init__(self, path: Path, line: int, reason: str, text: str, value: object = None) -> None:
        message = f"{path}:{line}: is not a manifest ({reason})"
        super().__init__(f"{message}; render the family again: {rendering_into(path.parent)}")
        self.message, self.text, self.value = message, text, value


class Origin(Enum):
    """Who wrote a file: the generator all of it, the generator and then somebody else, or somebody else."""

    RENDERED = "rendered"
    EDITED = "edited"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Change:
    """What happens to one file, with its old and its new text."""

    name: str
    #: created, updated, formatted (they differ in layout alone), same or removed.
    outcome: str
    old: str = ""
    new: str = ""


@dataclass(frozen=True)
class Survey:
    """A folder that the generator may change, as it was found."""

    folder: Path
    #: The names in the folder before anything is written.
    present: frozenset[str]
    #: What the manifest records of the files.
    recorded: Digests
    #: Names in the manifest that stay although they are not rendered now.
    kept: frozenset[str] = frozenset()
    #: Files that the manifest does not list, and that the generator wrote.
    unlisted: frozenset[str] = frozenset()
    #: Files that the generator wrote and that were edited since.
    edited: tuple[str, ...] = ()
    #: Names of the family's files that somebody else's files have, and files that cannot be read, with a message.
    blocked: Mapping[str, str] = field(default_factory=dict)
    #: Why the manifest cannot be used, if it is damaged.
    damage: str | None = None

    def read(self, name: str) -> str | None:
        """The text of a file as it was found; None if there is no such file."""
        return text_of(self.folder / name) if name in self.present else None

    def obstacles(self, force: bool) -> list[str]:
        """Why the folder cannot be written: foreign files in the way, and edited ones unless `force`."""
        advice = "edited by hand; keep the edit elsewhere, or overwrite it with --force"
        edited = [] if force else [f"{self.folder / name}: {advice}" for name in self.edited]
        damage = [self.damage] if self.damage is not None and edited else []
        return [*edited, *self.blocked.values(), *damage]


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest; None if there is none. Raise `Refused` for one that cannot be read."""
    path = folder / MANIFEST
    contents = text_of(path)
    if contents is None:
        return None
    value = None
    try:
        other = _NOT_UTF_8.search(contents)
        if other is not None:
            raise Wrong(contents.count("\n", 0, other.start()) + 1, "it is not UTF-8 text")
        text = contents.removeprefix("\ufeff")
        value = loaded(text)
        _MANIFEST.check(value, text)
        assert isinstance(value, dict)
        if _SURROGATE.search(text):
            # One without its other half is no text, and could not be written again.
            _json(value).encode()
        wrong = next((name for name in value["files"] if not _is_name(name)), None)
        if wrong is not None:
            raise Wrong(line_of(text, ["files", wrong]), f"{wrong!r} is not the name of a file in its folder")
    except Wrong as error:
        raise DamagedManifest(path, error.line, error.reason, contents, value) from None
    except UnicodeEncodeError:
        raise DamagedManifest(path, 1, "half of a surrogate pair is no text", contents, value) from None
    return value


def has_manifest(folder: Path) -> bool:
    """Whether the folder has a manifest of the generator, which may be damaged."""
    try:
        return read_manifest(folder) is not None
    except DamagedManifest as error:
        return _MARK.search(error.text) is not None
    except Refused:
        return True


def _is_name(name: str) -> bool:
    """Whether a name that a manifest lists is a file of the folder, or of a private package in it, not a path out."""
    package, slash, file = name.rpartition("/")
    own = not slash or re.fullmatch("_[a-z]+", package) is not None
    return own and file not in ("", ".", "..") and not set(file) & {"\\", "\0"} and name != MANIFEST


def text_of(path: Path) -> str | None:
    """The text of a rendered file with LF as line ending and other bytes than UTF-8 as surrogates; None without a file.

    Raises `Refused` for one that cannot be read.
    """
    try:
        return with_unix_lines(read_bytes(path)).decode("utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except FileError as error:
        raise Refused(str(error)) from None


def survey(
    folder: Path,
    names: Iterable[str],
    text: Callable[[str], str],
    origin: Callable[[str, str], Origin],
    is_own_name: Callable[[str], bool],
    kept: frozenset[str] = frozenset(),
) -> Survey:
    """How the folder is, in which `names` are to be written, before anything is written.

    `text` renders a name; it is called only for files whose text on disk differs from the manifest. `origin` says of a
    name and a text who wrote it, whatever the manifest says. `is_own_name` says whether the generator may have written
    a file of this name that is not among `names`. `kept` names files of the manifest that stay although they are not
    among `names`.

    Raises `Refused` for a folder that does not belong to the generator.
    """
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder}: is a file, and the family's folder must be there; move the file away")
    damaged = manifest = None
    try:
        manifest = read_manifest(folder)
    except DamagedManifest as error:
        damaged = error
    wanted = dict.fromkeys(names)
    recorded = Digests(manifest["files"], manifest.get("unformatted", {})) if manifest else Digests()
    subfolders = sorted({name.partition("/")[0] for name in (*wanted, *recorded.files) if "/" in name})
    disk = Survey(folder, _names(folder, subfolders), recorded, kept)
    edited: list[str] = []
    blocked = dict(_blocked(folder, subfolders))
    owned: list[str] = []
    for name in [*wanted, *sorted(recorded.files.keys() - wanted.keys() - kept)]:
        try:
            old = disk.read(name)
        except Refused as error:
            blocked[name] = f"{error}; move it away"
            continue
        if old is None or recorded.has(name, old):
            continue
        wrote = origin(name, old)
        owned += [name] if wrote is not Origin.FOREIGN else []
        if wrote is Origin.RENDERED or (name in wanted and is_same(name, old, text(name))):
            continue
        if name in recorded.files or wrote is Origin.EDITED:
            edited.append(name)
        else:
            blocked[name] = f"{folder / name}: was not rendered here; move it away"
    unlisted: set[str] = set()
    strays: list[str] = []
    for name in sorted(disk.present - wanted.keys() - recorded.files.keys() - kept - _IGNORED - {MANIFEST}):
        wrote = Origin.FOREIGN
        with contextlib.suppress(Refused):
            old = disk.read(name) if is_own_name(name) else None
            wrote = Origin.FOREIGN if old is None else origin(name, old)
        if wrote is not Origin.FOREIGN:
            unlisted.add(name)
            edited += [name] if wrote is Origin.EDITED else []
        elif not _is_temporary(name):
            strays.append(name)
    if manifest is None:
        foreign = sorted([*strays, *(name for name in blocked if name in wanted)])
        _require_own_folder(disk, foreign, owned=bool(owned or unlisted), damaged=damaged)
    damage = damaged.message if damaged else None
    return replace(disk, unlisted=frozenset(unlisted), edited=tuple(edited), blocked=blocked, damage=damage)


def _require_own_folder(disk: Survey, foreign: list[str], owned: bool, damaged: DamagedManifest | None) -> None:
    """Raise `Refused` unless a folder without a manifest that can be used is the generator's.

    `owned` says whether a file in it is. A manifest that was cut off or merged still shows what it was.
    """
    shown = f"holds files ({', '.join(foreign[:3])})"
    if damaged is None:
        if foreign:
            raise Refused(f"{disk.folder}: {shown} and no {MANIFEST}: not rendered here")
    elif not _MARK.search(damaged.text):
        if foreign:
            raise Refused(f"{damaged.message}; the folder {shown} that were not rendered: move them or the folder away")
        if not owned and damaged.text.strip():
            raise Refused(f"{damaged.message}; no file of the folder was rendered here: move it away")


def _names(folder: Path, subfolders: Iterable[str]) -> frozenset[str]:
    """The names in a folder, with those in `subfolders` in place of these."""
    try:
        names = set(os.listdir(folder))
        for own in subfolders:
            if own in names and _is_folder(folder / own):
                names.remove(own)
                names.update(f"{own}/{name}" for name in os.listdir(folder / own) if name not in _IGNORED)
        return frozenset(names)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise Refused(f"{folder}: cannot be read: {error.strerror}") from None


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder of its own, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _blocked(folder: Path, subfolders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What stands where a folder of the family must be: nothing is written through a link."""
    for own in subfolders:
        path = folder / own
        if (path.exists() or path.is_symlink()) and not _is_folder(path):
            yield own, f"{path}: is a file or a link, and a folder of the family must be there; move it away"


def compare(disk: Survey, files: Iterable[tuple[str, str]], digests: Digests) -> Iterator[Change]:
    """The change of each of `files`, names and texts, and of the generator's files that are not among them.

    Adds what the new manifest says of each file to `digests`.
    """
    for name, text in files:
        digests.add(name, text, disk.recorded)
        if name not in disk.blocked:
            yield _change(disk, name, text)
    for name in sorted((disk.recorded.files.keys() | disk.unlisted) - digests.files.keys() - disk.blocked.keys()):
        if name in disk.kept:
            digests.keep(name, disk.recorded)
            continue
        old = disk.read(name)
        if old is not None:
            yield Change(name, "removed", old)


def carry_out(disk: Survey, changes: Iterable[Change]) -> Iterator[tuple[str, str]]:
    """Make the changes one after another; yield each file's name and outcome."""
    for change in changes:
        path = disk.folder / change.name
        if change.outcome in ("created", "updated"):
            if path.parent != disk.folder:
                make_folder(path.parent)
            try:
                writing.write(path, change.new)
            except FileError as error:
                raise Refused(str(error)) from None
        elif change.outcome == "removed":
            _remove(path)
            if path.parent != disk.folder:
                # The last file of a folder of the family takes it along.
                with contextlib.suppress(OSError):
                    path.parent.rmdir()
        yield change.name, change.outcome


def _is_temporary(name: str) -> bool:
    return writing.is_temporary(name.rpartition("/")[2])


def remove_temporary(disk: Survey) -> None:
    """Remove what processes that were killed while they wrote have left in the folder, which must be locked."""
    for path in (disk.folder / name for name in sorted(disk.present) if _is_temporary(name)):
        if path.is_symlink() or path.is_file():
            _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise Refused(f"{path}: cannot be removed: {error.strerror}") from None


def compare_manifest(disk: Survey, manifest: Mapping[str, object], digests: Digests) -> Change:
    """The change of the manifest, which is written last."""
    return _change(disk, MANIFEST, manifest_text({**manifest, **digests.entries()}))


def _change(disk: Survey, name: str, text: str) -> Change:
    """What becomes of a file that gets `text`."""
    old = disk.read(name)
    if old == text:
        return Change(name, "same")
    if old is None:
        return Change(name, "created", "", text)
    return Change(name, "formatted" if is_same(name, old, text) else "updated", old, text)


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


def unified(folder: Path, change: Change) -> Iterator[str]:
    """The change as a unified diff."""
    name = f"{folder.as_posix()}/{change.name}"
    old_name, new_name = ("/dev/null" if change.outcome == none else name for none in ("created", "removed"))
    # The lines of such a file have their ends, and no other character than LF ends one.
    old, new = list(StringIO(change.old)), list(StringIO(change.new))
    for line in difflib.unified_diff(old, new, old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
