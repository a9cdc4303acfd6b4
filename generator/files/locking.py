"""Let one process at a time change a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from generator.files.reading import FileError

if TYPE_CHECKING:
    from filelock import FileLock


def lock_of(folder: Path) -> FileLock:
    """The lock that stands for a folder, which need not exist: a file of this user in the system's temporary folder."""
    # Imported here, so that a command line can say that the package is missing.
    from filelock import FileLock

    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    user = getattr(os, "getuid", int)()
    return FileLock(os.path.join(tempfile.gettempdir(), f"gemm-generator-{user}-{name}.lock"))


@contextlib.contextmanager
def alone(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the lock of a folder until the context or the process ends.

    Calls `waiting` once if another process holds the lock, then waits for it. The value is whether it has waited.
    Nothing is written into the folder. Raises `FileError` if it cannot be locked.
    """
    from filelock import Timeout

    lock, waited = lock_of(folder), False
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waiting()
            waited = True
            lock.acquire()
    except OSError as error:
        raise FileError(folder, f"cannot be locked: {error.strerror or error}") from None
    try:
        yield waited
    finally:
        lock.release()
