"""Write a folder of which nothing is overwritten, so that a call that was killed can be repeated."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from generator.emit.apply import Refused
from generator.files.reading import FileError, read_bytes
from generator.files.updating import alone, make_folder
from generator.files.writing import remove_temporary, write
from generator.language.errors import on_one_line


def write_folder(out: Path, files: Mapping[Path, bytes]) -> bool:
    """Write files into the folder `out`, which is new, empty, or holds some of them as they are; else raise `Refused`.

    Returns False if the folder has all of them already. What was written is removed if a file cannot be written.
    """
    written: list[Path] = []
    try:
        make_folder(out)
        with alone(out):
            for folder in {(out / path).parent for path in files}:
                remove_temporary(folder)
            present = set(_files(out))
            if not present <= files.keys() or any(read_bytes(out / path) != files[path] for path in present):
                raise Refused(f"{out}: is not empty, and nothing is overwritten; choose another folder")
            for path in files.keys() - present:
                make_folder((out / path).parent)
                write(out / path, files[path])
                written.append(out / path)
    except FileError as error:
        for path in written:
            path.unlink()
        raise Refused(on_one_line(str(error))) from None
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise Refused(on_one_line(f"{out}: cannot be written: {told}")) from None
    return bool(written)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, relative to it; what is neither a file nor a folder counts as one."""
    for parent, folders, names in os.walk(folder, onerror=_fail):
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(parent, name)))):
            yield Path(parent, name).relative_to(folder)


def _fail(error: OSError) -> None:
    raise error
