"""Tell whether two paths lead to one file or folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Iterable
from pathlib import Path


def identity(path: Path) -> Hashable:
    """A value that is the same for all paths to one file or folder: relative or not, by links, and through `..`."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        # In a folder that was removed, a relative path leads nowhere.
        with contextlib.suppress(OSError):
            return os.path.abspath(path)
        return path
    # A file system that numbers no files gives all of them the number 0.
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)


def distinct(paths: Iterable[Path]) -> list[Path]:
    """The paths without those that lead to a file or folder to which one before them leads."""
    found: dict[Hashable, Path] = {}
    for path in paths:
        found.setdefault(identity(path), path)
    return list(found.values())
