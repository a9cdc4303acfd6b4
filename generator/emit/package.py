"""Rendered families as a Hub repository or as a wheel, and the options and the folder of each format of a package."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from generator.emit import manifest_reader
from generator.emit.apply import Refused
from generator.emit.hub.repository import Repository
from generator.emit.job import counted
from generator.emit.packed_family import Packed, packed_files
from generator.emit.wheel import wheel
from generator.files.reading import FileError, read_bytes, real_path
from generator.files.updating import alone, make_folder
from generator.files.writing import remove_temporary, write
from generator.language.errors import CallError, on_one_line, shown

#: The Hub's number of a version, which is part of the name of a branch.
_MAJOR = re.compile(r"0|[1-9][0-9]{0,8}")
#: The options of some formats alone.
_OPTIONS_OF: Mapping[str, tuple[str, ...]] = {
    "version": ("kernels", "wheel"),
    "license": ("kernels", "wheel"),
    "repo_id": ("kernels",),
    **dict.fromkeys(("device", "shapes", "only", "batch"), ("cubin",)),
}


def require_options(options: argparse.Namespace) -> None:
    """Raise `CallError` for an option that the format does not have, or for one that it needs and was not given."""
    for name, formats in _OPTIONS_OF.items():
        if getattr(options, name) is not None and options.format not in formats:
            option = f"--{name.replace('_', '-')}"
            raise CallError(f"package: {option} goes with --format {' or '.join(formats)}")
    missing = [f"--{name}" for name in ("device", "shapes") if getattr(options, name) is None]
    if options.format == "cubin" and missing:
        raise CallError(f"package: --format cubin needs {' and '.join(missing)}")


def require_folder(out: Path) -> None:
    """Raise `Refused` where the package's folder cannot be, because a file is there."""
    dangling = out.is_symlink() and not out.exists()
    if out.is_file() or dangling:
        what = "a link that leads nowhere" if dangling else "a file"
        raise Refused(f"{out}: is {what}, and the package's folder must be there; name another folder")


def write_folder(out: Path, files: Mapping[Path, bytes], taken: str | None = None) -> bool:
    """Write files into the folder `out`, which is new, empty, or holds some of them as they are; else raise `Refused`.

    With the message `taken`, the folder may hold others, too; it is raised for a file that is there with another text.
    Returns False if the folder has all of them already. What was written is removed if a file cannot be written.
    """
    written: list[Path] = []
    try:
        make_folder(out)
        with alone(out):
            for folder in {(out / path).parent for path in files}:
                remove_temporary(folder)
            present = set(_files(out)) if taken is None else {path for path in files if os.path.lexists(out / path)}
            if not present <= files.keys() or any(read_bytes(out / path) != files[path] for path in present):
                raise Refused(taken or f"{out}: is not empty, and nothing is overwritten; choose another folder")
            for path in files.keys() - present:
                make_folder((out / path).parent)
                write(out / path, files[path])
                written.append(out / path)
    except FileError as error:
        for path in written:
            path.unlink()
        raise Refused(on_one_line(str(error))) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Refused(on_one_line(f"{out}: cannot be written: {reason}")) from None
    return bool(written)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, relative to it; what is neither a file nor a folder counts as one."""
    for parent, folders, names in os.walk(folder, onerror=_fail):
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(parent, name)))):
            yield Path(parent, name).relative_to(folder)


def _fail(error: OSError) -> None:
    raise error


def package(options: argparse.Namespace) -> int:
    """Write the package and return 0; raises `CallError` for a wrong call, `Refused` for files in the way."""
    require_folder(options.out)
    folders = {real_path(folder): folder for folder in options.families}
    families = [manifest_reader.read(folder) for folder in folders.values()]
    packed = [packed_files(family) for family in families]
    if options.format == "wheel":
        return _wheel(packed, options)
    if len(families) > 1:
        raise CallError(f"package: --format kernels takes one family, found {len(families)}")
    if families[0].package == "files":
        reason = "has no functions, which the Hub's loader needs: render it with 'package: torch' or 'plain'"
        raise CallError(f"package: --format kernels: {families[0].name} {reason}, or copy its files")
    return _repository(packed[0], options)


def _wheel(families: Sequence[Packed], options: argparse.Namespace) -> int:
    names = [each.family.name for each in families]
    if len(set(names)) < len(names):
        raise CallError(f"package: two families have one name: {', '.join(names)}")
    name = f"{names[0]}_kernels" if options.name is None else options.name
    file, data = wheel(families, name, "1" if options.version is None else options.version, options.license)
    path = options.out / file
    taken = f"{path}: is there already, and nothing is overwritten; choose another folder or --version"
    if not write_folder(options.out, {Path(file): data}, taken):
        print(f"{path}: same")
        return 0
    install = f"pip install {shlex.quote(str(path))}"
    print(f"{path}: {counted(len(families), 'family', 'families')}; install it with: {install}")
    return 0


def _repository(packed: Packed, options: argparse.Namespace) -> int:
    version = "1" if options.version is None else options.version
    if not _MAJOR.fullmatch(version):
        raise CallError(f"package: --version: the Hub takes a whole number, found {shown(version)}")
    # A double underscore would separate the parts of a namespace of operators.
    name = re.sub(r"_+", "-", packed.family.name).strip("-") if options.name is None else options.name
    license = "other" if options.license is None else options.license
    repository = Repository(packed, name, int(version), license, options.repo_id)
    files = {Path(path): text.encode() for path, text in repository.files()}
    if not write_folder(options.out, files):
        print(f"{options.out}: same")
        return 0
    layers = ", ".join(layer.name for layer in repository.layers) or "none"
    print(f"{options.out}: {counted(len(files), 'file')}; layers: {layers}")
    return 0
