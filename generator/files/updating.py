"""Change a file that other processes change too: one at a time, and whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from generator.files import output_files
from generator.files.reading import FileError, not_a_file, reported

if TYPE_CHECKING:
    from filelock import FileLock


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there; raises `FileError` if that fails."""
    with reported(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)


def require_regular(path: Path) -> None:
    """Raise `FileError` for a path that is a folder, or a device, which a file would replace."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        # There is no such file; or the attempt to write says why it cannot be used.
        return
    if reason := not_a_file(mode):
        raise FileError(path, f"cannot be written: {reason}")


def put(path: Path, text: str | bytes) -> None:
    """Write a file whole, in a folder that is made if it is missing; raises `FileError` if that fails."""
    require_regular(path)
    output_files.put(path, text)


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
    with reported(folder, "locked"):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waiting()
            waited = True
            lock.acquire()
    try:
        yield waited
    finally:
        lock.release()


def update(path: Path, change: Callable[[], str | bytes | None]) -> None:
    """Write to a file what `change` returns, unless that is None, while no other process updates a file of its folder.

    `change` reads the file again, because it may have changed since it was last read. Raises `FileError` if the file
    cannot be written, and what `change` raises.
    """
    require_regular(path)
    # A link is written through, so what is locked is the folder that it leads to.
    folder = Path(os.path.realpath(path)).parent
    make_folder(folder)
    with alone(folder):
        if (text := change()) is not None:
            output_files.put(path, text)
