"""The words of the spec language: every axis and value, its meaning, and whether a template exists.

A word without a template is listed too, so that the message for it is "not available yet" and not "unknown". Nothing
else in the project lists axis values, but for those of `dtype`, which follow from `elements.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from generator.language import tile_orders
from generator.language.features import CHAINS, LOADS, SEVERAL, STORED, Feature

#: The axes in the order of the family's product; newer axes come last.
AXES = (
    *("layout", "dtype", "batch", "epilogue", "masking", "swizzle", "schedule", "load", "store", "product"),
    *("rounding", "math", "result"),
)
#: Contract axes say what is computed, implementation axes how.
CONTRACT_AXES = ("layout", "dtype", "batch", "epilogue", "rounding", "result")
IMPLEMENTATION_AXES = tuple(axis for axis in AXES if axis not in CONTRACT_AXES)
#: Axes with one value in a spec: kernels of one contract that sum in the same order agree to the last bit.
SINGLE_AXES = ("math",)
#: The axes that `select: fastest` fills where a spec does not name them.
OPEN_AXES = tuple(axis for axis in IMPLEMENTATION_AXES if axis not in SINGLE_AXES)


@dataclass(frozen=True)
class Word:
    """One legal value of an axis: its meaning, as part of a sentence, and whether a template exists."""

    meaning: str
    available: bool = True
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

    @property
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
        """Its columns of CONFIGS besides the tile sizes, each with the key of `tile` that gives the value."""
        return self.sizes_of_blocks | ({"SPLIT": "split"} if self.splits else {})

    @property
    def sizes_of_blocks(self) -> dict[str, str]:
        """Those for the sizes of all blocks of a tile but the last."""
        return dict(list(_OF_BLOCKS[self.side].items())[: self.blocks - 1]) if self.pairs else {}

    @property
    def pairs(self) -> bool:
        """Whether a tile's rows or columns are blocks of different sizes."""
        return self.blocks > 1


#: By the side that is divided, the columns of CONFIGS for all blocks but the last, with the keys of `tile`.
_OF_BLOCKS: Mapping[str, Mapping[str, str]] = {
    "m": {"TOP_M": "top", "MIDDLE_M": "below"},
    "n": {"LEFT_N": "left", "MIDDLE_N": "middle"},
}


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


LAYOUT_LETTERS = {"r": "row", "c": "column", "s": "strided"}

BATCH: Mapping[str, Products] = {
    "none": Products("one matrix product"),
    "strided": Products(
        "3-D operands with any batch stride, where 0 repeats one matrix", prefix="bmm", count="B", number="batch"
    ),
    "grouped": Products(
        "rows of A sorted into groups, each with a matrix of B of its own; `offsets` has their ends, on the device",
        prefix="gmm",
        count="G",
        number="group",
        divided="M",
    ),
    "grouped_k": Products(
        "K divided into groups, each with a result of its own; `offsets` has their ends, on the device",
        prefix="gmmk",
        count="G",
        number="group",
        divided="K",
    ),
}

MASKING: Mapping[str, Masking] = {
    "none": Masking("M, N and K must be multiples of the tile", ragged="", rank=1),
    "k": Masking("K is any size; M and N must be multiples of the tile", ragged="k", rank=2),
    "mn": Masking("M and N are any size; K must be a multiple of the tile", ragged="mn", rank=3),
    "mnk": Masking("M, N and K are any size", ragged="mnk", rank=4),
    "auto": Masking(
        "M, N and K are any size; a dimension that the tile divides is compiled without its mask", ragged=None, rank=0
    ),
}

_NUMBERED = (Feature.NUMBERED,)

