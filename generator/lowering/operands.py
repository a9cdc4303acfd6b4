"""Operands as a kernel and its launcher spell them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from generator.epilogue.formula import GATE, X
from generator.epilogue.gated_units import CONCATENATED, INTERLEAVED, PLACES
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX, ROWS
from generator.language.word_traits import Schedule
from generator.lowering.lines import WIDTH, bracketed
from generator.lowering.shuffled import Shuffle

#: What the blocks along a side are called, from the first to the last, and the first row or column of each.
_OF_SIDE = {
    "m": (("top", "row"), ("middle", "middle_row"), ("bottom", "bottom_row")),
    "n": (("left", "column"), ("middle", "middle_column"), ("right", "right")),
}


@dataclass(frozen=True)
class TileBlock:
    """A block of a tile's rows or columns."""

    #: "m" or "n".
    side: str
    #: What it is called, and the kernel's name for its first row or column.
    name: str
    first: str
    #: Its size, and what is added to the tile's first row or column for its own.
    size: str
    behind: str

    @property
    def end(self) -> str:
        """The end of the names of what it has."""
        return f"_{self.name}"

    @property
    def lines(self) -> str:
        return "rows" if self.side == "m" else "columns"

    @property
    def start(self) -> str:
        """Its first row or column, counted from the product's."""
        return f"pid_{self.side} * BLOCK_{self.side.upper()}{self.behind}"


def blocks_of(schedule: Schedule) -> tuple[TileBlock, ...]:
    """The blocks of a schedule's tiles; none where a tile is one."""
    if not schedule.pairs:
        return ()
    columns = tuple(schedule.sizes_of_blocks)
    *others, last = _OF_SIDE[schedule.side]
    sizes = (*columns, " - ".join((f"BLOCK_{schedule.side.upper()}", *columns)))
    named = (*others[: len(columns)], last)
    return tuple(
        TileBlock(schedule.side, name, first, size, "".join(f" + {x}" for x in columns[:index]))
        for index, ((name, first), size) in enumerate(zip(named, sizes, strict=True))
    )


@dataclass(frozen=True)
class OperandStrip:
    """Rows of A or columns of B in a tile that a step loads together: all of them, or those of a block."""

    #: The end of the names of what is loaded, and the kernel's names for it: of a gate's B for each half.
    end: str
    tiles: tuple[str, ...]
    #: The kernel's name for its first row or column, that one counted from the product's first, and how many there are.
    first: str
    start: str
    size: str
    #: The kernel's names for its rows or columns of C, and for the mask of those that exist.
    offsets: str
    inside: str


@dataclass(frozen=True)
class Read:
    """What a kernel reads for its epilogue."""

    #: Whether it is read as the integers that it has, and not converted to fp32.
    whole: bool = field(default=False, kw_only=True)

    @property
    def nothing(self) -> str:
        """What a masked load of it yields past the edge."""
        return "0" if self.whole else "0.0"

    @property
    def converted(self) -> str:
        """What is written behind its load."""
        return "" if self.whole else ".to(tl.float32)"


