"""What a package of cubins has: the images, what a call launches for each size and alignment, and its arguments.

Numbers that depend on a call are C expressions over `s->m`, `s->n`, `s->k` and `s->count` (`c_expressions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from generator.plan.devices import Device
from generator.plan.kernels import Kernel

#: The classes of alignment, best first, in the order of a run's entries.
ALIGNMENTS = ("ALIGNED", "ADDRESSED", "ANY")


@dataclass(frozen=True)
class CubinImage:
    """A compiled kernel: its machine code, and what a launch of it needs."""

    #: The name of the function in the image.
    name: str
    data: bytes
    #: Bytes of shared memory of a program.
    shared: int
    warps: int
    ctas: int
    cooperative: bool
    #: Whether the launch may overlap the one before (programmatic dependent launch).
    overlaps: bool


@dataclass(frozen=True)
class TensorMap:
    """How an operand becomes the tensor map that the hardware reads, as Triton's launcher encodes it."""

    operand: str
    turned: bool
    box: tuple[int, ...]
    swizzle: int
    #: Bytes of an element, and its type as `cuTensorMapEncodeTiled` numbers them.
    bytes: int
    type: int
    #: Whether two elements of 4 bits are stored as a byte each.
    padded: bool
    #: Whether what is outside reads as NaN.
    nan: bool


@dataclass(frozen=True)
class CubinArgument:
    """An argument of a compiled kernel, and what the compiler was told of it.

    `kind` is ADDRESS, STRIDE or SCALAR of the operand `operand`, NUMBER of the expression `number`, or MAP. One of no
    `bytes` is a constant in the image and is not passed.
    """

    kind: str
    bytes: int
    operand: str = ""
    dimension: int = 0
    number: str = ""
    map: TensorMap | None = None
    #: Whether it is a multiple of 16, and whether it is 1.
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
    """Memory that a call needs beside its operands; it is part of the caller's workspace."""

    name: str
    #: Bytes of an element.
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
    #: The operands of which offsets have 32 bits.
    narrow: tuple[str, ...]
    #: The results that are zero before the launch.
    cleared: tuple[str, ...]


@dataclass(frozen=True)
class CubinRun:
    """Sizes for which the same is launched: N, K and M from `first` to `last`; an entry a class of alignment."""

    n: int
    k: int
    first: int
    last: int
    entries: tuple[CubinEntry | None, ...]

    def follows(self, n: int, k: int, m: int) -> bool:
        """Whether these sizes are the next ones behind the run."""
        return (self.n, self.k, self.last + 1) == (n, k, m)


@dataclass(frozen=True)
class CubinOperand:
    """An operand or a result of a call: its name, its type as torch names it, its shape in words and in C.

    A number has no dimensions and no `bytes`. `unit` is the dimension of stride 1, or None.
    """

    name: str
    dtype: str
    bytes: int
    told: str
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

    @property
    def needs_memory(self) -> bool:
        """Whether a call may need a workspace."""
        return any(entry.memory for entry in self.entries)

    @property
    def sizes(self) -> Iterator[str]:
        """The sizes that it takes, a text for each N and K."""
        for n, k in dict.fromkeys((run.n, run.k) for run in self.runs):
            spans: list[list[int]] = []
            for run in self.runs:
                if (run.n, run.k) != (n, k):
                    continue
                if spans and spans[-1][1] + 1 == run.first:
                    spans[-1][1] = run.last
                else:
                    spans.append([run.first, run.last])
            listed = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in spans)
            yield f"N = {n}, K = {k}: M = {listed}"


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