SWIZZLE: Mapping[str, Order] = {
    "linear": Order("row by row", rank=5, visits=tile_orders.linear, handles=_NUMBERED),
    "linear_n": Order("column by column", rank=6, visits=tile_orders.linear_n, handles=_NUMBERED),
    "grouped": Order(
        "in bands of GROUP_M tile rows, column by column in each band",
        band="GROUP_M",
        rank=0,
        visits=tile_orders.grouped,
        handles=_NUMBERED,
    ),
    "grouped_n": Order(
        "in bands of GROUP_N tile columns, row by row in each band",
        band="GROUP_N",
        rank=1,
        visits=tile_orders.grouped_n,
        handles=_NUMBERED,
    ),
    "swizzle2d": Order(
        "in bands of GROUP_M tile rows, as Triton's tl.swizzle2d orders them",
        band="GROUP_M",
        rank=2,
        visits=tile_orders.grouped,
        handles=_NUMBERED,
    ),
    "hilbert": Order(
        "along a Hilbert curve over the grid of tiles",
        helper="hilbert",
        rank=3,
        visits=tile_orders.along_hilbert,
        handles=_NUMBERED,
    ),
    "chiplet": Order(
        "in bands of GROUP_M tile rows, column by column in each band, with consecutive tiles for each of "
        "NUM_CHIPLETS dies, to which the hardware deals programs in turn",
        band="GROUP_M",
        chiplets="NUM_CHIPLETS",
        rank=4,
        visits=tile_orders.chiplet,
        handles=_NUMBERED,
    ),
}

#: What the macros of tile.j2 and of module.py.j2 do for every schedule that calls them.
_TILES = (*STORED, Feature.GATES, *CHAINS, *LOADS, Feature.ORDERS, Feature.EXCHANGED, Feature.QUANTISED)
#: Of them what several blocks of a tile do, which no block pointer loads and whose sums are stored one by one.
_BLOCKS = (
    *(*STORED, Feature.GATES, Feature.EPILOGUES, Feature.OUTPUTS, *SEVERAL),
    *(Feature.DESCRIPTORS, Feature.STORES, Feature.ORDERS, Feature.EXCHANGED, Feature.INVARIANT),
)
#: Of them what they do where a second kernel adds partial sums, whose tiles are whole, of a single product.
_BLOCKS_OF_SUMS = (
    *(*STORED, Feature.GATES, *CHAINS, Feature.QUANTISED),
    *(Feature.DESCRIPTORS, Feature.STORES, Feature.ORDERS, Feature.EXCHANGED, Feature.INVARIANT),
)

_SPLIT_K = Schedule(
    "K divided over programs, reduced in a fixed order",
    splits=True,
    workspace=True,
    joins=True,
    rank=3,
    handles=(*_TILES, Feature.GROUPS, Feature.SCALED, Feature.SUMMED, Feature.SYMMETRIC, Feature.INVARIANT),
)


def _split_blocks(blocks: int, side: str, lie: str) -> Schedule:
    """`split_k` of tiles that are several blocks."""
    meaning = f"K of tiles of {lie} divided over programs, reduced in a fixed order"
    return replace(_SPLIT_K, meaning=meaning, blocks=blocks, side=side, rank=4, handles=_BLOCKS_OF_SUMS)


