"""`python -m generator package FAMILY...`: rendered families as a Hub repository or as a wheel."""

from __future__ import annotations

import argparse
from pathlib import Path

from generator.emit.package import PackagingOptions, package
from generator.files.program import program


def main(argv: list[str]) -> int:
    """Write the package and return 0; raises `CallError` for a wrong call, `Refused` for files in the way."""
    return package(parser().parse_args(argv, namespace=PackagingOptions()))


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog=f"{program()} package",
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
