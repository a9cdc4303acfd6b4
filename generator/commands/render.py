"""`python -m generator SPEC...`: the options of rendering.

`command_line` imports what renders after they are parsed: the help is printed wherever the package lies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import generator
from generator.commands import COMMANDS
from generator.commands.argument_types import Parser
from generator.language.vocabulary import ADDITIONS, PACKAGE


def parser() -> argparse.ArgumentParser:
    """The parser of the command; its help names the other commands."""
    cli = Parser(
        "",
        "Render standalone Triton GEMM kernels from YAML specs.",
        epilog=f"Commands, each with --help: {', '.join(COMMANDS)}; write ./verify for a spec file of that name.",
    )
    cli.option("specs SPEC", "a spec file; each makes one family", nargs="*")
    cli.option("--all", "every spec in specs/")
    cli.option("--out DIR", "where families go (default: generated)", default=Path("generated"))
    cli.option("--only GLOB", "only kernels whose name matches")
    cli.add_argument("--package", choices=PACKAGE, help="how much host code comes along, whatever the specs say")
    cli.option(
        "--with WORD,…",
        f"what families bring beside their functions, beyond what the specs say: {', '.join(ADDITIONS)}",
        type=lambda text: tuple(text.split(",")),
        default=(),
        dest="additions",
    )
    cli.option("--force", "overwrite files edited by hand")
    cli.option("--stage", "add what was rendered to git's index")
    cli.option("--json", "with --list: as JSON")
    cli.add_argument("--version", action="version", version=f"%(prog)s {generator.__version__}")
    mode = cli.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="print which files would change; write nothing")
    mode.add_argument("--diff", action="store_true", help="print what would change as a unified diff; write nothing")
    mode.add_argument("--list", action="store_true", help="print the variants and what was left out; write nothing")
    return cli
