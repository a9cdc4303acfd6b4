"""The folder of this user's caches on this machine, and a secret in it that no other user and no checkout has."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from pathlib import Path

from generator.files.locking import alone
from generator.files.reading import FileError, read_bytes
from generator.files.writing import write

#: The folder's name below that of all programs.
NAME = "gemm-generator"
_SECRET = "secret"
_BYTES = 32


def user_cache() -> Path:
    """The folder of the generator's caches; raises `FileError` if this user has no home."""
    for variable in ("LOCALAPPDATA",) if sys.platform == "win32" else ("XDG_CACHE_HOME",):
        folder = Path(os.environ.get(variable) or ".")
        # A relative one is to be ignored by the XDG Base Directory Specification: it would lead into a checkout.
        if folder.is_absolute():
            return folder / NAME
    try:
        home = Path.home()
    except RuntimeError:
        raise FileError(Path("~"), "this user has no home, and XDG_CACHE_HOME names no absolute path") from None
    if not home.is_absolute():
        raise FileError(home, "the home of this user is not an absolute path")
    return home.joinpath(*(("Library", "Caches") if sys.platform == "darwin" else (".cache",)), NAME)


def secret() -> bytes:
    """Random bytes that this user's processes on this machine share; made by the first call.

    A file that others may read, or that is damaged, is replaced. Raises `FileError` if there is none and none can be
    made.
    """
    folder = user_cache()
    path = folder / _SECRET
    found = _read(path)
    if found is not None:
        return found
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be made: {error.strerror or error}") from None
    with alone(folder):
        # Another process may have made it since.
        found = _read(path)
        if found is None:
            found = secrets.token_bytes(_BYTES)
            write(path, found, mode=0o600)
    return found


def _read(path: Path) -> bytes | None:
    """The secret in a file; None if there is none, or if it is not a file that only this user can read and write."""
    try:
        status = os.lstat(path)
        data = read_bytes(path, most=_BYTES)
    except (OSError, FileError):
        return None
    mine = sys.platform == "win32" or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
    return data if stat.S_ISREG(status.st_mode) and mine and len(data) == _BYTES else None
