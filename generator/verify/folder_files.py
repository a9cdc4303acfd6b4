"""The files of a rendered folder other than kernels' files, held against the folder's manifest."""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from generator.emit.apply import Refused, text_of
from generator.emit.manifest_reader import Rendered
from generator.files.reading import FileError, read_bytes
from generator.verify.jobs import Failure

#: The endings of files that Python imports.
_SUFFIXES = tuple(all_suffixes())
_CACHE = "__pycache__"
#: The second word of a compiled module that Python never compares with its source (PEP 552).
_UNCHECKED = 1


def unlisted(family: Rendered, *, compiled: bool = True) -> list[str]:
    """The names in the folder that `import` could take, and that the manifest does not list, sorted.

    These are modules, Python's or compiled, folders with modules, and with `compiled` the modules in `__pycache__` that
    are of another source than the one that Python would take them for.
    """
    subfolders = {name.partition("/")[0] for name in family.files if "/" in name}
    names = []
    for front in ("", *(f"{name}/" for name in subfolders)):
        folder = family.folder / front
        if front and (folder.is_symlink() or not folder.is_dir()):
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{front}{entry.name}"
                own = name in family.files or (name in subfolders and not entry.is_symlink())
                if not own and _importable(entry):
                    names.append(name)
        if compiled:
            names += [f"{front}{name}" for name in _stale(folder / _CACHE)]
    return sorted(names)


def _importable(entry: os.DirEntry[str]) -> bool:
    if not entry.is_dir():
        return entry.name.endswith(_SUFFIXES)
    if not entry.name.isidentifier() or entry.name == _CACHE:
        return False
    # A folder is a package, too, if there is a module anywhere below it.
    for _, folders, names in os.walk(entry.path):
        folders[:] = [name for name in folders if name.isidentifier() and name != _CACHE]
        if any(name.endswith(_SUFFIXES) for name in names):
            return True
    return False


def _stale(cache: Path) -> Iterator[str]:
    """The compiled modules that are never compared with their source; an import writes none."""
    try:
        names = os.listdir(cache)
    except OSError:
        return
    for name in names:
        if name.endswith(".pyc") and _misleads(cache / name):
            yield f"{_CACHE}/{name}"


def _misleads(compiled: Path) -> bool:
    """Whether this Python would load a compiled module that is not of the source which it stands for."""
    stem, _, tag = compiled.name.partition(".")
    source = compiled.parents[1] / f"{stem}.py"
    try:
        data, text = read_bytes(compiled), read_bytes(source)
        flags, state = int.from_bytes(data[4:8], "little"), data[8:16]
        if flags == _UNCHECKED:
            return True
        if data[:4] != MAGIC_NUMBER:
            # Another version of Python's, which compares it with the source.
            return False
        status = source.stat()
        current = b"".join((int(number) & 0xFFFFFFFF).to_bytes(4, "little") for number in (status.st_mtime, len(text)))
        if state != (source_hash(text) if flags else current):
            return False
        level = re.search(r"\.opt-([12])\.pyc$", f".{tag}")
        optimize = int(level[1]) if level else 0
        return bool(
            marshal.loads(data[16:]) != compile(text, str(source), "exec", dont_inherit=True, optimize=optimize)
        )
    except (FileNotFoundError, FileError):
        # Without its source, a compiled module in this folder is not loaded.
        return False
    except (EOFError, ValueError, TypeError, SyntaxError):
        return True


def failures(family: Rendered) -> Iterator[Failure]:
    """A failure for each module that the manifest does not list, and for each other file that is not as it lists it.

    The modules that it lists are not among these: their text is checked with the kernels' files.
    """
    for name in unlisted(family):
        message = f"{family.folder / name} is not in the manifest, and Python could import it; remove it"
        yield Failure("manifest", "every module of the folder is in the manifest", message)
    for name in family.own_names:
        file = family.folder / name
        if name.endswith(".py"):
            continue
        try:
            text = text_of(file)
        except Refused:
            text = None
        if text is None:
            changed = "cannot be read, but the manifest lists it; render the family again"
        else:
            changed = "was edited since it was rendered; render the family again with --force"
        if text is None or not family.recorded.has(name, text):
            yield Failure("manifest", "every file that the manifest lists is as it was rendered", f"{file} {changed}")