@dataclass(frozen=True)
class Matrix(Read):
    """A matrix of a call (`a`, `b`, `c` or an M×N epilogue operand), or of tiles' parts, as a kernel addresses it."""

    name: str
    #: The launcher's variable, and its dimensions as the kernel names them.
    variable: str
    rows: str
    columns: str
    layout: str
    #: The kernel's name for the matrix's number where there are several, by the launcher's dimension 0; else empty.
    number: str = ""
    #: The kernel's names for the first row and column of the product, of a matrix that is divided among products.
    first_row: str = ""
    first_column: str = ""
    #: Whether its rows are those that the kernel calls offs_a and in_a, which are not counted from the product's first.
    gathered: bool = False
    #: Whether its rows are those that the kernel calls offs_c and in_c, counted from first_c.
    scattered: bool = False
    #: Of a B with two columns for each of C, their order.
    order: str | None = None
    #: Of A or B, the blocks of its rows or columns in a tile, each with a descriptor of its own.
    parts: tuple[TileBlock, ...] = ()
    #: Of the result, whether the epilogue has read it, so that its addresses are there.
    located: bool = False
    #: Of B, whether its tiles are loaded transposed.
    flipped: bool = False
    #: Whether its elements are integers.
    integer: bool = False
    #: The elements along K of one of its containers; where there are several, its extent along K counts containers.
    packed: int = 1
    #: The order of K in which its tiles are multiplied; None where it is that of memory.
    shuffle: Shuffle | None = None
    #: Whether a kernel reads its elements as bytes.
    bytes: bool = False
    #: Where the element of a column of C is, `{}`: of a matrix with two columns for each, those of one half.
    place: str = "{}"
    #: The name of what is loaded of it; empty for its own.
    loaded: str = ""
    #: The kernel's name for the rows of what is loaded of an operand of the epilogue.
    line: str = "offs_m"
    #: The number that is 0 where it is not read; empty where it always is.
    when: str = ""
    #: Of what is not always read, the value with whose shape and type it is zero otherwise.
    like: str = ""

    shape = MATRIX

    @property
    def slot(self) -> Slot:
        """The kernel's pointer."""
        passed = f"as_bytes({self.variable})" if self.bytes else self.variable
        return Slot(f"{self.name}_ptr", passed)

    @property
    def batched(self) -> bool:
        """Whether it is one of several, by the launcher's dimension 0."""
        return bool(self.number)

    @property
    def tiles(self) -> tuple[str, ...]:
        """The kernel's names for what it loads of the matrix in a step."""
        return tuple(tile for strip in self.strips for tile in strip.tiles)

    @property
    def strips(self) -> tuple[OperandStrip, ...]:
        """What the rows of A or columns of B in a tile consist of."""
        halves = ("_gate", "_up") if self.order == CONCATENATED else ("",)
        side, first = ("n", "column") if self.rows == "K" else ("m", "row")

        def strip(end: str, first: str, start: str, size: str) -> OperandStrip:
            tiles = tuple(f"{self.name}{half}{end}" for half in halves)
            size, start = self._times(size, "- +"), self._times(start, "+")
            return OperandStrip(end, tiles, first, start, size, f"offs{end or f'_{side}'}", f"in{end or f'_{side}'}")

        size = f"BLOCK_{side.upper()}"
        whole = ("", first, f"pid_{side} * {size}", size)
        listed = [(part.end, part.first, part.start, part.size) for part in self.parts] or [whole]
        return tuple(strip(*each) for each in listed)

    def _times(self, number: str, added: str) -> str:
        """A number of columns of C, with one of these operators or without, as one of this matrix."""
        several = any(f" {operator} " in number for operator in added.split())
        return f"{self.pairs}({number})" if self.pairs and several else f"{self.pairs}{number}"

    @property
    def blocks(self) -> tuple[tuple[str, str, str, str], ...]:
        """What a step copies by descriptors: the names of a tile and of its descriptor, its first line, its lines."""
        halves = ("", "N + ") if self.order == CONCATENATED else (self.pairs,)
        return tuple(
            (tile, f"{self.name}{strip.end}_desc", f"{before}{strip.first}", strip.size)
            for strip in self.strips
            for tile, before in zip(strip.tiles, halves, strict=True)
        )

    @property
    def pairs(self) -> str:
        """A factor of the columns of a tile, and of their first, where they are neighbours two by two."""
        return "2 * " if self.order == INTERLEAVED else ""

    @property
    def over(self) -> str:
        """A divisor of a number of elements along K, for that of containers."""
        return "" if self.packed == 1 else f" // {self.packed}"

    @property
    def apart(self) -> bool:
        """Whether the offsets along K of its tile's containers are not those of A's elements."""
        return self.packed > 1 or self.shuffle is not None

    @property
    def along_k(self) -> str:
        """The kernel's name for the offsets of a tile's containers along K."""
        return "offs_p" if self.apart else "offs_k"

    def packed_extent(self, extent: str) -> str:
        """The containers of so many elements along K."""
        return f"({extent}){self.over}" if self.over and " " in extent else f"{extent}{self.over}"

    def places(self, column: str) -> tuple[str, ...]:
        """The columns that make a column of C: the gate's, then the other."""
        if self.order is None:
            return (column,)
        return tuple(f"({PLACES[self.order][value]})".format(column) for value in (GATE, X))

    @property
    def zero(self) -> str:
        """What a masked load yields past the edge."""
        return "0" if self.integer else "0.0"

    @property
    def row_stride(self) -> str | None:
        """The kernel's parameter for the stride between rows; None for a unit stride."""
        if self.layout == "strided":
            return f"stride_{self.name}{self.rows.lower()}"
        return f"ld{self.name}" if self.layout == "row" else None

    @property
    def column_stride(self) -> str | None:
        """The kernel's parameter for the stride between columns; None for a unit stride."""
        if self.layout == "strided":
            return f"stride_{self.name}{self.columns.lower()}"
        return f"ld{self.name}" if self.layout == "column" else None

    @property
    def batch_stride(self) -> str | None:
        """The kernel's parameter for the stride from matrix to matrix; None where there is one."""
        return f"stride_{self.name}{self.number[0]}" if self.batched else None

    @property
    def base(self) -> str:
        """The kernel's pointer to the first element of its matrix."""
        first_row = "" if self.gathered else "first_c" if self.scattered else self.first_row
        terms = [(self.number, self.batch_stride), (first_row, self.row_stride)]
        terms.append((self.first_column, self.column_stride))
        moved = (f" + {first}{f' * {stride}' if stride else ''}" for first, stride in terms if first)
        return "".join((f"{self.name}_ptr", *moved))

    @property
    def strides(self) -> tuple[tuple[str, str], ...]:
        """Each stride parameter with what a call passes for it, as its table has it."""
        first = (self.batch_stride,) if self.batched else ()
        named = enumerate((*first, self.row_stride, self.column_stride))
        return tuple((name, f"{self.variable}.stride({dimension})") for dimension, name in named if name)

    @property
    def width(self) -> str:
        """The number of columns."""
        return f"2 * {self.columns}" if self.order else self.columns

    @property
    def descriptors(self) -> tuple[tuple[str, str], ...]:
        """The kernel's names for those that a step copies by, each with the lines of its block."""
        return tuple((f"{self.name}{strip.end}_desc", strip.size) for strip in self.strips)

    def copied(self, size: str = "", width: str = "") -> list[str]:
        """The lines of a block that a descriptor copies, and the elements of each, as they lie in memory.

        `size` is the block's along the side that a tile may divide, where it is not the tile's: of B its columns, else
        its rows. `width`: the columns of the block, where the tile has others.
        """
        rows, columns = ("", size) if self.rows == "K" else (size, "")
        down, across = (self.over if extent == "K" else "" for extent in (self.rows, self.columns))
        width = columns or width or f"{self.pairs}BLOCK_{self.columns}"
        sizes = [rows or f"BLOCK_{self.rows}{down}", f"{width}{across}"]
        return sizes[::-1] if self.layout == "column" else sizes

    def described(self, size: str = "", width: str = "") -> str:
        """The descriptor of its row-major matrices, of which such a block is copied, as a call's table has it."""
        block = ", ".join(["1"] * self.batched + self.copied(size, width))
        turned = ", turned=True" * (self.layout == "column")
        return f"described({self.variable}, {block}{turned})"


