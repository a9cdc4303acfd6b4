"""`python -m generator package FAMILY...`: rendered families as a Hub repository or as a wheel."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.emit import manifest_reader
from generator.emit.apply import Refused, digest, read_manifest
from generator.emit.hub.repository import Repository
from generator.emit.job import counted
from generator.emit.manifest_reader import Rendered
from generator.emit.wheel import wheel
from generator.files.same_file import distinct
from generator.language.errors import CallError


def main(argv: list[str]) -> int:
    """Write the package and return 0; raises `CallError` for a wrong call, `Refused` for files in the way."""
    options = parser().parse_args(argv)
    families = [manifest_reader.read(folder) for folder in distinct(options.families)]
    for family in families:
        _unchanged(family)
    if options.format == "wheel":
        if options.repo_id is not None:
            raise CallError("package: --repo-id goes with --format kernels")
        return _wheel(families, options)
    if len(families) > 1:
        raise CallError(f"package: --format kernels takes one family, found {len(families)}")
    return _repository(families[0], options)


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


def _unchanged(family: Rendered) -> None:
    """Raise `Refused` unless every file of the family is as it was rendered."""
    recorded = (read_manifest(family.folder) or {})["files"]
    for name, expected in recorded.items():
        path = family.folder / name
        if not path.is_file():
            raise Refused(f"{path}: is missing; render the family again")
        if digest(path.read_text(encoding="utf-8", errors="surrogateescape")) != expected:
            raise Refused(f"{path}: edited by hand; render the family again, or package it by hand")


def _wheel(families: Sequence[Rendered], options: argparse.Namespace) -> int:
    names = [family.name for family in families]
    if len(set(names)) < len(names):
        raise CallError(f"package: two families have one name: {', '.join(names)}")
    name, data = wheel(families, options.name or f"{names[0]}_kernels", options.version, options.license)
    path: Path = options.out / name
    if path.exists():
        if path.is_dir() or path.read_bytes() != data:
            raise Refused(f"{path}: is there already, and nothing is overwritten; choose another folder or --version")
        print(f"{path}: same")
        return 0
    _create(options.out, {Path(name): data})
    print(f"{path}: {counted(len(families), 'family', 'families')}; install it with: pip install {path}")
    return 0


def _repository(family: Rendered, options: argparse.Namespace) -> int:
    if not options.version.isascii() or not options.version.isdecimal():
        raise CallError(f"package: --version: the Hub takes a whole number, found {options.version!r}")
    # A double underscore would separate the parts of a namespace of operators.
    name = options.name or re.sub(r"_+", "-", family.name).strip("-")
    made = Repository(family, name, int(options.version), options.license or "other", options.repo_id)
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise Refused(f"{options.out}: is not empty, and nothing is overwritten; choose another folder")
    files = {Path(path): text.encode() for path, text in made.files()}
    _create(options.out, files)
    layers = ", ".join(layer.name for layer in made.layers) or "none"
    print(f"{options.out}: {counted(len(files), 'file')}; layers: {layers}")
    return 0


def _create(out: Path, files: Mapping[Path, bytes]) -> None:
    """Write files that are not there yet into the folder `out`: all, or none where one cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out, prefix=".") as folder:
            for path, data in files.items():
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_bytes(data)
            for name in dict.fromkeys(path.parts[0] for path in files):
                os.rename(Path(folder, name), out / name)
    except OSError as error:
        raise Refused(f"{out}: cannot be written: {error.strerror}") from None
