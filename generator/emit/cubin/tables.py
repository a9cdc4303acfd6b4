"""The tables of a package's C file: rows as C initialises them, each once, of the types that `launcher.c` describes.

Numbers that depend on a call are C expressions over `s->m`, `s->n`, `s->k` and `s->count`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from generator.plan.extents import OPERATIONS, Amount

_CALLS = {"cdiv": "parts", "least": "least", "next_power": "power"}


def expression(number: Amount | int, known: Mapping[str, int | str]) -> str:
    """A number of a call as a C expression; `known` has what each name in it is, a number or another expression."""
    if isinstance(number, int):
        return str(number)
    if not number.sides:
        return str(known[number.symbol])
    left, right = (expression(side, known) for side in number.sides)
    if left.isdecimal() and right.isdecimal():
        return str(OPERATIONS[number.symbol](int(left), int(right)))
    if number.symbol in _CALLS:
        return f"{_CALLS[number.symbol]}({left}, {right})"
    return f"({left} {'/' if number.symbol == '//' else number.symbol} {right})"


@dataclass(frozen=True)
class CubinImage:
    """A compiled kernel: its function's name, its machine code, and the shared memory and warps of a program."""

    name: str
    data: bytes
    shared: int
    warps: int


@dataclass(frozen=True)
class Tables:
    """The rows of each type, and the images and expressions that rows refer to, each with its index."""

    rows: dict[str, list[str]] = field(
        default_factory=lambda: {kind: [] for kind in ("map", "argument", "memory", "launch", "entry")}
    )
    images: dict[CubinImage, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    #: The most values of a call, launches of an entry, and arguments and tensor maps of a launch.
    most: dict[str, int] = field(default_factory=lambda: {"VALUES": 0, "LAUNCHES": 1, "ARGUMENTS": 0, "MAPS": 1})
    _addresses: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)

    def image(self, image: CubinImage) -> int:
        """The index of an image."""
        return self.images.setdefault(image, len(self.images))

    def number(self, text: str) -> int:
        """The index of an expression."""
        return self.numbers.setdefault(text, len(self.numbers))

    def three(self, texts: Sequence[str]) -> list[int]:
        """The indices of three expressions; those that are missing are 1."""
        return [self.number(text) for text in (*texts, *["1"] * (3 - len(texts)))]

    def address(self, kind: str, *rows: str) -> str:
        """The address of the first of rows that follow each other."""
        if not rows:
            return "NULL"
        if (kind, rows) not in self._addresses:
            self._addresses[kind, rows] = f"&{kind}_table[{len(self.rows[kind])}]"
            self.rows[kind] += rows
        return self._addresses[kind, rows]

    def count(self, **numbers: int) -> None:
        """Make room for so many."""
        for name, number in numbers.items():
            self.most[name] = max(number, self.most[name])


def row(*values: int | str | Sequence[int | str]) -> str:
    """A row as C initialises it."""
    texts = (row(*x) if isinstance(x, list) else str(int(x) if isinstance(x, bool) else x) for x in values)
    return f"{{{', '.join(texts)}}}"
