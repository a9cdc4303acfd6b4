"""The data model of a spec: frozen, comparable values that the stages pass on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from generator.epilogue.chain import Epilogue
from generator.language.dtypes import DTYPE_SHORTHANDS, NAMING, PACKINGS, PRECISIONS, SPARSITIES
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.errors import Mistake
from generator.language.measured_winners import Measured
from generator.language.quantised_results import QuantisedResult, quantised_result
from generator.language.storage import Block, Storage, element_of, kind_of
from generator.language.vocabulary import AXES, BATCH, DEFAULTS, LAYOUT_LETTERS, LOAD, SCHEDULE, SWIZZLE
from generator.language.word_traits import Load, Products, Schedule


@dataclass(frozen=True)
class Layout:
    """The memory layouts of A, B and C: `row`, `column` or `strided` each."""

    a: str
    b: str
    c: str

    @property
    def word(self) -> str:
        """The three letters of a spec: `rcr`."""
        return self.a[0] + self.b[0] + self.c[0]

    @classmethod
    def of(cls, letters: str) -> Layout:
        """The layout that three letters name; raise KeyError for another letter."""
        a, b, c = (LAYOUT_LETTERS[letter] for letter in letters)
        return cls(a, b, c)


@dataclass(frozen=True)
class Dtype:
    """Element types of A, B, the accumulator and C, and the precision of the product if it has a choice."""

    a: str
    b: str
    acc: str
    out: str
    precision: str | None
    #: The blocks of A and B that share a scale.
    a_block: Block | None = None
    b_block: Block | None = None
    #: Whether B has a zero point for each scale.
    zeros: bool = False
    #: Whether B stores two of each four elements along K.
    sparse: bool = False
    #: Whether the matrix unit multiplies the operands as they are stored, and by their scales: a scaled product.
    native: bool = False
    #: Whether B's elements lie in words, in the order in which the matrix unit takes them.
    fragments: bool = False

    @cached_property
    def word(self) -> str:
        """The word of the types, and of how the operands are stored: `bf16xint4_fp32_bf16_b128x1`."""
        blocks = [f"{x}{'x'.join(str(size or 'all') for size in sizes)}" for x, sizes in self.scales.items()]
        words = ["zeros"] * self.zeros + ["sparse24"] * self.sparse + ["fragments"] * self.fragments
        return "_".join([self._types, *blocks, *words])

    def scaled_by(self, scales: Mapping[str, Sequence[int]], *, zeros: bool = False) -> Dtype:
        """These types, with blocks of scales as in `scales`, and zero points of B."""
        a, b = scales.get("a"), scales.get("b")
        a_block = None if a is None else Block(along=a[1], across=a[0])
        return replace(self, a_block=a_block, b_block=None if b is None else Block(*b), zeros=zeros)

    @property
    def data(self) -> dict[str, Any]:
        """The types as plain data, from which `from_data` makes them again; of storage only what is not the default."""
        mapping: dict[str, Any] = {key: getattr(self, key) for key in ("a", "b", "acc", "out", "precision")}
        if self.scales:
            mapping["scales"] = {x: list(sizes) for x, sizes in self.scales.items()}
        if self.zeros:
            mapping["zeros"] = {"b": True}
        if self.fragments:
            mapping["packing"] = {"b": PACKINGS[0]}
        return {**mapping, "sparsity": {"b": SPARSITIES[0]}} if self.sparse else mapping

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Dtype:
        """The types of `data`; raise KeyError, TypeError or ValueError for other data."""
        scales = {x: [int(size) for size in sizes] for x, sizes in data.get("scales", {}).items()}
        types = cls(*(data[key] for key in ("a", "b", "acc", "out", "precision")))
        types = types.scaled_by(scales, zeros=bool(data.get("zeros")))
        return replace(types, sparse=bool(data.get("sparsity")), fragments=bool(data.get("packing")))

    @property
    def scales(self) -> dict[str, tuple[int, int]]:
        """The operands with scales, each with the sizes of a block as a spec has them: rows, then columns."""
        a, b = self.a_block, self.b_block
        blocks = {"a": (a.across, a.along)} if a is not None else {}
        return blocks if b is None else {**blocks, "b": (b.along, b.across)}

    @property
    def _types(self) -> str:
        """The shorthand of names; else `a_acc_out` or `axb_acc_out`, and a precision that is not the default."""
        for shorthand in NAMING:
            if DTYPE_SHORTHANDS[shorthand] == (self.a, self.b, self.acc, self.out, self.precision):
                return shorthand
        word = f"{self.a if self.a == self.b else f'{self.a}x{self.b}'}_{self.acc}_{self.out}"
        implied = PRECISIONS.get(self.a, (None,))[0]
        return word if self.precision == implied else f"{word}_{self.precision}"

    @cached_property
    def stored_a(self) -> Storage:
        """How A is stored."""
        return Storage("a", self.a, self._multiplied[0], _block(self.a, self.a_block), native=self.native)

    @cached_property
    def stored_b(self) -> Storage:
        """How B is stored."""
        block = _block(self.b, self.b_block)
        how = self.zeros, self.sparse, self.native, self.fragments
        return Storage("b", self.b, self._multiplied[1], block, *how)

    @cached_property
    def _multiplied(self) -> tuple[str, str]:
        """The types in which A and B are multiplied.

        The matrix unit takes two of 8 bits; else B is converted to A's type, or both to one that has all their values.
        """
        a, b = kind_of(self.a), kind_of(self.b)
        if self.native:
            return a, b
        bits = {element_of(word).bits for word in (a, b)}
        if self.a in FORMATS and 4 in bits:
            return "fp16", "fp16"
        return a, b if bits == {8} else a

    @property
    def stored(self) -> tuple[Storage, Storage]:
        """How A and B are stored."""
        return self.stored_a, self.stored_b

    @property
    def together(self) -> int:
        """The elements along K that cannot be stored apart, of which K is a multiple."""
        return max(storage.together for storage in self.stored)

    @property
    def dense(self) -> str:
        """The type of 16 bits in which others multiply what stored operands stand for: A's, or bf16."""
        return self.a if self.stored_a.bits == 16 else "bf16"

    @property
    def scaled(self) -> bool:
        """Whether an operand has scales."""
        return any(storage.block is not None for storage in self.stored)

    @property
    def plain(self) -> bool:
        """Whether both operands are stored as they are multiplied, without scales."""
        return all(storage.plain for storage in self.stored)

    @property
    def sum(self) -> str:
        """The type of the whole sum, which the epilogue starts from: scales make fp32 of any."""
        return "fp32" if self.scaled else self.acc

    @property
    def whole(self) -> bool:
        """Whether sums are stored as the integers that they are."""
        return self.out == self.sum and not ELEMENTS[self.sum].floating

    @classmethod
    def of(cls, shorthand: str) -> Dtype:
        """The type that a shorthand names; raise KeyError for an unknown one."""
        return cls(*DTYPE_SHORTHANDS[shorthand])


