"""Read a file that somebody else made: a regular file of a bounded size, in UTF-8."""

from __future__ import annotations

import bz2
import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from generator.files.generator_error import GeneratorError

#: The most bytes of a file that is read; the largest file that a command of the generator writes has a few megabytes.
MOST = 256 << 20


class FileError(GeneratorError):
    """A file that cannot be read, written or used; `reason` says why, and `line` where, from 1 (0: in no line)."""

    def __init__(self, path: Path, reason: str, line: int = 0) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.path, self.reason, self.line = path, reason, line


def real_path(path: Path) -> str:
    """The same for all paths to one file or folder; a path that leads nowhere as it is spelled."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return str(path)


@contextlib.contextmanager
def reported(path: Path, done: str, but: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Within, an error of the system, `but` these, is a `FileError`: the path cannot be `done`, such as `read`."""
    try:
        yield
    except but:
        raise
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be {done}: {getattr(error, 'strerror', None) or error}") from None


def not_a_file(mode: int) -> str | None:
    """What the path of this `st_mode` is instead of a regular file, or None."""
    kind = "folder" if stat.S_ISDIR(mode) else "device or a pipe"
    return None if stat.S_ISREG(mode) else f"is a {kind}, not a file"


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """The bytes of a regular file of at most `most` bytes; those of a file `.bz2` are unpacked.

    Raises FileNotFoundError if there is no such file, and `FileError` for anything else: a folder, a device or a pipe,
    which may have no end, a larger file, or one that the system does not let read.
    """
    with reported(path, "read", but=(FileNotFoundError,)):
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if reason := not_a_file(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(path, reason)
    with os.fdopen(handle, "rb") as file, reported(path, "read"):
        data = file.read(most + 1)
    if Path(path).suffix == ".bz2" and len(data) <= most:
        try:
            data = bz2.BZ2File(io.BytesIO(data)).read(most + 1)
        except EOFError:
            raise FileError(path, "ends within the data of bzip2") from None
        except OSError:
            raise FileError(path, "is not a file of bzip2") from None
    if len(data) > most:
        raise FileError(path, f"has more than {most:,} bytes, and at most so many are read")
    return data


def read_text(path: Path, most: int = MOST) -> str:
    """The text of a file in UTF-8, with or without a byte-order mark; raises what `read_bytes` raises."""
    return decoded_text(path, read_bytes(path, most))


def decoded_text(path: Path, data: bytes) -> str:
    """The text of a file's bytes; raises `FileError` with the line if they are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(path, "is not UTF-8 text", data.count(b"\n", 0, error.start) + 1) from None


def with_unix_lines(data: bytes) -> bytes:
    """A file's bytes with line endings as LF: git may have given the lines of a checkout the ends of Windows."""
    return data.replace(b"\r\n", b"\n")