def broadcast(variable: str, shape: str) -> str:
    """What a tile has of an operand of this shape, with the dimensions of the tile."""
    return variable + {COLUMNS: "[None, :]", HALVES: "[None, :]", ROWS: "[:, None]"}.get(shape, "")


@dataclass(frozen=True)
class Vector(Read):
    """A vector or scalar operand of the epilogue."""

    name: str
    shape: str
    #: Where the element of a column is, `{}`.
    place: str = "{}"
    #: The kernel's name for the number of the product where each has one, and for the product's first element.
    product: str = ""
    first: str = ""
    #: The name of what is loaded of it; empty for its own.
    loaded: str = ""

    @property
    def spread(self) -> bool:
        """Whether the elements of neighbouring columns are no neighbours."""
        return self.place in PLACES[INTERLEAVED].values()

    def at(self, offsets: str) -> str:
        """The addresses of the elements for these columns or rows."""
        return f"{self.base} + {self.place.format(offsets)}"

    @property
    def base(self) -> str:
        """The kernel's pointer to the first element of the program's product."""
        terms = [f"{self.name}_ptr", *(f"{self.product} * {name}" for name, _ in self.strides)]
        return " + ".join((*terms, self.first) if self.first else terms)

    @property
    def variable(self) -> str:
        """The launcher's variable."""
        return self.name

    @property
    def slot(self) -> Slot:
        """The kernel's pointer, or its number that may be a pointer."""
        return Slot(f"{self.name}_{'ptr' if self.shape else 'or_ptr'}", self.name)

    @property
    def strides(self) -> tuple[tuple[str, str], ...]:
        """The stride parameter with what a call passes for it, where there are several vectors."""
        return ((f"stride_{self.name}{self.product[0]}", f"{self.name}.stride(0)"),) if self.product else ()

    def number(self, depth: int) -> str:
        """The statement that gives a scalar its value, on lines that begin `depth` columns from the margin."""
        parts = f"tl.load({self.name}_or_ptr).to(tl.float32)", f"if {self.flag}", f"else {self.name}_or_ptr"
        one = f"{self.name} = {' '.join(parts)}"
        return one if depth + len(one) <= WIDTH else bracketed(f"{self.name} = (", parts, ")", depth, " ")

    @property
    def flag(self) -> str:
        """The constexpr that says whether a scalar lies on the device."""
        return f"{self.name.upper()}_ON_DEVICE"


@dataclass(frozen=True)
class Slot:
    """A parameter of the kernel that is no constant, and what a call passes for it, as source."""

    parameter: str
    value: str


def stride_slots(tensors: Iterable[Matrix | Vector]) -> tuple[Slot, ...]:
    """The kernel's parameters for the strides of tensors."""
    return tuple(Slot(name, value) for x in tensors for name, value in x.strides)


def wide_strides(tensors: Iterable[Matrix | Vector]) -> tuple[str, ...]:
    """The statements that make strides as wide as offsets may be, after a comment; none without strides."""
    names = [name for x in tensors for name, _ in x.strides]
    if not names:
        return ()
    why = "# INDEX is int64 where an operand spans more than 2**31 elements; only strides lead past 32 bits."
    return (why, *(f"{name} = tl.cast({name}, INDEX)" for name in names))


def parameters(slots: Iterable[Slot], constants: Iterable[str]) -> tuple[str, ...]:
    """A kernel's parameters in order, of which `constants` are compiled in."""
    return (*(slot.parameter for slot in slots), *(f"{name}: tl.constexpr" for name in constants))
