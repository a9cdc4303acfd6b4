"""The words of the spec language: every axis and value, and its meaning.

Nothing else in the project lists axis values, but for those of `dtype`, which follow from `elements.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from generator.language import tile_orders
from generator.language.features import CHAINS, LOADS, SEVERAL, STORED, Feature
from generator.language.word_traits import Load, Masking, Order, Products, Schedule, Word

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
    handles=(*_TILES, Feature.SCALED, Feature.SUMMED, Feature.SYMMETRIC, Feature.INVARIANT),
)


def _of_several_blocks(meaning: str, base: Schedule, front: str = "") -> dict[str, Schedule]:
    """The words for tiles that are several blocks; `meaning` has a place for how these lie."""
    return {
        f"{front}{word}{end}": replace(base, meaning=meaning.format(f"{number} {lie}"), blocks=blocks, side=side)
        for word, number, blocks in (("paired", "two", 2), ("tripled", "three", 3))
        for side, end, lie in (("n", "", "widths side by side"), ("m", "_m", "heights one above the other"))
    }


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
    **_of_several_blocks(
        "one program computes a tile of {}, in a loop over K", Schedule("", template="paired", rank=2, handles=_BLOCKS)
    ),
    "persistent": Schedule(
        "as many programs as the device runs at once, each computing several tiles",
        walks=True,
        indent=8,
        rank=1,
        handles=(*_TILES, *SEVERAL, Feature.SCALED, Feature.SYMMETRIC, Feature.INVARIANT),
    ),
    "split_k": _SPLIT_K,
    **_of_several_blocks(
        "K of tiles of {} divided over programs, reduced in a fixed order",
        replace(_SPLIT_K, template="split_k", rank=4, handles=_BLOCKS_OF_SUMS),
        "split_k_",
    ),
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
TILED, PAIRED, SPLIT_K = "tiled", "paired", "split_k"


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
    "torch": Word("functions that torch knows: operators, compile, autograd, export, cached launches, `nn`"),
    "plain": Word("kernels and the choice among them, by public interfaces of torch and Triton alone"),
    "files": Word("each kernel a file that stands alone, without functions of contracts"),
}

#: The keys with one word for the family, which is a field of its `Spec`.
CHOICES: Mapping[str, Mapping[str, Word]] = {
    "select": SELECT,
    "backward": BACKWARD,
    "invariant": INVARIANT,
    "package": PACKAGE,
}

#: The words of the key `with`: what a family of `package: torch` brings beside its functions, each a module of its own.
ADDITIONS: Mapping[str, Word] = {
    "inductor": Word("`family.inductor.install()`: the products of graphs that `torch.compile` compiles"),
    "aten": Word("`family.override_aten()`: torch's products in eager mode"),
    "prepare": Word("`f.prepare(N, K, M=…)`: compiling before the first call"),
    "dtensor": Word("sharding rules, by which functions take operands of the class DTensor"),
    "experts": Word("`nn.Experts` and `nn.replace_experts`: the experts of a mixture"),
    "torchao": Word("`family.ao`: weights of linear layers that torchao's `quantize_` packs"),
}

#: The words of the key `backends`, of which the first is always there.
BACKENDS: Mapping[str, Word] = {
    "triton": Word("the family's kernels"),
    "aten": Word(
        "torch's own product, where one operator of torch computes the contract, at sizes where the measurements of "
        "the device say that it is faster"
    ),
}

#: Every key whose values are plain words.
ALL_WORDS: Mapping[str, Mapping[str, Word]] = {**WORDS, **CHOICES, "with": ADDITIONS, "backends": BACKENDS}

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
