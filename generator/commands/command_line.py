"""The command line: `python -m generator SPEC...` renders; COMMANDS are subcommands.

What a command needs is imported when it runs, so that a package that is missing is reported like any other mistake.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from generator.commands import COMMANDS, render
from generator.emit.advice import SPECS
from generator.emit.apply import Refused
from generator.files import standard_streams
from generator.files.package_data import NotInstalled
from generator.files.program import program
from generator.files.reading import FileError
from generator.language.errors import CallError, SpecError, lacks, nearest

_Options = TypeVar("_Options")
#: What every command needs; the rest of what is imported belongs to extras.
_REQUIRED = frozenset({"fastjsonschema", "filelock", "jinja2", "packaging", "tqdm", "yaml"})
#: torch cannot be imported in a folder that was removed.
_WITH_TORCH = frozenset({"verify", "prepare", "bench", "tune", "explain"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0: done. 1: a check failed, a file is in the way, or a file or the standard output cannot be read or written. 2: a
    spec or the command line is wrong. 130: interrupted.

    A command goes on if its output is closed or has no reader any more, and has the status that it would have anyway.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with standard_streams.Streams() as streams:
        try:
            status = status_of(_run, arguments, program())
        except SystemExit as ended:
            # The help, the version, or a wrong command line.
            if ended.code or streams.lost() is None:
                raise
            status = 0
        reason = streams.lost()
        if reason is not None:
            print(f"standard output: cannot be written: {reason}", file=sys.stderr)
        return status if reason is None else status or 1


def status_of(work: Callable[[_Options], int], options: _Options, command: str) -> int:
    """What `work` returns for the options, or the status of an error, as `main` has them.

    The error is printed, that of a call behind the name of the command.
    """
    try:
        return work(options)
    except KeyboardInterrupt:
        message, status = "interrupted", 130
    except OSError as error:
        message, status = f"{error.filename or 'a file'}: {error.strerror or error}", 1
    except (Refused, FileError) as error:
        message, status = str(error), 1
    except SpecError as error:
        message, status = str(error), 2
    except (CallError, NotInstalled) as error:
        message, status = f"{command if isinstance(error, CallError) else program()}: {error}", 2
    print(message, file=sys.stderr)
    return status


def _run(arguments: list[str]) -> int:
    if missing := next((name for name in sorted(_REQUIRED) if importlib.util.find_spec(name) is None), None):
        raise CallError(f"{missing} is not installed; install it with: pip install . in a checkout of the generator")
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        return _render(arguments)
    if name in _WITH_TORCH:
        try:
            os.getcwd()
        except OSError:
            raise CallError(f"{name}: the current folder does not exist any more; change to one that does") from None
    return int(imported(f"generator.commands.{name}", name).main(arguments[1:]))


def imported(module: str, command: str) -> Any:
    """A module of the package; raises `CallError` if it needs a package that is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("generator"):
            raise
        raise lacks(command, error.name, "gpu") from None


def _render(arguments: list[str]) -> int:
    """Render; raises `CallError` if the first word can only be meant as a command, and is none."""
    word = arguments[0] if arguments else ""
    if re.fullmatch(r"[A-Za-z_]+", word) and not os.path.lexists(word) and not (SPECS / f"{word}.yaml").is_file():
        legal = f"{nearest(word, COMMANDS)}; a spec is rendered without a command: {program()} SPEC.yaml"
        raise CallError(f"there is no command and no file {word!r}; {legal}")
    options = render.parser().parse_args(arguments)
    return int(imported("generator.emit.rendering_report", "rendering").run(options))