SCHEDULE: Mapping[str, Schedule] = {
    "elementwise": Schedule(
        "one program computes one element with a scalar loop over K",
        tiled=False,
        rank=8,
        handles=(Feature.GATES, Feature.EPILOGUES, Feature.OUTPUTS, Feature.BATCHES, Feature.INVARIANT),
    ),
    "naive": Schedule(
        "one program computes one tile, with all of K in one load",
        looped=False,
        rank=7,
        handles=(
            *(*CHAINS, *LOADS, Feature.PRECISIONS, Feature.GATES, Feature.BATCHES),
            *(Feature.ORDERS, Feature.EXCHANGED, Feature.QUANTISED, Feature.INVARIANT),
        ),
    ),
    "tiled": Schedule(
        "one program computes one tile, in a loop over K",
        rank=0,
        handles=(*_TILES, *SEVERAL, Feature.SCALED, Feature.SUMMED, Feature.SYMMETRIC, Feature.INVARIANT),
    ),
    "paired": Schedule(
        "one program computes a tile of two widths side by side, in a loop over K",
        blocks=2,
        side="n",
        rank=2,
        handles=_BLOCKS,
    ),
    "paired_m": Schedule(
        "one program computes a tile of two heights one above the other, in a loop over K",
        blocks=2,
        side="m",
        rank=2,
        handles=_BLOCKS,
    ),
    "tripled": Schedule(
        "one program computes a tile of three widths side by side, in a loop over K",
        blocks=3,
        side="n",
        rank=2,
        handles=_BLOCKS,
    ),
    "tripled_m": Schedule(
        "one program computes a tile of three heights one above the other, in a loop over K",
        blocks=3,
        side="m",
        rank=2,
        handles=_BLOCKS,
    ),
    "persistent": Schedule(
        "as many programs as the device runs at once, each computing several tiles",
        walks=True,
        indent=8,
        rank=1,
        handles=(*_TILES, *SEVERAL, Feature.SCALED, Feature.SYMMETRIC, Feature.INVARIANT),
    ),
    "split_k": _SPLIT_K,
    "split_k_paired": _split_blocks(2, "n", "two widths side by side"),
    "split_k_paired_m": _split_blocks(2, "m", "two heights one above the other"),
    "split_k_tripled": _split_blocks(3, "n", "three widths side by side"),
    "split_k_tripled_m": _split_blocks(3, "m", "three heights one above the other"),
    "split_k_atomic": Schedule(
        "K divided over programs, reduced by atomic adds",
        splits=True,
        repeatable=False,
        rank=6,
        handles=(
            *(*LOADS, Feature.REGISTERS, Feature.PRECISIONS),
            *(Feature.ORDERS, Feature.EXCHANGED, Feature.SUMMED),
        ),
    ),
    "stream_k": Schedule(
        "K-iterations divided evenly over a persistent grid",
        walks=True,
        workspace=True,
        indent=12,
        rank=5,
        handles=(*_TILES, Feature.SCALED),
    ),
    "decoded": Schedule(
        "a first kernel makes B of the type and order that is multiplied, a second multiplies it as persistent does",
        decodes=True,
        walks=True,
        indent=8,
        rank=4,
        handles=(
            *(Feature.CONVERSIONS, Feature.SCALES, Feature.SPARSITY, Feature.MIXED, Feature.PRECISIONS),
            *(Feature.GATES, *CHAINS, *LOADS, Feature.ORDERS, Feature.QUANTISED, Feature.INVARIANT),
        ),
    ),
}


#: The schedules that stand for all whose tiles are several blocks, where the tiles of a spec say which of them: those
#: whose programs sum all of K, and those that divide it.
PAIRED, SPLIT_K = "paired", "split_k"


def schedule_of_blocks(side: str, size: int, *, splits: bool = False) -> str | None:
    """The schedule whose tiles have so many rows ("m") or columns ("n"), a sum of powers of two, or None.

    With `splits` the one that divides K.
    """
    return _of_blocks(side, size.bit_count(), splits=splits)


def undivided(schedule: Schedule) -> str | None:
    """The schedule with the same blocks whose programs sum all of K, or None."""
    return _of_blocks(schedule.side, schedule.blocks, splits=False)


def _of_blocks(side: str, blocks: int, *, splits: bool) -> str | None:
    fits = (word for word, each in SCHEDULE.items() if (each.side, each.blocks, each.splits) == (side, blocks, splits))
    return next(fits, None)


#: Programs of a persistent grid in Triton's interpreter: few enough that each has several tiles.
INTERPRETED = 3

#: What loads by tiles of pointers or by descriptors do, whose macros know how operands are stored.
_OPERANDS = (
    *(*STORED, Feature.GATES, *CHAINS, *SEVERAL, Feature.EXCHANGED),
    *(Feature.SCALED, Feature.PARTS_OF_K, Feature.QUANTISED),
)

LOAD: Mapping[str, Load] = {
    "pointer": Load(
        "tiles of pointers",
        rank=1,
        handles=(*_OPERANDS, Feature.STRIDED, Feature.SUMMED, Feature.SYMMETRIC, Feature.ELEMENTS, Feature.PAIRS),
    ),
    "block_pointer": Load(
        "block pointers (tl.make_block_ptr)",
        blocks=True,
        rank=2,
        handles=(*CHAINS, Feature.BATCHES, Feature.STRIDED, Feature.EXCHANGED, Feature.PARTS_OF_K),
    ),
    "descriptor": Load(
        "tensor descriptors made on the host, copied by the hardware",
        descriptors=True,
        rank=0,
        handles=(*_OPERANDS, Feature.SYMMETRIC, Feature.PAIRS),
    ),
}

