"""Write a folder of many files whole or not at all, so that a call that was killed can be repeated."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from generator.emit.apply import Refused
from generator.files.locking import alone
from generator.files.reading import FileError, read_bytes
from generator.files.writing import is_temporary
from generator.language.errors import on_one_line

#: The end of the name of a folder that is being built, or that a killed process left.
_SUFFIX = ".unfinished"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; raise `Refused` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _refused(folder, error) from None


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove what killed processes left of `name` in a folder; nobody else may be writing there."""
    try:
        with os.scandir(folder) as entries:
            left = [entry for entry in entries if _is_leftover(entry, name)]
        for entry in left:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except OSError as error:
        raise _refused(folder, error) from None


def _is_leftover(entry: os.DirEntry[str], name: str) -> bool:
    if not re.fullmatch(rf"\.{re.escape(name[:64])}\.[0-9a-f]{{12}}\.\w+", entry.name):
        return False
    if entry.is_dir(follow_symlinks=False):
        return entry.name.endswith(_SUFFIX)
    return is_temporary(entry.name) and entry.is_file(follow_symlinks=False)


def write_folder(out: Path, files: Mapping[Path, bytes]) -> bool:
    """Write files into the folder `out`, which is new, empty, or holds some of them as they are; else raise `Refused`.

    Returns False if the folder has all of them already. A new folder is built next to `out` and then renamed. Nothing
    else is left if a file cannot be written, or when a call that was killed is repeated.
    """
    try:
        # A path such as `.` has no name.
        target = Path(os.path.abspath(out))
        if not os.path.lexists(target):
            make_folder(target.parent)
            with alone(target.parent):
                remove_leftovers(target.parent, target.name)
                if not os.path.lexists(target):
                    _build(target.parent, target.name, files, lambda built: os.rename(built, target))
                    return True
        with alone(target):
            return _complete(out, target, files)
    except FileError as error:
        raise Refused(str(error)) from None
    except (OSError, ValueError) as error:
        raise _refused(out, error) from None


def _complete(out: Path, target: Path, files: Mapping[Path, bytes]) -> bool:
    """Write what is missing into a folder: it may be one that cannot be renamed, such as the working directory."""
    remove_leftovers(target, target.name)
    present = set(_files(target))
    if not present <= files.keys() or any(read_bytes(target / path) != files[path] for path in present):
        raise Refused(f"{out}: is not empty, and nothing is overwritten; choose another folder")
    missing = {path: data for path, data in files.items() if path not in present}
    moved: list[Path] = []

    def move(built: Path) -> None:
        try:
            for path in missing:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                os.rename(built / path, target / path)
                moved.append(path)
        except BaseException:
            for path in moved:
                (target / path).unlink()
            raise

    if missing:
        _build(target, target.name, missing, move)
    return bool(missing)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, relative to it; what is neither a file nor a folder counts as one."""
    for parent, folders, names in os.walk(folder, onerror=_fail):
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(parent, name)))):
            yield Path(parent, name).relative_to(folder)


def _fail(error: OSError) -> None:
    raise error


def _build(parent: Path, name: str, files: Mapping[Path, bytes], use: Callable[[Path], None]) -> None:
    """Write files into a new folder in `parent`, and remove what `use` leaves of it."""
    built = parent / f".{name[:64]}.{secrets.token_hex(6)}{_SUFFIX}"
    try:
        built.mkdir()
        for path, data in files.items():
            (built / path).parent.mkdir(parents=True, exist_ok=True)
            (built / path).write_bytes(data)
        use(built)
    finally:
        shutil.rmtree(built, ignore_errors=True)


def _refused(path: Path, error: OSError | ValueError) -> Refused:
    return Refused(on_one_line(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}"))
