"""Hold the folders of families while they are rendered, so that no other process changes them at the same time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from generator.emit.apply import Refused
from generator.files.reading import FileError
from generator.files.updating import alone


@contextlib.contextmanager
def held(folders: Sequence[Path]) -> Iterator[Mapping[Path, bool | Refused]]:
    """Lock and create the folders until the context ends; those that are empty and were created here are removed then.

    The value says of each folder whether another process had it before, or why it cannot be created or locked. Folders
    are locked in the order of their real paths, so that two calls never wait for each other.
    """
    locks: dict[Path, bool | Refused] = {}
    owners: dict[str, Path] = {}
    with contextlib.ExitStack() as stack:
        for folder in sorted(folders, key=os.path.realpath):
            twin = owners.setdefault(os.path.realpath(folder), folder)
            message = f"{folder}: waiting for another process that renders this folder"
            try:
                if twin != folder:
                    raise Refused(f"{folder}: is the same folder as {twin}; two families cannot share a folder")
                locks[folder] = stack.enter_context(alone(folder, partial(print, message, file=sys.stderr, flush=True)))
                # They are removed while they are locked.
                _create(folder, stack)
            except FileError as error:
                locks[folder] = Refused(str(error))
            except Refused as error:
                locks[folder] = error
        yield locks


def _create(folder: Path, stack: contextlib.ExitStack) -> None:
    """Create a folder and those above it, which `stack` removes if they are empty; raise `Refused` if that fails."""
    for path in reversed((folder, *folder.parents)):
        try:
            path.mkdir()
        except FileExistsError:
            if path == folder and not path.is_dir():
                reason = "is a file, and the family's folder must be there; move the file away"
                raise Refused(f"{folder}: {reason}") from None
        except OSError as error:
            if not path.is_dir():
                raise Refused(f"{folder}: cannot be created: {error.strerror}") from None
        else:
            stack.callback(_remove_empty, path)


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()
