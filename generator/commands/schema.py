"""`python -m generator schema`: print the JSON Schema of the spec language."""

from __future__ import annotations

import argparse

from generator.commands.argument_types import Parser
from generator.language import schema


def parser() -> argparse.ArgumentParser:
    return Parser(
        "schema",
        "Print a JSON Schema of the spec language, for editors that run yaml-language-server.",
        epilog=f"A spec names the schema beside it in a comment: {schema.MODELINE}",
    )


def main(argv: list[str]) -> int:
    """Print the schema."""
    parser().parse_args(argv)
    print(schema.text(), end="")
    return 0
