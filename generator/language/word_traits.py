"""What a word of the spec language says of itself: its meaning, and, of some axes, traits for which the rest asks.

The words themselves are in `vocabulary`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from generator.language import tile_orders
from generator.language.features import Feature


@dataclass(frozen=True)
class Word:
    """One legal value of an axis: its meaning, as part of a sentence."""

    meaning: str
    #: Of the kernels of a contract, those of a lower rank are tried first.
    rank: int = 99
    #: Of a schedule, a load or an order of tiles: what it handles beyond a plain product. All else is refused.
    handles: tuple[Feature, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Masking(Word):
    """Which dimensions may be ragged."""

    #: Those that are masked, of "mnk"; None if each call decides.
    ragged: str | None = field(kw_only=True)


@dataclass(frozen=True)
class Order(Word):
    """An order of tiles, and what it needs: columns of CONFIGS, a function next to the kernel."""

    #: Its meaning, with which the order of stores is compared.
    visits: tile_orders.Visits = field(kw_only=True)
    #: The column of CONFIGS for the size of its bands, if it has bands.
    band: str | None = None
    #: The column of CONFIGS for the number of a GPU's dies, if the order depends on it.
    chiplets: str | None = None
    #: The macro of math.j2 for the function that it calls, if it calls one.
    helper: str | None = None

    @cached_property
    def columns(self) -> dict[str, str]:
        """Its columns of CONFIGS, each with the key of `tile` that gives the value."""
        keys = {self.band: "group", self.chiplets: "chiplets"}
        return {column: key for column, key in keys.items() if column is not None}


@dataclass(frozen=True)
class Load(Word):
    """A way to load tiles, and what addresses them: tiles of pointers, unless one of these is said."""

    #: Whether block pointers address tiles.
    blocks: bool = False
    #: Whether descriptors address tiles: the hardware copies and bounds them.
    descriptors: bool = False

    @property
    def pointers(self) -> bool:
        """Whether tiles of pointers address tiles, with masks."""
        return not (self.blocks or self.descriptors)


@dataclass(frozen=True)
class Schedule(Word):
    """A division of the work over programs, and what its kernels need for it."""

    #: Whether a program computes tiles, by matrix products; else it computes one element.
    tiled: bool = True
    #: Whether the sum is a loop over K; else all of K is one tile.
    looped: bool = True

    #: Whether the grid is persistent: as many programs as the device runs at once, each with several tiles.
    walks: bool = False
    #: Whether CONFIGS says how many programs share the K of a tile.
    splits: bool = False
    #: Whether partial sums go through memory: a workspace, from which the program that finishes last computes the
    #: result, or, where `joins`, a matrix for each part of K.
    workspace: bool = False
    #: Whether a second kernel adds the partial sums and computes the result.
    joins: bool = False
    #: Whether a kernel in front makes a B of the type that is multiplied.
    decodes: bool = False
    #: Whether sums are added in a fixed order.
    repeatable: bool = True
    #: The blocks of a tile, each with an accumulator of its own, and the side of C that they divide: "m" or "n".
    blocks: int = 1
    side: str = ""
    #: Columns of indentation of the epilogue in the kernel: more than 4 if it is inside loops.
    indent: int = 4
    #: The word whose template its kernels have; its own if it is empty.
    template: str = ""

    def written(self, word: str) -> str:
        """How a kernel's name has its word: of tiles of several blocks with their number and the side they divide."""
        return f"{'split_k' if self.splits else 'tiled'}{self.blocks}{self.side}" if self.pairs else word

    @property
    def twice(self) -> bool:
        """Whether there are two kernels, launched one after the other, with memory between them."""
        return self.joins or self.decodes

    @property
    def divides_k(self) -> bool:
        """Whether several programs share the K of a tile."""
        return self.splits or (self.walks and self.workspace)

    @property
    def walks_tiles(self) -> bool:
        """Whether a program computes several whole tiles, one after the other."""
        return self.walks and not self.divides_k

    @property
    def walks_steps(self) -> bool:
        """Whether the steps along K of all tiles are divided evenly over the programs."""
        return self.walks and self.divides_k

    @property
    def plain(self) -> bool:
        """Whether one program computes one tile, in a loop over K, with one accumulator."""
        return self.tiled and self.looped and not (self.walks or self.divides_k or self.pairs)

    @property
    def columns(self) -> dict[str, str]:
        """Its columns of CONFIGS besides those of sizes, each with the key of `tile` that gives the value."""
        return {"SPLIT": "split"} if self.splits else {}

    @property
    def sizes_of_blocks(self) -> tuple[str, ...]:
        """Its columns of CONFIGS for the sizes of all blocks of a tile but the last."""
        return {"": (), "m": ("TOP_M", "MIDDLE_M"), "n": ("LEFT_N", "MIDDLE_N")}[self.side][: self.blocks - 1]

    @property
    def pairs(self) -> bool:
        """Whether a tile's rows or columns are blocks of different sizes."""
        return self.blocks > 1


@dataclass(frozen=True)
class Products(Word):
    """How many products a call has, and how its operands hold them."""

    #: What the names of contracts begin with.
    prefix: str = "gemm"
    #: The size that counts the products; empty for a single one.
    count: str = ""

    #: The kernel's name for the number of the product that a program computes a tile of.
    number: str = ""
    #: The extent of which each product has a part, where `offsets` divide it; empty where each has all of it.
    divided: str = ""

    @property
    def several(self) -> bool:
        """Whether a call may have several products."""
        return bool(self.count)

    @property
    def front(self) -> tuple[str, ...]:
        """The extents in front of those of a matrix where there is one for each product."""
        return (self.count,) if self.count else ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of a call: how many products there are, the extents of a result, and the one that is summed over.

        Of a divided extent T is the whole.
        """
        return (*self.front, *("T" if size == self.divided else size for size in ("M", "N", "K")))
