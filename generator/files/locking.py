"""Let one process at a time change a folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from generator.files.reading import FileError

_PAUSE = 0.05
_CONTENDED = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_held: set[int] = set()


def _close_held() -> None:
    """Close the locks that a forked process has inherited: it would hold them after the end of this one."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


@contextlib.contextmanager
def alone(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the lock of a folder, which must exist, until the context or the process ends.

    Calls `waiting` once if another process holds the lock, then waits for it. The value is whether it has waited.
    Nothing is written into the folder. Raises `FileError` if it cannot be locked.
    """
    waited = False
    while (handle := _attempt(folder)) is None:
        if not waited:
            waiting()
            waited = True
        time.sleep(_PAUSE)
    _held.add(handle)
    try:
        yield waited
    finally:
        # The system unlocks what is closed.
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


def _attempt(folder: Path) -> int | None:
    """A handle that holds the lock, or None if another process does."""
    try:
        try:
            return _taken(os.open(folder, os.O_RDONLY), folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise
            # Windows opens no folder, and some network file systems lock none.
            return _taken(os.open(_substitute(folder), os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise FileError(folder, f"cannot be locked: {error.strerror or error}") from None


def _taken(handle: int, folder: Path | None = None) -> int | None:
    try:
        _lock(handle)
        # The folder may have been removed and made again since it was opened.
        if folder is None or os.path.samestat(os.fstat(handle), os.stat(folder)):
            return handle
    except OSError as error:
        os.close(handle)
        if error.errno in _CONTENDED:
            return None
        raise
    os.close(handle)
    return None


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _substitute(folder: Path) -> str:
    """The file of this machine's temporary folder that stands for a folder."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return os.path.join(tempfile.gettempdir(), f"gemm-generator-{name}.lock")
