"""Hold the folders of families while they are rendered, so that no other process changes them at the same time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from generator.emit.apply import Refused
from generator.files.locking import alone
from generator.files.reading import FileError

#: How often a folder is created again that another process, which had nothing to write into it, has removed.
_ATTEMPTS = 1000


@contextlib.contextmanager
def held(folders: Sequence[Path]) -> Iterator[Mapping[Path, bool | Refused]]:
    """Create and lock the folders until the context ends; those that are empty and were created here are removed then.

    The value says of each folder whether another process had it before, or why it cannot be created or locked. Folders
    are locked in the order of their real paths, so that two calls never wait for each other.
    """
    found: dict[Path, bool | Refused] = {}
    identities: dict[tuple[int, int], Path] = {}
    with contextlib.ExitStack() as stack:
        for folder in sorted(folders, key=os.path.realpath):
            try:
                found[folder] = stack.enter_context(_created_and_locked(folder, identities))
            except Refused as error:
                found[folder] = error
        yield found


@contextlib.contextmanager
def _created_and_locked(folder: Path, identities: dict[tuple[int, int], Path]) -> Iterator[bool]:
    """The value is whether another process had the folder; adds the folder to `identities`."""
    created: list[Path] = []
    try:
        lock, waited = _locked(folder, created, identities)
    except Refused:
        _remove_empty(created)
        raise
    with lock:
        try:
            yield waited
        finally:
            # While it is locked: a process that waits for it creates it again.
            _remove_empty(created)


def _locked(
    folder: Path, created: list[Path], identities: dict[tuple[int, int], Path]
) -> tuple[contextlib.ExitStack, bool]:
    """The lock of a folder, which is created if it is missing, and whether another process had it."""

    def waiting() -> None:
        print(f"{folder}: waiting for another process that renders this folder", file=sys.stderr, flush=True)

    for _ in range(_ATTEMPTS):
        try:
            _create(folder, created)
            status = folder.stat()
            twin = identities.setdefault((status.st_dev, status.st_ino), folder)
            if twin != folder:
                raise Refused(f"{folder}: is the same folder as {twin}; two families cannot share a folder")
            lock = contextlib.ExitStack()
            return lock, lock.enter_context(alone(folder, waiting))
        except FileNotFoundError:
            # Another process has removed what it had created.
            continue
        except OSError as error:
            raise Refused(f"{folder}: cannot be created: {error.strerror}") from None
        except FileError as error:
            if folder.exists():
                raise Refused(str(error)) from None
    raise Refused(f"{folder}: cannot be created: other processes remove it")


def _create(folder: Path, created: list[Path]) -> None:
    """Create a folder and those above it, and add those that were not there to `created`."""
    missing = []
    for path in (folder, *folder.parents):
        if os.path.exists(path):
            break
        missing.append(path)
    if not missing and not folder.is_dir():
        raise Refused(f"{folder}: is a file, and the family's folder must be there; move the file away")
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise
        else:
            created.append(path)


def _remove_empty(created: Sequence[Path]) -> None:
    for path in reversed(created):
        with contextlib.suppress(OSError):
            path.rmdir()