STORE: Mapping[str, Word] = {
    "as_load": Word("as the operands are loaded"),
    "pointer": Word("through a tile of pointers"),
}

PRODUCT: Mapping[str, Word] = {
    "direct": Word("C = A B: the rows of the matrix unit are rows of C"),
    "exchanged": Word("C^T = B^T A^T: the rows of the matrix unit are columns of C"),
    "scaled": Word("C = A B: the matrix unit multiplies elements as they are stored, and by their scales", rank=0),
    "summed": Word("C = A B without a matrix product: lanes share K, and their sums are added behind the loop"),
}

ROUNDING: Mapping[str, Word] = {
    "late": Word("the running value is fp32, rounded once at the store"),
    "torch": Word("rounded to the result's type after the product and each operation, as eager torch does"),
}

MATH: Mapping[str, Word] = {
    "auto": Word(
        "fast in the built-in sigmoid, tanh, silu, gelu_tanh, quick_gelu, swiglu and geglu_tanh, if every output has "
        "16 bits or fewer and is rounded late, where it is off by at most 0.13 units in the last place; exact elsewhere"
    ),
    "exact": Word("accurate sigmoid and tanh everywhere: to a few units in the last place of fp32"),
    "fast": Word(
        "cheaper forms of sigmoid and tanh everywhere, in formulas of the spec's own and for fp32 results too, where "
        "the error is larger: you must judge it"
    ),
}

RESULT: Mapping[str, Word] = {
    "full": Word("every element is computed"),
    "symmetric": Word(
        "the caller states that C is symmetric, as A A^T is: elements on and above the diagonal are computed, and "
        "those below it are copies of them"
    ),
}

#: Axes whose values are plain words. `layout`, `dtype` and `epilogue` have grammars of their own.
WORDS: Mapping[str, Mapping[str, Word]] = {
    "batch": BATCH,
    "masking": MASKING,
    "swizzle": SWIZZLE,
    "schedule": SCHEDULE,
    "load": LOAD,
    "store": STORE,
    "product": PRODUCT,
    "rounding": ROUNDING,
    "math": MATH,
    "result": RESULT,
}

SELECT: Mapping[str, Word] = {
    "fixed": Word("the first configuration that the masking allows"),
    "autotune": Word("@triton.autotune over the configurations, keyed on M, N, K"),
    "heuristic": Word("computed from M, N, K and the device"),
    "table": Word("winners measured beforehand, and a model fitted to the measurements for other sizes"),
    "fastest": Word("`table` by measurements that the package ships, which also choose the kernels"),
}

BACKWARD: Mapping[str, Word] = {
    "none": Word("a call for which a gradient would be recorded is refused"),
    "kernels": Word("the family has what the backward pass needs, and registers it with torch's autograd"),
}

INVARIANT: Mapping[str, Word] = {
    "none": Word("what is chosen may depend on M, and with it the last bits of a row of the result"),
    "rows": Word("a row of the result has the same bits for any number of other rows, whatever they hold"),
}

PACKAGE: Mapping[str, Word] = {
    "torch": Word("functions that torch knows: operators, compile, autograd, export, cached launches, `prepare`, `nn`"),
    "plain": Word("kernels and the choice among them, by public interfaces of torch and Triton alone"),
    "files": Word("each kernel a file that stands alone, without functions of contracts"),
}

DEFAULTS: Mapping[str, str] = {
    "batch": "none",
    "epilogue": "none",
    "masking": "auto",
    "swizzle": "grouped",
    "schedule": "tiled",
    "load": "pointer",
    "store": "as_load",
    "product": "direct",
    "rounding": "late",
    "math": "auto",
    "result": "full",
    "select": "heuristic",
    "backward": "none",
    "invariant": "none",
    "package": "torch",
}
