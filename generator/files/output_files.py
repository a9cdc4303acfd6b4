"""The files that a command writes at its end: checked before its work begins, and each written whole."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

from generator.files.reading import FileError, reported
from generator.files.writing import write

#: Where a path may lead to a file that is open, such as `/dev/stdout`.
_DESCRIPTORS = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")


def clash(outputs: Mapping[str, Path], inputs: Iterable[Path] = ()) -> str | None:
    """What is wrong with the files that options name: one file for two options, or one that the command reads.

    Devices and pipes may be named several times. None if nothing is wrong.
    """
    read = {os.path.realpath(path) for path in inputs}
    seen: dict[str, str] = {}
    for option, path in outputs.items():
        if _in_place(path):
            continue
        final = os.path.realpath(path)
        if final in read:
            return f"{option} {path}: would overwrite what the command reads; name another file"
        if final in seen:
            return f"{seen[final]} and {option} name the same file, {path}; name two files"
        seen[final] = option
    return None


def check(path: Path) -> None:
    """Make the folder of a file, and raise `FileError` unless the file can be written there.

    A file of a temporary name is made in the folder, and removed.
    """
    final = os.path.realpath(path)
    with _reported(path):
        if _in_place(path):
            if not os.access(path, os.W_OK):
                raise FileError(path, "cannot be written: the device or pipe does not allow it")
            return
        os.makedirs(os.path.dirname(final), exist_ok=True)
        if os.path.isdir(final):
            raise FileError(path, "cannot be written: it is a folder; name a file")
        with contextlib.suppress(FileNotFoundError):
            # Refuses a name that is too long.
            os.stat(final)
        with NamedTemporaryFile(dir=os.path.dirname(final), prefix=".", suffix=".new"):
            pass


def put(path: Path, data: str | bytes) -> None:
    """Write a file whole, text in UTF-8, and make its folder; a link stays one, a device or pipe is written in place.

    Raises `FileError`.
    """
    final = os.path.realpath(path)
    with _reported(path):
        if _in_place(path):
            # It may be the standard output, and that a file.
            if sys.stdout is not None:
                sys.stdout.flush()
            with open(path, "ab") as file:
                file.write(data.encode() if isinstance(data, str) else data)
            return
        os.makedirs(os.path.dirname(final), exist_ok=True)
        write(Path(final), data)


def attempt(reports: Iterable[Callable[[], object]]) -> int:
    """Write each report, whether or not another can be written; return 1 if one cannot, after a message, else 0."""
    status = 0
    for report in reports:
        try:
            report()
        except FileError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Within, an error is a `FileError` of the path as the caller spells it."""
    with reported(path, "written"):
        try:
            yield
        except FileError as error:
            raise FileError(path, error.reason) from None
        except (FileExistsError, NotADirectoryError):
            reason = "a part of its path is a file, where a folder must be"
            raise FileError(path, f"cannot be written: {reason}") from None


def _in_place(path: Path) -> bool:
    """Whether a path is that of a device or a pipe, or of a descriptor, which nothing may be renamed onto."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return os.path.abspath(path).startswith(_DESCRIPTORS) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
