"""What a package of cubins has: its contracts with their operands and sizes, and the tables of what calls launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from generator.emit.cubin.tables import CubinImage, Tables
from generator.plan.devices import Device
from generator.plan.kernels import Kernel

#: The classes of alignment, best first, in the order of a run's entries.
ALIGNMENTS = ("ALIGNED", "ADDRESSED", "ANY")
#: Words of C and C++, and fields of every call, that no operand can have.
_WORDS = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const constexpr continue
    decltype default delete do double else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not nullptr operator or private protected public register requires restrict return
    short signed sizeof static struct switch template this throw true try typedef typeid typename typeof union unsigned
    using virtual void volatile wchar_t while xor linux unix i386 m n k batch groups workspace workspace_size
"""
TAKEN = frozenset(_WORDS.split())


@dataclass(frozen=True)
class CubinRun:
    """Sizes for which the same is launched: N, K and M from `first` to `last`; an address a class of alignment."""

    n: int
    k: int
    first: int
    last: int
    entries: tuple[str, ...]


@dataclass(frozen=True)
class CubinOperand:
    """An operand or a result of a call: its name, its type as torch names it, its shape in words and in C.

    A number has no dimensions and no `bytes`. `unit` is the dimension of stride 1, or None.
    """

    name: str
    dtype: str
    bytes: int
    shape: str
    extents: tuple[str, ...]
    unit: int | None
    written: bool
    #: Whether any strides of it are compiled for, whatever the class of the call: of scales, and of a vector for each
    #: matrix of a batch, whose stride of 0 makes one that all share.
    loose: bool = False

    @property
    def strides(self) -> tuple[tuple[int, str], ...]:
        """The dimensions whose strides a call gives, each with the end of its field's name."""
        rank = len(self.extents)
        if rank < 2:
            return ()
        if self.loose and self.unit is not None:
            return ((0, "batch"),)
        front = ((0, "batch"),) if rank == 3 else ()
        if self.unit is None:
            return (*front, (rank - 2, "row"), (rank - 1, "column"))
        return (*front, (2 * rank - 3 - self.unit, "ld"))

    @property
    def layout(self) -> str:
        """How it lies in memory, in words."""
        if len(self.extents) < 2:
            return "-"
        row_major = self.unit == len(self.extents) - 1
        return "any strides" if self.unit is None else "row-major" if row_major else "column-major"


@dataclass(frozen=True)
class CubinContract:
    """A function of the package: one of the family's contracts."""

    name: str
    formula: str
    #: What `count` is: "batch", "groups", or nothing.
    counted: str
    operands: tuple[CubinOperand, ...]
    runs: tuple[CubinRun, ...]
    kernel: Kernel
    #: Whether a call may need a workspace.
    needs_memory: bool

    @cached_property
    def names(self) -> tuple[tuple[str, Mapping[int, str]], ...]:
        """The fields of each operand in a call: its own, and those of its strides by the dimension."""
        taken, fields = set(TAKEN), []
        for x in self.operands:
            name = x.name
            while {name, *(f"{name}_{end}" for _, end in x.strides)} & taken:
                name += "_"
            strides = {dimension: f"{name}_{end}" for dimension, end in x.strides}
            taken |= {name, *strides.values()}
            fields.append((name, strides))
        return tuple(fields)

    @property
    def fields(self) -> Iterator[tuple[str, str, str]]:
        """The fields of a call in order: the type in C and in ctypes, the name."""
        for name in ("m", "n", "k", *filter(None, [self.counted])):
            yield "int64_t ", "c_int64", name
        for x, (name, strides) in zip(self.operands, self.names):
            address = ("void *" if x.written else "const void *", "c_void_p")
            yield *(address if x.extents else ("float ", "c_float")), name
            yield from (("int64_t ", "c_int64", each) for each in strides.values())
        if self.needs_memory:
            yield from (("void *", "c_void_p", "workspace"), ("size_t ", "c_size_t", "workspace_size"))

    @property
    def table(self) -> list[str]:
        """The operands as aligned lines: name, shape, type, layout."""
        rows = [
            (name, x.shape, x.dtype or "float", x.layout, "written" if x.written else "read")
            for x, (name, _) in zip(self.operands, self.names)
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]

    @property
    def sizes(self) -> Iterator[str]:
        """The sizes that it takes: a line for each N and K, and more where it has many spans of M."""
        for (n, k), runs in groupby(self.runs, lambda run: (run.n, run.k)):
            spans: list[list[int]] = []
            for run in runs:
                if spans and spans[-1][1] + 1 == run.first:
                    spans[-1][1] = run.last
                else:
                    spans.append([run.first, run.last])
            line = f"N = {n}, K = {k}: M = "
            for first, last in spans:
                if len(line) > 90:
                    yield line.rstrip()
                    line = "    "
                line += f"{first}, " if first == last else f"{first} to {last}, "
            yield line.removesuffix(", ")


@dataclass(frozen=True)
class CubinPackage:
    """The contracts of a family for one device, and the reason for which each other one is left out."""

    name: str
    family: str
    device: Device
    triton: str
    #: The number of a batch, or of groups.
    count: int
    contracts: tuple[CubinContract, ...]
    left_out: tuple[tuple[str, str], ...]
    tables: Tables

    @property
    def images(self) -> tuple[CubinImage, ...]:
        """The compiled kernels, each once, in the order of the tables."""
        return tuple(self.tables.images)