def _block(word: str, block: Block | None) -> Block | None:
    """The blocks of an operand that share a scale: those of its format, or what the spec says."""
    return Block(FORMATS[word].block, 1) if word in FORMATS else block


#: The least rows and columns that the matrix unit needs, of each of the blocks of a tile.
NARROWEST = 16


@dataclass(frozen=True)
class Tile:
    """A configuration: tile sizes in elements, warps, stages, and what the schedule and order need."""

    m: int
    n: int
    k: int
    warps: int
    group: int = 8
    stages: int = 3
    #: How many programs share the K of a tile, if the schedule divides K.
    split: int = 4
    #: How many dies the hardware deals consecutive programs to.
    chiplets: int = 8

    @property
    def several_blocks(self) -> bool:
        """Whether its rows or its columns are a sum of powers of two."""
        return self.m.bit_count() > 1 or self.n.bit_count() > 1


def block_sizes(size: int, count: int) -> tuple[int, ...]:
    """The extents of so many blocks of `size` rows or columns, the largest first: powers of two but the last."""
    # The largest power of two below the size, 0 if there is none.
    first = (1 << (size - 1).bit_length()) >> 1 if size > 0 else 0
    return (size,) if count == 1 else (first, *block_sizes(size - first, count - 1))


#: A value of an axis.
AxisValue = Layout | Dtype | Epilogue | str


def word_of(value: AxisValue) -> str:
    """An axis value as a spec writes it."""
    return value if isinstance(value, str) else value.word


