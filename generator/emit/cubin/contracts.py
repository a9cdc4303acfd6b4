"""What a package of cubins has: the images, what a call launches for each size and alignment, and its arguments.

Numbers that depend on a call are C expressions over `s->m`, `s->n`, `s->k` and `s->count`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from generator.plan.devices import Device
from generator.plan.extents import OPERATIONS, Amount
from generator.plan.kernels import Kernel

#: The classes of alignment, best first, in the order of a run's entries.
ALIGNMENTS = ("ALIGNED", "ADDRESSED", "ANY")
_CALLS = {"cdiv": "parts", "least": "least", "next_power": "power"}
#: Words of C and C++, and fields of every call, that no operand can have.
_WORDS = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const constexpr continue
    decltype default delete do double else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not nullptr operator or private protected public register requires restrict return
    short signed sizeof static struct switch template this throw true try typedef typeid typename typeof union unsigned
    using virtual void volatile wchar_t while xor linux unix i386 m n k batch groups workspace workspace_size
"""
TAKEN = frozenset(_WORDS.split())


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
class TensorMap:
    """How an operand becomes the tensor map that the hardware reads, as Triton's launcher encodes it.

    `type` of an element of so many `bytes` is that of `cuTensorMapEncodeTiled`; `padded`: two elements of 4 bits are
    stored as a byte each; `nan`: what is outside reads as NaN.
    """

    turned: bool
    box: tuple[int, ...]
    swizzle: int
    bytes: int
    type: int
    padded: bool
    nan: bool


@dataclass(frozen=True)
class CubinArgument:
    """An argument of a compiled kernel, and what the compiler was told of it: a multiple of 16, or 1.

    `kind` is ADDRESS, STRIDE or SCALAR of the operand `operand`, NUMBER of the expression `number`, or MAP. One of no
    `bytes` is a constant in the image and is not passed.
    """

    kind: str
    bytes: int
    operand: str = ""
    dimension: int = 0
    number: str = ""
    map: TensorMap | None = None
    divisible: bool = False
    one: bool = False


@dataclass(frozen=True)
class CubinLaunch:
    """One launch: the image, the programs along each axis, the arguments in order."""

    image: CubinImage
    grid: tuple[str, ...]
    arguments: tuple[CubinArgument, ...]


@dataclass(frozen=True)
class CubinMemory:
    """Memory that a call needs beside its operands, as a part of the caller's workspace; `bytes` of an element."""

    name: str
    bytes: int
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    #: Whether it is zero before the launch.
    cleared: bool


@dataclass(frozen=True)
class CubinEntry:
    """What a call launches: a kernel with a configuration."""

    kernel: str
    row: str
    launches: tuple[CubinLaunch, ...]
    memory: tuple[CubinMemory, ...]
    #: The operands of which offsets have 32 bits, and the results that are zero before the launch.
    narrow: tuple[str, ...]
    cleared: tuple[str, ...]


@dataclass(frozen=True)
class CubinRun:
    """Sizes for which the same is launched: N, K and M from `first` to `last`; an entry a class of alignment."""

    n: int
    k: int
    first: int
    last: int
    entries: tuple[CubinEntry | None, ...]


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

    @cached_property
    def entries(self) -> tuple[CubinEntry, ...]:
        """What its calls launch, each once, in the order of the table."""
        return tuple({id(x): x for run in self.runs for x in run.entries if x is not None}.values())

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
    def needs_memory(self) -> bool:
        """Whether a call may need a workspace."""
        return any(entry.memory for entry in self.entries)

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

    @cached_property
    def images(self) -> tuple[CubinImage, ...]:
        """The compiled kernels, each once, in the order of the tables."""
        launches = (x for each in self.contracts for entry in each.entries for x in entry.launches)
        return tuple(dict.fromkeys(launch.image for launch in launches))
