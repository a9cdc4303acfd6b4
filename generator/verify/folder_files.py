"""The files of a rendered folder other than kernels' files, held against the folder's manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path

from generator.emit.manifest_reader import Rendered
from generator.files.reading import FileError, read_bytes
from generator.verify.jobs import Failure
from generator.verify.loading import with_unix_lines

#: The endings of files that Python imports.
_SUFFIXES = tuple(all_suffixes())
_CACHE = "__pycache__"
#: The second word of a compiled module that Python never compares with its source (PEP 552).
_UNCHECKED = 1


def unlisted(family: Rendered) -> list[str]:
    """The names in the folder that `import` could take, and that the manifest does not list, sorted.

    These are modules, Python's or compiled, folders with modules, and compiled modules in `__pycache__` which Python
    would load whatever the source says.
    """
    found = []
    with os.scandir(family.folder) as entries:
        for entry in entries:
            if entry.name not in family.files and _importable(entry):
                found.append(entry.name)
    return sorted([*found, *_stale(family.folder / _CACHE)])


def _importable(entry: os.DirEntry[str]) -> bool:
    if not entry.is_dir():
        return entry.name.endswith(_SUFFIXES)
    if not entry.name.isidentifier() or entry.name == _CACHE:
        return False
    try:
        return any(name.endswith(_SUFFIXES) for name in os.listdir(entry.path))
    except OSError:
        return False


def _stale(cache: Path) -> Iterator[str]:
    """The compiled modules that are never compared with their source; an import writes none."""
    try:
        names = os.listdir(cache)
    except OSError:
        return
    for name in names:
        if name.endswith(".pyc"):
            try:
                flags = int.from_bytes(read_bytes(cache / name)[4:8], "little")
            except (FileNotFoundError, FileError):
                continue
            if flags == _UNCHECKED:
                yield f"{_CACHE}/{name}"


def own_names(family: Rendered) -> list[str]:
    """The names of the manifest's files other than kernels' files, sorted."""
    return sorted(name for name in family.files if name.removesuffix(".py") not in family.by_name)


def failures(family: Rendered) -> Iterator[Failure]:
    """A failure for each module that the manifest does not list, and for each other file that is not as it lists it.

    The modules that it lists are not among these: their text is checked with the kernels' files.
    """
    for name in unlisted(family):
        message = f"{family.folder / name} is not in the manifest, and Python could import it; remove it"
        yield Failure("manifest", "every module of the folder is in the manifest", message)
    for name in own_names(family):
        file = family.folder / name
        if name.endswith(".py"):
            continue
        found = _digest(file)
        if found != family.files[name]:
            changed = "was edited since it was rendered" if found else "cannot be read, but the manifest lists it"
            message = f"{file} {changed}; render the family again"
            yield Failure("manifest", "every file that the manifest lists is as it was rendered", message)


def state(family: Rendered) -> str:
    """A digest of all that `static` reads in the folder besides kernels' files."""
    names = own_names(family)
    found: Sequence[object] = [unlisted(family), [(n, family.files[n], _digest(family.folder / n)) for n in names]]
    return hashlib.sha256(repr(found).encode(errors="surrogateescape")).hexdigest()


def _digest(file: Path) -> str:
    """sha256 of a file's text, line ends aside; empty if it cannot be read."""
    try:
        return hashlib.sha256(with_unix_lines(read_bytes(file))).hexdigest()
    except (FileNotFoundError, FileError):
        return ""
