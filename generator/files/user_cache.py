"""The folder of this user's caches on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from generator.files.reading import FileError

#: The folder's name below that of all programs.
NAME = "gemm-generator"


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
