"""The tables of a package's C file: everything that a launch needs, as rows of numbers that refer to each other."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from generator.emit.cubin.compiled_contracts import (
    CubinArgument,
    CubinContract,
    CubinEntry,
    CubinImage,
    CubinOperand,
    CubinPackage,
)

#: The words of 8 bytes of an image on a line of the C file.
_WORDS = 8


class Tables:
    """The tables of a package, each a list of rows as C writes them; those of operands and runs are by contract."""

    def __init__(self, package: CubinPackage) -> None:
        self.images = {image: index for index, image in enumerate(package.images)}
        self.numbers: dict[str, int] = {}
        self.maps: dict[str, int] = {}
        self.memories: list[str] = []
        self.arguments: list[str] = []
        self.launches: list[str] = []
        #: Each with its words for a comment.
        self.entries: list[tuple[str, str]] = []
        self.operands: list[list[str]] = []
        self.runs: list[list[str]] = []
        #: The most values of a call, and arguments and tensor maps of a launch; Triton adds two arguments.
        self.most = {"values": 0, "arguments": 0, "maps": 1}
        for contract in package.contracts:
            self.operands.append([self._operand(x) for x in contract.operands])
            at: dict[int | None, int] = {id(None): -1}
            for entry in contract.entries:
                at[id(entry)] = len(self.entries)
                self._add(contract, entry)
            self.runs.append([_row(x.n, x.k, x.first, x.last, [at[id(y)] for y in x.entries]) for x in contract.runs])

    def words(self, image: CubinImage) -> str:
        """The bytes of an image as numbers of 8 bytes, as C writes them, the last ones filled up with zeros."""
        found = [f"0x{word:x}," for (word,) in struct.iter_unpack("<Q", image.data + bytes(-len(image.data) % 8))]
        return "\n".join("".join(found[at : at + _WORDS]) for at in range(0, len(found), _WORDS))

    def _numbers(self, texts: Sequence[str]) -> list[int]:
        """The indices of three expressions, each written once; those that are missing are 1."""
        return [self.numbers.setdefault(text, len(self.numbers)) for text in (*texts, *["1"] * (3 - len(texts)))]

    def _operand(self, x: CubinOperand) -> str:
        unit = -1 if x.unit is None else x.unit
        return _row(len(x.extents), unit, x.bytes, x.written, x.loose, self._numbers(x.extents))

    def _add(self, contract: CubinContract, entry: CubinEntry) -> None:
        names = [x.name for x in contract.operands]
        places = {name: index for index, name in enumerate([*names, *(x.name for x in entry.memory)])}
        first, memory = len(self.launches), len(self.memories)
        for x in entry.memory:
            extents, strides = self._numbers(x.extents), self._numbers(x.strides)
            self.memories.append(_row(len(x.extents), x.bytes, x.cleared, extents, strides))
        self._count(values=len(places))
        for launch in entry.launches:
            own, arguments = len(self.arguments), launch.arguments
            self.arguments += [self._argument(x, places) for x in arguments]
            self.launches.append(_row(self.images[launch.image], self._numbers(launch.grid), own, len(arguments)))
            boxes = [x.map.box for x in arguments if x.map]
            self._count(arguments=2 + len(arguments) + sum(2 * len(box) for box in boxes), maps=len(boxes))
        narrow, cleared = (hex(sum(1 << names.index(x) for x in found)) for found in (entry.narrow, entry.cleared))
        row = _row(first, len(entry.launches), memory, len(entry.memory), narrow, cleared)
        self.entries.append((row, f"{entry.kernel}, {entry.row}"))

    def _count(self, **numbers: int) -> None:
        self.most |= {name: max(number, self.most[name]) for name, number in numbers.items()}

    def _argument(self, x: CubinArgument, places: dict[str, int]) -> str:
        which = self.numbers.setdefault(x.number, len(self.numbers)) if x.kind == "NUMBER" else places[x.operand]
        described = 0
        if x.map is not None:
            y, box = x.map, [*x.map.box, *[0] * (3 - len(x.map.box))]
            row = _row(y.turned, len(y.box), y.swizzle, y.bytes, y.type, y.padded, y.nan, box)
            described = self.maps.setdefault(row, len(self.maps))
        return _row(x.kind, x.bytes, x.divisible, x.one, which, x.dimension, described)


def _row(*values: int | str | Sequence[int]) -> str:
    """A row as C initialises it."""
    texts = (_row(*x) if isinstance(x, list) else str(int(x) if isinstance(x, bool) else x) for x in values)
    return f"{{{', '.join(texts)}}}"