@dataclass(frozen=True)
class Variant:
    """A value for each axis: one kernel, before configurations and targets."""

    layout: Layout
    dtype: Dtype
    batch: str
    epilogue: Epilogue
    masking: str
    swizzle: str
    schedule: str
    load: str
    store: str
    product: str = DEFAULTS["product"]
    rounding: str = DEFAULTS["rounding"]
    math: str = DEFAULTS["math"]
    result: str = DEFAULTS["result"]

    def __post_init__(self) -> None:
        native = self.product == "scaled"
        if self.dtype.native != native:
            object.__setattr__(self, "dtype", replace(self.dtype, native=native))

    def word(self, axis: str) -> str:
        """The axis's value as a spec writes it."""
        return self.words[axis]

    @cached_property
    def words(self) -> dict[str, str]:
        """Every axis with its value as a spec writes it."""
        return {axis: word_of(getattr(self, axis)) for axis in AXES}

    @cached_property
    def contract(self) -> str:
        """The name of what is computed, before the `__`: `gemm_fp16_rcr_bias_relu`."""
        return "_".join(
            [
                *(self.products.prefix, self.dtype.word, self.layout.word, self.epilogue.written),
                *self._later("rounding", "result"),
            ]
        )

    @cached_property
    def name(self) -> str:
        """The kernel's name, an injective function of the axes: contract, `__`, how it is computed."""
        schedule = SCHEDULE[self.schedule].written(self.schedule)
        how = [schedule, self.load, self.masking, self.swizzle, *self._later("store", "product", "math")]
        return f"{self.contract}__{'_'.join(word.replace('_', '') for word in how)}"

    def _later(self, *axes: str) -> list[str]:
        """The values in a kernel's name of axes that are only named if they are not the default."""
        return [axis + word for axis in axes if (word := self.words[axis]) != DEFAULTS[axis]]

    @cached_property
    def chain(self) -> Epilogue:
        """The epilogue as computed: with `rounding: torch` the running value is rounded before each operation."""
        late = self.rounding == DEFAULTS["rounding"]
        return self.epilogue if late else self.epilogue.rounded(self.dtype.sum, self.dtype.out)

    @cached_property
    def quantised(self) -> QuantisedResult | None:
        """How C is stored under scales of its own; None for a C of `dtype.out`."""
        quantisation = self.epilogue.quantisation
        return None if quantisation is None else quantised_result(quantisation)

    @property
    def out(self) -> str:
        """The type of C's elements in memory."""
        return self.dtype.out if self.quantised is None else self.quantised.kind

    @property
    def traits(self) -> Schedule:
        """What the schedule's kernels have: tiles, a loop over K, a workspace, and so on."""
        return SCHEDULE[self.schedule]

    def columns(self, tile: Tile) -> dict[str, int]:
        """The columns of CONFIGS that the order of tiles and the schedule add, with the values of a tile."""
        sizes = block_sizes(tile.m if self.traits.side == "m" else tile.n, self.traits.blocks)
        order, schedule = (
            {column: getattr(tile, key) for column, key in each.columns.items()}
            for each in (SWIZZLE[self.swizzle], self.traits)
        )
        return order | dict(zip(self.traits.sizes_of_blocks, sizes)) | schedule

    @property
    def loading(self) -> Load:
        """What addresses the tiles that the kernel loads."""
        return LOAD[self.load]

    @cached_property
    def multiplied(self) -> Variant:
        """What the kernel with the loop over K computes: the product of a dense B where another kernel makes it."""
        if not self.traits.decodes:
            return self
        dtype = replace(self.dtype, b=self.dtype.stored_b.multiplied, b_block=None, zeros=False, sparse=False)
        dtype = replace(dtype, fragments=False)
        # The scalar units read a row of B from shared memory at once, and a column from the same banks.
        by_row = self.layout.b == "row" or self.dtype.precision == "ieee"
        layout = replace(self.layout, b="row" if by_row else "column")
        return replace(self, layout=layout, dtype=dtype, schedule="persistent")

    @property
    def symmetric(self) -> bool:
        """Whether C is symmetric: what is below the diagonal is not computed, but copied from above it."""
        return self.result == "symmetric"

    @property
    def products(self) -> Products:
        """How many products a call has, and how its operands hold them."""
        return BATCH[self.batch]

    @property
    def exact(self) -> bool:
        """Whether the chain is computed in integers, with operands of the sum's type."""
        return self.dtype.whole and self.epilogue.exact

    @property
    def rounds_between(self) -> bool:
        """Whether the running value is also rounded between operations."""
        return self.chain != self.epilogue


@dataclass(frozen=True)
class Exclusion:
    """Variants that a spec excludes: some axes with their words, and the reason."""

    axes: tuple[tuple[str, frozenset[str]], ...]
    because: str


@dataclass(frozen=True)
class Spec:
    """One spec file, read and validated."""

    path: Path
    digest: str
    name: str
    summary: str
    #: With `select: fastest` an implementation axis that the spec does not name has no values (`portfolio`).
    axes: Mapping[str, tuple[AxisValue, ...]]
    tiles: tuple[Tile, ...] | None
    select: str
    targets: tuple[str, ...]
    triton: SpecifierSet
    exclude: tuple[Exclusion, ...]
    header: tuple[str, ...]
    #: Positions of listed values, for mistakes that only the expansion finds: (key, word) -> (line, column) from 1. For
    #: an entry of `tile` or `exclude` the word is its index; an empty word means the whole value of the key. The key
    #: `tile.split` is there for entries of `tile` that say it, and have several blocks.
    positions: Mapping[tuple[str, str], tuple[int, int]] = field(repr=False)
    #: Measurements of files that the spec names, for `select: table` and `fastest`.
    tuned: tuple[Measured, ...] = ()
    backward: str = DEFAULTS["backward"]
    invariant: str = DEFAULTS["invariant"]
    package: str = DEFAULTS["package"]
    #: The words of the key `with`, in the order of `vocabulary.ADDITIONS`.
    additions: tuple[str, ...] = ()
    #: What a call can run, in the order of `vocabulary.BACKENDS`.
    backends: tuple[str, ...] = ("triton",)
    #: The files that the spec names, whether they exist or not.
    tuned_files: tuple[Path, ...] = ()
    #: What a reader of the spec should know, and is no mistake.
    warnings: tuple[Mistake, ...] = ()

    def mistake(self, message: str, key: str, word: str = "") -> Mistake:
        """A mistake at the place of a key or of one of its words; at the beginning of a file that does not name it."""
        return Mistake(self.path, *self.positions.get((key, word), (1, 1)), message)

    @property
    def rows_alike(self) -> bool:
        """Whether a row of the result has the same bits for any M: nothing that is chosen depends on M."""
        return self.invariant == "rows"
