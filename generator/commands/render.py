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
    own_parser = Parser(
        "",
        "Render standalone Triton GEMM kernels from YAML specs.",
        epilog=f"Commands, each with --help: {', '.join(COMMANDS)}; write ./verify for a spec file of that name.",
    )
    own_parser.option("specs SPEC", "a spec file; each makes one family", nargs="*")
    own_parser.option("--all", "every spec in specs/")
    own_parser.option("--out DIR", "where families go (default: generated)", default=Path("generated"))
    own_parser.option("--only GLOB", "only kernels whose name matches")
    own_parser.add_argument("--package", choices=PACKAGE, help="how much host code comes along, whatever the specs say")
    own_parser.option(
        "--with WORD,…",
        f"what families bring beside their functions, beyond what the specs say: {', '.join(ADDITIONS)}",
        type=lambda text: tuple(text.split(",")),
        default=(),
        dest="additions",
    )
    own_parser.option("--force", "overwrite files edited by hand")
    own_parser.option("--stage", "add what was rendered to git's index")
    own_parser.option("--json", "with --list: as JSON")
    own_parser.add_argument("--version", action="version", version=f"%(prog)s {generator.__version__}")
    mode = own_parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="print which files would change; write nothing")
    mode.add_argument("--diff", action="store_true", help="print what would change as a unified diff; write nothing")
    mode.add_argument("--list", action="store_true", help="print the variants and what was left out; write nothing")
    return own_parser
