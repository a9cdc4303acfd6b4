"""`python -m generator package FAMILY...`: rendered families as a Hub repository, as a wheel, or as C with cubins."""

from __future__ import annotations

import argparse

from generator.commands.argument_types import Parser, add_device, add_shapes
from generator.commands.command_line import imported
from generator.emit.package import package, require_options


def main(argv: list[str]) -> int:
    """Write the package and return 0; raises `CallError` for a wrong call, `Refused` for files in the way."""
    options = parser().parse_args(argv)
    require_options(options)
    if options.format != "cubin":
        return package(options)
    # It compiles, which needs torch and Triton; the other formats need neither.
    return int(imported("generator.commands.package_cubin", "package --format cubin").run(options))


def parser() -> argparse.ArgumentParser:
    cli = Parser(
        "package",
        "Make a kernel repository of the Hugging Face Hub, or a wheel, of rendered families; "
        "or C files with the kernels of one, for programs without Python.",
    )
    cli.option("families FAMILY", "the folder of a rendered family", nargs="+")
    cli.add_argument("--format", required=True, choices=("kernels", "wheel", "cubin"), help="what is made")
    cli.option("--out DIR", "where it goes; nothing is overwritten", required=True)
    cli.add_argument("--name", help="its name (default: from the first family's)")
    cli.add_argument("--version", help="its version; for the Hub a whole number (default: 1)")
    cli.add_argument("--license", help="the licence's identifier (default for the Hub: other)")
    cli.option("--repo-id OWNER/NAME", "the Hub repository, for the card and build.toml")
    cubin = cli.add_argument_group("of --format cubin")
    add_device(cubin, "for which GPU")
    add_shapes(cubin)
    cubin.add_argument("--only", metavar="GLOB", help="only functions whose name matches")
    cubin.add_argument("--batch", metavar="B", help="the matrices of a batch, or the groups (default: 1)")
    return cli
