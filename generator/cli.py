"""The command line: `python -m generator SPEC...` renders; COMMANDS are subcommands.

What a command needs is imported when it runs, so that a package that is missing is reported like any other mistake.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import generator
from generator.emit.apply import Refused
from generator.files import standard_streams
from generator.files.package_data import NotInstalled
from generator.files.reading import FileError
from generator.language.errors import CallError, SpecError

#: Subcommand -> the module whose `main` runs it. The first four need torch and triton.
COMMANDS = {
    "verify": "generator.verify.cli",
    "prepare": "generator.verify.ahead_of_time",
    "bench": "generator.bench.cli",
    "tune": "generator.tune.cli",
    "schema": "generator.language.schema",
    "new": "generator.emit.scaffold",
    "explain": "generator.tune.explain",
    "package": "generator.emit.package",
}
_RENDER = "generator.emit.cli"

#: What every command needs; the rest of what is imported belongs to extras.
_REQUIRED = frozenset({"fastjsonschema", "jinja2", "packaging", "tqdm", "yaml"})
#: torch cannot be imported in a folder that was removed.
_WITH_TORCH = frozenset({"verify", "prepare", "bench", "tune", "explain"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0: done. 1: a check failed, a file is in the way, or a file or the standard output cannot be read or written. 2: a
    spec or the command line is wrong. 130: interrupted.

    A command goes on if its output is closed or has no reader any more, and has the status that it would have anyway.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with standard_streams.replaced() as streams:
        try:
            status = _status(arguments)
        except SystemExit as ended:
            # The help, the version, or a wrong command line.
            if ended.code or streams.lost() is None:
                raise
            status = 0
        reason = streams.lost()
        if reason is not None:
            print(f"standard output: cannot be written: {reason}", file=sys.stderr)
        return status if reason is None else status or 1


def _status(arguments: list[str]) -> int:
    try:
        missing = next((name for name in sorted(_REQUIRED) if importlib.util.find_spec(name) is None), None)
        if missing is not None:
            raise CallError(f"{missing} is not installed; install it with: pip install gemm-generator")
        named = bool(arguments) and arguments[0] in COMMANDS
        return _command(arguments[0])(arguments[1:]) if named else _render(arguments)
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    except (CallError, NotInstalled) as error:
        print(f"python -m generator: {error}", file=sys.stderr)
        return 2
    except (Refused, FileError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _command(name: str) -> Callable[[list[str]], int]:
    if name in _WITH_TORCH:
        try:
            os.getcwd()
        except OSError:
            raise CallError(f"{name}: the current folder does not exist any more; change to one that does") from None
    found: Callable[[list[str]], int] = _imported(COMMANDS[name], name).main
    return found


def _imported(module: str, command: str) -> Any:
    """A module of the package; raises `CallError` if it needs a package that is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("generator"):
            raise
        raise CallError(f"{command} needs {error.name}; install the extra: pip install 'gemm-generator[gpu]'") from None


def _render(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    status: int = _imported(_RENDER, "rendering").run(options)
    return status


def parser() -> argparse.ArgumentParser:
    """The parser of the rendering command."""
    made = argparse.ArgumentParser(
        prog="python -m generator",
        description="Render standalone Triton GEMM kernels from YAML specs.",
        epilog=f"Commands, each with --help: {', '.join(COMMANDS)}; write ./verify for a spec file of that name.",
        allow_abbrev=False,
    )
    made.add_argument("specs", nargs="*", type=Path, metavar="SPEC", help="a spec file; each makes one family")
    made.add_argument("--all", action="store_true", help="every spec in specs/")
    made.add_argument(
        "--out", type=Path, default=Path("generated"), metavar="DIR", help="where families go (default: generated)"
    )
    made.add_argument("--only", metavar="GLOB", help="only kernels whose name matches")
    made.add_argument("--force", action="store_true", help="overwrite files edited by hand")
    made.add_argument("--stage", action="store_true", help="add what was rendered to git's index")
    made.add_argument("--json", action="store_true", help="with --list: as JSON")
    made.add_argument("--version", action="version", version=f"%(prog)s {generator.__version__}")
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="print which files would change; write nothing")
    mode.add_argument("--diff", action="store_true", help="print what would change as a unified diff; write nothing")
    mode.add_argument("--list", action="store_true", help="print the variants and what was left out; write nothing")
    return made
