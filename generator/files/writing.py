"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

from generator.files.reading import reported

_SUFFIX = ".new"
_TEMPORARY = re.compile(rf"\..{{0,64}}\.[0-9a-f]{{12}}{re.escape(_SUFFIX)}", re.S)


def write(path: Path, text: str | bytes) -> None:
    """Write a file, text in UTF-8, under a temporary name in its folder that no other process has, then rename it.

    Raises `FileError` if that fails; the file is then as it was, and nothing else is left in the folder.
    """
    data = text.encode() if isinstance(text, str) else text
    final = os.fspath(path)
    folder, name = os.path.split(final)
    # The name is cut, because a folder's entries have at most 255 bytes.
    temporary = os.path.join(folder, f".{name[:64]}.{secrets.token_hex(6)}{_SUFFIX}")
    with reported(path, "written"):
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, final)
        except BaseException:
            # An interrupt may come after the renaming.
            with contextlib.suppress(OSError, ValueError):
                os.unlink(temporary)
            raise


def is_temporary(name: str) -> bool:
    """Whether a file of this name was left by a process that was killed while it wrote."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_temporary(folder: Path) -> None:
    """Remove what such processes have left in a folder, which must be locked; raises OSError if that fails."""
    for path in folder.glob(f".*{_SUFFIX}"):
        if is_temporary(path.name) and path.is_file():
            path.unlink()
