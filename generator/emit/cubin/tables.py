"""The tables of a package's C file: everything that a launch needs, as rows of numbers that refer to each other."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from generator.emit.cubin.compiled_contracts import (
    CubinArgument,
    CubinContract,
    CubinEntry,
    CubinImage,
    CubinLaunch,
    CubinMemory,
    CubinOperand,
    CubinPackage,
    TensorMap,
)

#: The words of 8 bytes of an image on a line of the C file.
_WORDS = 8


@dataclass(frozen=True)
class TableRow:
    """A row of a table, and what a comment behind it says."""

    text: str
    told: str = ""


@dataclass(frozen=True)
class ImageTable:
    """An image with its bytes as C writes them."""

    image: CubinImage

    @property
    def words(self) -> str:
        """The bytes as numbers of 8 bytes, the last ones filled up with zeros."""
        data = self.image.data
        data += bytes(-len(data) % 8)
        words = [f"0x{word:x}," for (word,) in struct.iter_unpack("<Q", data)]
        return "\n".join("".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS))


@dataclass
class Tables:
    """The tables of a package."""

    package: CubinPackage
    numbers: dict[str, int] = field(default_factory=dict)
    maps: list[str] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    entries: list[TableRow] = field(default_factory=list)
    operands: list[list[TableRow]] = field(default_factory=list)
    runs: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for contract in self.package.contracts:
            self.operands.append([self._operand(x) for x in contract.operands])
            at = {id(each): len(self.entries) + index for index, each in enumerate(contract.entries)}
            for entry in contract.entries:
                self._add(contract, entry)
            self.runs.append(
                [
                    f"{run.n}, {run.k}, {run.first}, {run.last}, "
                    f"{{{', '.join(str(-1 if x is None else at[id(x)]) for x in run.entries)}}}"
                    for run in contract.runs
                ]
            )

    @cached_property
    def most(self) -> dict[str, int]:
        """The largest numbers of values of a call, of arguments and of tensor maps of a launch."""
        launches = [x for each in self.package.contracts for entry in each.entries for x in entry.launches]
        values = [
            len(each.operands) + max(len(entry.memory) for entry in each.entries) for each in self.package.contracts
        ]
        maps = [sum(x.map is not None for x in launch.arguments) for launch in launches]
        # Triton adds two.
        counts = [2 + sum(1 + 2 * len(x.map.box) if x.map else 1 for x in each.arguments) for each in launches]
        return {"values": max(values), "arguments": max(counts), "maps": max(1, *maps)}

    @cached_property
    def _images(self) -> dict[CubinImage, int]:
        return {image: index for index, image in enumerate(self.package.images)}

    def _number(self, text: str) -> int:
        """The index of an expression, which is written once."""
        return self.numbers.setdefault(text, len(self.numbers))

    def _numbers(self, texts: Sequence[str], otherwise: str) -> str:
        """The indices of up to three expressions."""
        return _listed(self._number(text) for text in (*texts, *[otherwise] * (3 - len(texts))))

    def _operand(self, x: CubinOperand) -> TableRow:
        unit = -1 if x.unit is None else x.unit
        head = f"{len(x.extents)}, {unit}, {x.bytes}, {int(x.written)}, {int(x.loose)}"
        return TableRow(f"{head}, {self._numbers(x.extents, '1')}", x.name)

    def _add(self, contract: CubinContract, entry: CubinEntry) -> None:
        names = [x.name for x in contract.operands]
        places = {name: index for index, name in enumerate([*names, *(x.name for x in entry.memory)])}
        first, memory = len(self.launches), len(self.memories)
        self.memories += map(self._memory, entry.memory)
        for each in entry.launches:
            self._add_launch(each, places)
        narrow, cleared = (sum(1 << names.index(x) for x in found) for found in (entry.narrow, entry.cleared))
        text = f"{first}, {len(entry.launches)}, {memory}, {len(entry.memory)}, {narrow:#x}, {cleared:#x}"
        self.entries.append(TableRow(text, f"{entry.kernel}, {entry.row}"))

    def _memory(self, x: CubinMemory) -> str:
        head = f"{len(x.extents)}, {x.bytes}, {int(x.cleared)}"
        return f"{head}, {self._numbers(x.extents, '1')}, {self._numbers(x.strides, '1')}"

    def _add_launch(self, launch: CubinLaunch, places: dict[str, int]) -> None:
        first = len(self.arguments)
        self.arguments += [self._argument(x, places) for x in launch.arguments]
        grid = self._numbers(launch.grid, "1")
        self.launches.append(f"{self._images[launch.image]}, {grid}, {first}, {len(launch.arguments)}")

    def _argument(self, x: CubinArgument, places: dict[str, int]) -> str:
        which = self._number(x.number) if x.kind == "NUMBER" else places[x.operand]
        described = 0 if x.map is None else self._map(x.map)
        return f"{x.kind}, {x.bytes}, {int(x.divisible)}, {int(x.one)}, {which}, {x.dimension}, {described}"

    def _map(self, x: TensorMap) -> int:
        numbers = (int(x.turned), len(x.box), x.swizzle, x.bytes, x.type, int(x.padded), int(x.nan))
        text = f"{', '.join(map(str, numbers))}, {_listed([*x.box, *[0] * (3 - len(x.box))])}"
        if text not in self.maps:
            self.maps.append(text)
        return self.maps.index(text)


def _listed(numbers: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
