"""The factors of blocks, scales and zero points, as a kernel reads them for a tile of each operand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from generator.language.elements import ELEMENTS, ElementType
from generator.language.model import Tile
from generator.language.storage import POSITIONED, Storage
from generator.lowering.operands import Matrix
from generator.lowering.shuffled import Shuffle


@dataclass(frozen=True)
class Factor:
    """The scales or zero points of the rows of A, or of a strip of B's columns, in a tile."""

    #: The keyword of the tensor, and the end of the strip's names.
    keyword: str
    end: str
    #: Where it begins.
    base: str
    #: The index of their blocks among those of the rows or columns; empty where one block has them all.
    place: str
    #: The parameter for the stride of that index, and for the one of blocks along K.
    stride: str
    stride_along: str
    #: The elements along K of a block; 0 for all.
    along: int
    #: The mask of rows or columns that exist; empty where it takes none.
    inside: str
    #: Whether there is one for each row or column of the tile, and not one for all.
    vector: bool
    #: Whether it is the zero points, and of which operand.
    zero: bool
    letter: str
    #: The type of what is loaded as bytes; None where Triton has the type.
    bytes: str | None = None
    #: Whether N decides if there is one for all.
    perhaps_one: bool = False

    @property
    def name(self) -> str:
        """The kernel's name for the values."""
        return f"{self.keyword}{self.end}"

    @property
    def nothing(self) -> str:
        """What a masked load yields."""
        return "0" if self.bytes else "0.0"

    @property
    def address(self) -> str:
        """Where those of the tile begin."""
        return f"{self.name}_ptrs" if self.place else self.base

    def spread(self, *, exchanged: bool) -> str:
        """The values with the dimensions of the accumulator, whose rows are columns of C in an exchanged product."""
        if not self.vector:
            return self.name
        return f"{self.name}[:, None]" if (self.letter == "a") != exchanged else f"{self.name}[None, :]"


@dataclass(frozen=True)
class Metadata:
    """Bytes that belong to the elements of a tile, each to several along K of a row of A or a column of B.

    Positions of the elements that are stored, or scales that the matrix unit reads.
    """

    #: The keyword of the tensor, and the end of the strip's names.
    keyword: str
    end: str
    #: Where it begins.
    base: str
    #: The rows or columns of the strip, and the mask of those that exist; empty where it takes none.
    lines: str
    inside: str
    #: The parameters for the strides of rows or columns, and of bytes along K.
    stride: str
    stride_along: str
    #: The macro of masking.j2 for bytes along K.
    bound: str
    #: The elements along K of a byte, and the end of the names of offsets along K.
    each: int
    axis: str
    #: The type of the scales; None for positions.
    scale: str | None = None

    @property
    def name(self) -> str:
        """The kernel's name for the bytes."""
        return f"{self.keyword}{self.end}"

    @property
    def lines_at(self) -> str:
        """Where each row of A or column of B begins, as rows of a tile."""
        lines = f"({self.lines})" if " " in self.lines and not self.lines.startswith("(") else self.lines
        return f"{self.base} + {lines}[:, None] * {self.stride}"

    @property
    def mask(self) -> str:
        """The arguments of a load for those that exist."""
        along = [f"in_{self.axis}[None, :]"] * (self.bound != "never")
        conditions = [f"{self.inside}[:, None]"] * bool(self.inside) + along
        return f", mask={' & '.join(conditions)}, other=0" if conditions else ""

    def extent(self, elements: str) -> str:
        """The bytes of so many elements along K, of which the last block of a scale may be short."""
        return f"({elements}) // {self.each}" if self.scale is None else f"tl.cdiv({elements}, {self.each})"


def metadata(matrix: Matrix, storage: Storage, strip: Strip, bound: str) -> Metadata:
    """Those of `strip` in `matrix`."""
    along, across = matrix.row_stride, matrix.column_stride
    assert along is not None and across is not None
    if storage.letter == "a":
        along, across = across, along
    lies = matrix.name, strip.end, matrix.base, strip.offsets, strip.inside, across, along, bound
    if matrix.name == storage.index:
        return Metadata(*lies, each=POSITIONED, axis="i")
    assert storage.block is not None
    return Metadata(*lies, each=storage.block.along, axis="s", scale=storage.scale_types[0])


