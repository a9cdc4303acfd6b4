"""`python -m generator package FAMILY...`: rendered families as a Hub repository or as a wheel."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from generator.emit import manifest_reader
from generator.emit.apply import Refused
from generator.emit.hub.repository import Repository
from generator.emit.job import counted
from generator.emit.new_folder import make_folder, remove_leftovers, write_folder
from generator.emit.packed_family import Packed, packed_files
from generator.emit.wheel import wheel
from generator.files.locking import alone
from generator.files.reading import FileError, read_bytes
from generator.files.same_file import distinct
from generator.files.writing import write
from generator.language.errors import CallError, shown

#: The Hub's number of a version, which is part of the name of a branch.
_MAJOR = re.compile(r"0|[1-9][0-9]{0,8}")


def main(argv: list[str]) -> int:
    """Write the package and return 0; raises `CallError` for a wrong call, `Refused` for files in the way."""
    options = parser().parse_args(argv)
    try:
        return _package(options)
    except FileError as error:
        raise Refused(str(error)) from None


def _package(options: argparse.Namespace) -> int:
    out: Path = options.out
    if out.is_file() or (out.is_symlink() and not out.exists()):
        what = "a link that leads nowhere" if out.is_symlink() and not out.exists() else "a file"
        raise Refused(f"{out}: is {what}, and the package's folder must be there; name another folder")
    families = [manifest_reader.read(folder) for folder in distinct(options.families)]
    packed = [packed_files(family) for family in families]
    if options.format == "wheel":
        if options.repo_id is not None:
            raise CallError("package: --repo-id goes with --format kernels")
        return _wheel(packed, options)
    if len(families) > 1:
        raise CallError(f"package: --format kernels takes one family, found {len(families)}")
    return _repository(packed[0], options)


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog="python -m generator package",
        description="Make a kernel repository of the Hugging Face Hub, or a wheel, of rendered families.",
        allow_abbrev=False,
    )
    made.add_argument("families", nargs="+", type=Path, metavar="FAMILY", help="the folder of a rendered family")
    made.add_argument("--format", required=True, choices=("kernels", "wheel"), help="what is made")
    made.add_argument("--out", required=True, type=Path, metavar="DIR", help="where it goes; nothing is overwritten")
    made.add_argument("--name", help="its name (default: from the first family's)")
    made.add_argument("--version", default="1", help="its version; for the Hub a whole number (default: 1)")
    made.add_argument("--license", help="the licence's identifier (default for the Hub: other)")
    made.add_argument("--repo-id", metavar="OWNER/NAME", help="the Hub repository, for the card and build.toml")
    return made


def _wheel(families: Sequence[Packed], options: argparse.Namespace) -> int:
    names = [each.family.name for each in families]
    if len(set(names)) < len(names):
        raise CallError(f"package: two families have one name: {', '.join(names)}")
    name = f"{names[0]}_kernels" if options.name is None else options.name
    file, data = wheel(families, name, options.version, options.license)
    path: Path = options.out / file
    make_folder(options.out)
    with alone(options.out):
        remove_leftovers(options.out, file)
        try:
            before = read_bytes(path)
        except FileNotFoundError:
            write(path, data)
            install = f"pip install {shlex.quote(str(path))}"
            print(f"{path}: {counted(len(families), 'family', 'families')}; install it with: {install}")
            return 0
        except FileError:
            before = b""
        if before != data:
            raise Refused(f"{path}: is there already, and nothing is overwritten; choose another folder or --version")
    print(f"{path}: same")
    return 0


def _repository(packed: Packed, options: argparse.Namespace) -> int:
    if not _MAJOR.fullmatch(options.version):
        raise CallError(f"package: --version: the Hub takes a whole number, found {shown(options.version)}")
    # A double underscore would separate the parts of a namespace of operators.
    name = re.sub(r"_+", "-", packed.family.name).strip("-") if options.name is None else options.name
    license = "other" if options.license is None else options.license
    made = Repository(packed, name, int(options.version), license, options.repo_id)
    files = {Path(path): text.encode() for path, text in made.files()}
    if not write_folder(options.out, files):
        print(f"{options.out}: same")
        return 0
    layers = ", ".join(layer.name for layer in made.layers) or "none"
    print(f"{options.out}: {counted(len(files), 'file')}; layers: {layers}")
    return 0
