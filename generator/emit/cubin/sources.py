"""The files of a package of cubins.

    NAME.h, NAME.c             what a program includes and compiles: `launcher.c`, its tables, and the cubins as arrays
    NAME.py                    the same by ctypes, of a shared library that NAME.c was compiled to
    example.c                  one contract, compared with known results on the GPU

The cubins are in the C file, so that a program needs one more file, or one object, and finds it without a path.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from generator.emit.cubin.contracts import (
    TAKEN,
    CubinArgument,
    CubinContract,
    CubinEntry,
    CubinPackage,
)
from generator.emit.cubin.example import example_of
from generator.emit.render import environment
from generator.files.package_data import data
from generator.language.errors import CallError, shown
from generator.language.family_names import why_no_family

#: The most bytes of all cubins together: a C file has about three characters for each.
MOST_BYTES = 32 * 2**20
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

#: What a function of the package returns, with its words, from 0 on.
STATUSES = {
    "OK": "done",
    "NO_HANDLE": "the handle is NULL: load it first",
    "NO_CALL": "the call, or the place for a result, is NULL",
    "NO_DRIVER": "libcuda.so.1 cannot be opened: install the NVIDIA driver",
    "OLD_DRIVER": "libcuda.so.1 lacks a function that is needed: install a later NVIDIA driver",
    "NO_MEMORY": "the host has no memory for the handle",
    "NO_CONTEXT": "no CUDA context is current in this thread: make one current first",
    "OTHER_CONTEXT": "the current CUDA context is not the one in which the handle was loaded",
    "OTHER_GPU": "the GPU has another compute capability than the package was made for",
    "SHARED_MEMORY": "the GPU has less shared memory for a program than a kernel needs",
    "SIZES": "the package has no kernel for these sizes; its header lists those that it has",
    "NO_ADDRESS": "an operand that has elements is NULL",
    "LEADING_DIMENSION": "a stride is negative, or the distance of two lines is less than a line",
    "OVERLAP": "a result overlaps itself: its strides are too small",
    "ALIGNMENT": "no kernel of the package takes operands with these addresses and strides",
    "SPAN": "an operand spans more elements than the kernel counts",
    "GRID": "the launch has more programs than a grid holds",
    "WORKSPACE": "the workspace is NULL, too small, or not at a multiple of 256 bytes",
}


def require_c_name(name: str) -> None:
    """Raise `CallError` for a name that files and functions of C cannot begin with."""
    if not _NAME.fullmatch(name) or name in TAKEN:
        expected = "a lower-case letter, then up to 63 of a to z, 0 to 9 and _, and no word of C or C++"
        raise CallError(f"package: --name: {shown(name)} is no name for C; expected {expected}")
    reason = why_no_family(name)
    if reason is not None:
        raise CallError(f"package: --name: {reason}")


def files(package: CubinPackage) -> Iterator[tuple[str, str]]:
    """The path and the text of each file; raises `CallError` for a name that C does not take, or too many bytes."""
    require_c_name(package.name)
    size = sum(len(image.data) for image in package.images)
    if size > MOST_BYTES:
        size_text = f"{len(package.images)} cubins have {size} bytes, and a C file may have {MOST_BYTES}"
        raise CallError(f"package --format cubin: {size_text}: give fewer --shapes, or select contracts by --only")
    example = next(filter(None, (example_of(x, package.count) for x in package.contracts)), None)
    words = {
        "package": package,
        "name": package.name,
        "upper": package.name.upper(),
        "statuses": STATUSES,
        "tables": _Tables(package),
        "launcher": data("emit", "cubin", "launcher.c").read_text(encoding="utf-8"),
        "example": example,
    }
    templates = environment(data("emit", "cubin"))
    for file in ("package.h", "package.c", "package.py", *(["example.c"] if example else [])):
        yield file.replace("package", package.name), templates.get_template(f"{file}.j2").render(words)


class _Tables:
    """The tables of a C file: the names of `rows` are the types in `launcher.c`, whose fields a row has in order."""

    def __init__(self, package: CubinPackage) -> None:
        self.images = {image: index for index, image in enumerate(package.images)}
        self.numbers: dict[str, int] = {}
        self.rows: dict[str, list[str]] = {x: [] for x in ("map", "argument", "memory", "launch", "entry")}
        self.places: dict[tuple[str, tuple[str, ...]], str] = {}
        #: The most values of a call, launches of an entry, and arguments and tensor maps of a launch.
        self.most = {"VALUES": 0, "LAUNCHES": 1, "ARGUMENTS": 0, "MAPS": 1}
        self.operands = [self._operands(package, x) for x in package.contracts]
        self.runs = [self._runs(x) for x in package.contracts]

    def words(self, data: bytes) -> Iterator[str]:
        """The bytes of an image as lines of numbers of 8 bytes, the last ones filled up with zeros."""
        numbers = [f"0x{word:x}," for (word,) in struct.iter_unpack("<Q", data + bytes(-len(data) % 8))]
        return ("".join(numbers[at : at + 8]) for at in range(0, len(numbers), 8))

    def _number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def _numbers(self, texts: Sequence[str]) -> list[int]:
        """The indices of three expressions, each written once; those that are missing are 1."""
        return [self._number(text) for text in (*texts, *["1"] * (3 - len(texts)))]

    def _at(self, kind: str, *rows: str) -> str:
        """The address of rows, which the table has once."""
        if not rows:
            return "NULL"
        if (kind, rows) not in self.places:
            self.places[kind, rows] = f"&{kind}_table[{len(self.rows[kind])}]"
            self.rows[kind] += rows
        return self.places[kind, rows]

    def _operands(self, package: CubinPackage, contract: CubinContract) -> list[str]:
        rows = []
        for x, (name, strides) in zip(contract.operands, contract.names):
            call = f"{package.name}_{contract.name}_call"
            fields = [f"offsetof({call}, {strides[i]})" if i in strides else 0 for i in range(3)]
            described = (len(x.extents), -1 if x.unit is None else x.unit, x.bytes, x.written, x.loose)
            rows.append(_row(*described, self._numbers(x.extents), f"offsetof({call}, {name})", fields))
        return rows

    def _runs(self, contract: CubinContract) -> list[str]:
        at = {id(None): "NULL", **{id(x): self._entry(contract, x) for x in contract.entries}}
        return [_row(x.n, x.k, x.first, x.last, [at[id(entry)] for entry in x.entries]) for x in contract.runs]

    def _entry(self, contract: CubinContract, entry: CubinEntry) -> str:
        names = [x.name for x in contract.operands]
        places = {name: index for index, name in enumerate([*names, *(x.name for x in entry.memory)])}
        memories = [
            _row(len(x.extents), x.bytes, x.cleared, self._numbers(x.extents), self._numbers(x.strides))
            for x in entry.memory
        ]
        launches = []
        for x in entry.launches:
            arguments = self._at("argument", *(self._argument(each, places) for each in x.arguments))
            launches.append(_row(self.images[x.image], self._numbers(x.grid), len(x.arguments), arguments))
            ranks = [len(each.map.box) for each in x.arguments if each.map]
            # Triton adds two arguments.
            self._count(ARGUMENTS=2 + len(x.arguments) + 2 * sum(ranks), MAPS=len(ranks))
        self._count(VALUES=len(places), LAUNCHES=len(launches))
        bits = [hex(sum(1 << names.index(x) for x in names_of)) for names_of in (entry.narrow, entry.cleared)]
        parts = (self._at("launch", *launches), self._at("memory", *memories), len(launches), len(memories))
        return self._at("entry", f"/* {entry.kernel}, {entry.row} */ {_row(*parts, *bits)}")

    def _count(self, **numbers: int) -> None:
        self.most |= {name: max(number, self.most[name]) for name, number in numbers.items()}

    def _argument(self, x: CubinArgument, places: dict[str, int]) -> str:
        which = self._number(x.number) if x.kind == "NUMBER" else places[x.operand]
        described = "NULL"
        if x.map is not None:
            y, box = x.map, [*x.map.box, *[0] * (3 - len(x.map.box))]
            row = _row(y.turned, len(y.box), y.swizzle, y.bytes, y.type, y.padded, y.nan, box)
            described = self._at("map", row)
        return _row(x.kind, x.bytes, x.divisible, x.one, which, x.dimension, described)


def _row(*values: int | str | Sequence[int | str]) -> str:
    """A row as C initialises it."""
    texts = (_row(*x) if isinstance(x, list) else str(int(x) if isinstance(x, bool) else x) for x in values)
    return f"{{{', '.join(texts)}}}"