@dataclass(frozen=True)
class Conversion:
    """A tile that is converted: the kernel's name for it, its lines, and the types before and after."""

    name: str
    lines: str
    word: str
    to: str
    #: Whether it is loaded as fewer elements than it has then.
    packed: bool
    #: The order of K in which it is multiplied.
    shuffle: Shuffle | None
    #: The kernel's name for the positions of the elements that are stored; empty where all are.
    index: str = ""
    #: The elements of a word in fragment order; 0 in another.
    of_word: int = 0
    #: The kernel's name for the bits that it sets in two numbers at once; empty where it writes them.
    lead_name: str = ""
    #: The type of 8 bits that Triton makes of `to`; empty where the matrix unit takes that.
    narrowed: str = ""

    @property
    def macro(self) -> str:
        """The macro of storage.j2 that converts it."""
        return "sparse24" if self.index else self.before.fragments if self.of_word else self.before.converts

    @property
    def arranged(self) -> tuple[str, ...]:
        """The statements that put the elements of each line, as they follow each other in memory, in that order."""
        if self.of_word:
            reordered = f"{self.name} = {self.name}.permute((0, 1, 3, 2, 4))"
            return (f"{reordered}.reshape(({self.lines}, BLOCK_K))",)
        if self.shuffle is not None:
            return () if self.shuffle.wide else self.shuffle.ordered(self.name, self.lines)
        return (f"{self.name} = {self.name}.reshape(({self.lines}, BLOCK_K))",) if self.packed else ()

    @property
    def before(self) -> ElementType:
        """The type before."""
        return ELEMENTS[self.word]

    @property
    def after(self) -> ElementType:
        """The type afterwards."""
        return ELEMENTS[self.to]

    @property
    def _lead(self) -> int:
        """The bits of `offset`, behind which the last bits count from it, and those that make them count from 0."""
        return (self.after.bias + self.after.mantissa << self.after.mantissa) + self.half

    @property
    def lead_of_one(self) -> str:
        """The bits in front of a number."""
        return f"0x{self._lead:04X}"

    @property
    def lead_of_pairs(self) -> str:
        """The bits in front of two numbers, in the halves of a word."""
        return f"0x{self._lead * 0x10001:08X}"

    @property
    def half(self) -> int:
        """How much more than its bits a number counts from, whose sign bit is flipped; 0 where none is.

        An int8 has more bits than the mantissa of bf16 holds, and is the difference of two numbers.
        """
        return 1 << self.before.bits - 1 if self.before.signed and self.before.bits <= self.after.mantissa else 0

    @property
    def set_bits(self) -> str:
        """What sets the bits in front of two numbers."""
        return self.lead_name or self.lead_of_pairs

    @property
    def smaller(self) -> int:
        """How much larger its exponents are, in bits, than those of the type before."""
        return self.after.bias - self.before.bias

    @property
    def offset(self) -> int:
        """The least power of two whose last place is 1."""
        return 1 << self.after.mantissa


def conversion(
    storage: Storage, name: str, lines: str, shuffle: Shuffle | None = None, index: str = "", lead_name: str = ""
) -> Conversion:
    """The conversion of a tile of an operand that is stored so."""
    of_word = storage.packed if storage.fragments else 0
    how = storage.packed > 1, shuffle, index, of_word, lead_name
    to = ELEMENTS[storage.multiplied]
    if to.bits == 8 and to.floating and storage.packed > 1:
        return Conversion(name, lines, storage.kind, "fp16", *how, narrowed=to.triton)
    return Conversion(name, lines, storage.kind, storage.multiplied, *how)


@dataclass(frozen=True)
class Strip:
    """The rows of A in a tile, or columns of B: how the kernel names them, and their mask."""

    #: The end of the names of what is loaded.
    end: str
    #: The index of each, and of the first.
    offsets: str
    first: str
    inside: str
    #: How many there are for each row or column of the tile of C; 0 where the first is at no multiple of the tile.
    times: int = 1
    #: Whether N decides if they are in one block.
    perhaps_one: bool = False


def one_of_tile(storage: Storage, tiles: Iterable[Tile], times: int) -> bool:
    """Whether all rows or columns of a strip are in one block, in each of the configurations."""
    assert storage.block is not None
    across = storage.block.across
    lines = [times * (tile.m if storage.letter == "a" else tile.n) for tile in tiles]
    return across == 0 or (times > 0 and all(across % many == 0 for many in lines))


def whole_blocks(b: Storage, tiles: Iterable[Tile]) -> int:
    """The columns of B that share a scale, where a gate's half of a tile has one scale; 0 where it may have several.

    The other half has one, too, if N is a multiple of these columns. Else a block may end in the middle of a tile.
    """
    if b.block is None or b.block.across <= 1 or b.sparse or b.native:
        return 0
    return b.block.across if one_of_tile(b, tiles, 1) else 0


def factor(matrix: Matrix, storage: Storage, strip: Strip, tiles: tuple[Tile, ...]) -> Factor:
    """What `matrix`, the scales or zero points of an operand, has for the rows or columns of `strip`."""
    assert storage.block is not None
    across = storage.block.across
    one = one_of_tile(storage, tiles, strip.times)
    index = strip.first if one else strip.offsets
    if " + " in index and not index.startswith("("):
        index = f"({index})"
    line_index = "" if across == 0 else index if across == 1 else f"({index} // {across})"
    rows, columns = matrix.row_stride, matrix.column_stride
    assert rows is not None and columns is not None
    stride, along = (rows, columns) if storage.letter == "a" else (columns, rows)
    return Factor(
        keyword=matrix.name,
        end=strip.end,
        base=matrix.base,
        place=line_index,
        stride=stride,
        stride_along=along,
        along=storage.block.along,
        inside="" if one else strip.inside,
        vector=not one,
        zero=matrix.name == storage.zero,
        letter=storage.letter,
        bytes=storage.scale_types[0] if storage.bytewise else None,
        perhaps_one=strip.perhaps_one,
    )


def product_of(factors: Sequence[Factor], *, exchanged: bool) -> str:
    """The product of scales, with the dimensions of the accumulator: vectors of the tile are multiplied last."""
    vectors = [factor for factor in factors if factor.vector]
    one = [factor.name for factor in factors if not factor.vector]
    if not vectors:
        return one[0] if len(one) == 1 else f"({' * '.join(one)})"
    first, *others = vectors
    powers = any(factor.bytes and ELEMENTS[factor.bytes].powers for factor in vectors)
    if (powers or any(factor.perhaps_one for factor in vectors)) and others:
        # Powers of two may leave the range of fp32 one by one, and their product seldom does. One scale for all is
        # multiplied by the other vector, before that is spread over the tile.
        return f"({' * '.join(factor.spread(exchanged=exchanged) for factor in vectors)})"
    spread = first.spread(exchanged=exchanged)
    if one:
        spread = spread.replace(first.name, f"({' * '.join((first.name, *one))})")
    return " * ".join((spread, *(factor.spread(exchanged=exchanged) for factor in others)))
