"""Change a file that other processes change too: one at a time, and whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from generator.files import output_files
from generator.files.locking import alone
from generator.files.reading import FileError


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there; raises `FileError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise FileError(folder, f"cannot be made: {getattr(error, 'strerror', None) or error}") from None


def require_regular(path: Path) -> None:
    """Raise `FileError` for a path that is a folder, or a device, which a file would replace."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        # There is no such file; or the attempt to write says why it cannot be used.
        return
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "device or a pipe"
        raise FileError(path, f"cannot be written: is a {kind}, not a file")


def put(path: Path, text: str | bytes) -> None:
    """Write a file whole, in a folder that is made if it is missing; raises `FileError` if that fails."""
    require_regular(path)
    output_files.put(path, text)


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
        text = change()
        if text is not None:
            output_files.put(path, text)
