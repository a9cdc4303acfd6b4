"""`python -m generator new NAME`: write a spec with a comment for each key, and the schema for editors beside it."""

from __future__ import annotations

import argparse

from generator.commands.argument_types import Parser
from generator.emit.scaffold import GIVEN, create
from generator.language.keys import KEYS


def main(argv: list[str]) -> int:
    """Write the spec and return 0; raises `CallError` for a wrong command line, `Refused` for a file in the way."""
    options = parser().parse_args(argv)
    create(options.name, {key: getattr(options, key) for key in GIVEN}, options.summary)
    return 0


def parser() -> argparse.ArgumentParser:
    cli = Parser(
        "new",
        "Write NAME.yaml, a spec with a comment for each key, and the schema for editors beside it.",
        epilog="Nothing is overwritten. A value is written as in a spec: --layout '[rcr, rrr]' gives two layouts. "
        "MODULE:FUNCTION in an epilogue is the operation that this Python function computes.",
    )
    cli.option("name NAME", "the family's name, or the path of the spec")
    cli.add_argument("--summary", help="one line for the docstrings (default: from the other options)")
    for key, default in GIVEN.items():
        cli.add_argument(f"--{key}", default=default, help=f"{KEYS[key].meaning} (default: {default})")
    return cli
