"""The parser of a command, and types of its arguments, which raise argparse.ArgumentTypeError for a wrong value."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from generator.files.program import program
from generator.language.call_numbers import MOST_PROCESSES, number_above_0, whole_number
from generator.language.errors import nearest
from generator.plan.devices import DEVICES, of_gpu

_Read = TypeVar("_Read")
#: The most rounds of a comparison, and candidates of a trial.
_MOST = 1_000_000


def folder(text: str) -> Path:
    """The path of a folder; an empty text, as of a variable that is not set, would be the current one."""
    if not text:
        raise argparse.ArgumentTypeError("expected the path of a folder, got an empty text")
    return Path(text)


def reported(read: Callable[[str], _Read]) -> Callable[[str], _Read]:
    """`read`, with its ValueError raised as the error that argparse reports."""

    def converted(text: str) -> _Read:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def _whole(least: int, most: int) -> Callable[[str], int]:
    return reported(lambda text: whole_number(text, least, most))


#: A number of processes that may be 0; one of processes or GPUs; any of at least 1; and a number above 0.
workers, several = _whole(0, MOST_PROCESSES), _whole(1, MOST_PROCESSES)
positive, above_0 = _whole(1, _MOST), reported(number_above_0)

#: The types of values by the word that stands for them in the help, where it is not str.
_TYPES = {
    "DIR": folder,
    **dict.fromkeys(("FILE", "SPEC", "SPEC|KERNEL", "FAMILY", "FOLDER"), Path),
    **dict.fromkeys(("S", "SECONDS", "RATIO"), above_0),
}


class Parser(argparse.ArgumentParser):
    """The parser of a command; its errors say which option may be meant, and what a missing argument is."""

    def __init__(self, command: str, description: str, *, epilog: str | None = None, allow_abbrev: bool = False):
        prog = f"{program()} {command}".rstrip()
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=allow_abbrev)

    def option(self, usage: str, help: str, **how: Any) -> None:
        """Add what `usage` spells: the flag `--fresh`, `--json FILE`, whose word says its type, or `specs SPEC`."""
        name, *values = usage.split(" ")
        if not values:
            self.add_argument(name, action="store_true", help=help)
        else:
            metavar = values[0] if len(values) == 1 else tuple(values)
            self.add_argument(name, metavar=metavar, help=help, **{"type": _TYPES.get(values[0]), **how})

    def error(self, message: str) -> NoReturn:
        kind, _, rest = message.partition(": ")
        if kind == "unrecognized arguments":
            wrong = next((word.partition("=")[0] for word in rest.split() if word.startswith("-")), None)
            hint = "" if wrong is None else nearest(wrong, self._option_string_actions).partition("legal: ")[0].strip()
            message += f"; {hint}" if hint else ""
        elif kind == "the following arguments are required":
            helps = {"/".join(each.option_strings) or str(each.metavar): each.help for each in self._actions}
            message = f"{kind}: {', '.join(f'{name} ({helps.get(name)})' for name in rest.split(', '))}"
        super().error(message)


def add_device(
    parser: argparse._ActionsContainer, purpose: str, *, default: str | None = None, required: bool = False
) -> None:
    """Add `--device DEVICE` and, in its place, `--gpu GPU`, both of which give the name of a device's folder.

    `--gpu` raises `CallError` for a GPU that is not known.
    """
    either = parser.add_mutually_exclusive_group(required=required)
    either.add_argument("--device", default=default, metavar="DEVICE", help=f"{purpose}: {', '.join(DEVICES)}")
    either.add_argument(
        "--gpu",
        dest="device",
        type=lambda word: of_gpu(word).slug,
        # Without a default of its own it leaves that of --device.
        default=argparse.SUPPRESS,
        metavar="GPU",
        help="the same by the GPU's usual name, such as h100",
    )


def add_shapes(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    """Add `--shapes`, which `generator.commands.prepare.shapes_of` reads."""
    parser.add_argument(
        "--shapes",
        required=required,
        nargs="+",
        metavar="NxK,M...",
        help="N, K and the M of calls, as in 4096x14336,1-64,128 or M=1:8192:*2,N=4096,K=14336; or a file with one of "
        "these a line",
    )
