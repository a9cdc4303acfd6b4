"""The exit status of a command that reports its own errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from generator.files.reading import FileError
from generator.language.errors import CallError, SpecError

_Options = TypeVar("_Options")


def status_of(answer: Callable[[_Options], int], options: _Options, command: str) -> int:
    """What `answer` returns for the options; 2 for a wrong spec or call, 1 for a file that cannot be read.

    An error is printed, that of a call behind the name of the command.
    """
    try:
        return answer(options)
    except SpecError as error:
        print(error, file=sys.stderr)
    except CallError as error:
        print(f"{command}: {error}", file=sys.stderr)
    except FileError as error:
        print(error, file=sys.stderr)
        return 1
    return 2
