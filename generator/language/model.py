"""The values that travel between the stages: all frozen, all comparable, none with a string-keyed dictionary inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.specifiers import SpecifierSet

from generator.epilogue.chain import Epilogue
from generator.language.vocabulary import (
    AXES,
    DEFAULTS,
    DTYPE_SHORTHANDS,
    LAYOUT_LETTERS,
    PRECISIONS,
    SCHEDULE,
    Schedule,
)


@dataclass(frozen=True)
class Layout:
    """How A, B and C lie in memory: `row`, `column` or `strided` each."""

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
    """Element types of A, B, the accumulator and C, and the precision of the product where it has a choice."""

    a: str
    b: str
    acc: str
    out: str
    precision: str | None

    @cached_property
    def word(self) -> str:
        """The shorthand where there is one; else `a_acc_out` or `axb_acc_out`, and a precision that is not implied."""
        for shorthand, parts in DTYPE_SHORTHANDS.items():
            if parts == (self.a, self.b, self.acc, self.out, self.precision):
                return shorthand
        word = f"{self.a if self.a == self.b else f'{self.a}x{self.b}'}_{self.acc}_{self.out}"
        implied = PRECISIONS.get(self.a, (None,))[0]
        return word if self.precision == implied else f"{word}_{self.precision}"

    @classmethod
    def of(cls, shorthand: str) -> Dtype:
        """The type that a shorthand names; raise KeyError for an unknown one."""
        return cls(*DTYPE_SHORTHANDS[shorthand])


@dataclass(frozen=True)
class Tile:
    """A row of a kernel's table: tile sizes in elements, and how a program of that size is launched."""

    m: int
    n: int
    k: int
    warps: int
    group: int = 8
    stages: int = 3
    #: The programs that share a tile's K, where the schedule divides it.
    split: int = 4
    #: The dies over which the hardware deals consecutive programs.
    chiplets: int = 8

    @property
    def left(self) -> int:
        """The largest power of two below n: the columns at the left of a tile of two widths."""
        return 1 << ((self.n - 1).bit_length() - 1)

    @property
    def right(self) -> int:
        """The columns beside those."""
        return self.n - self.left


#: A value of an axis.
AxisValue = Layout | Dtype | Epilogue | str


def word_of(value: AxisValue) -> str:
    """An axis value as a spec writes it."""
    return value if isinstance(value, str) else value.word


@dataclass(frozen=True)
class Variant:
    """One point of the family's product: a value for each axis."""

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
        kind = "gemm" if self.batch == "none" else "bmm"
        return "_".join([kind, self.dtype.word, self.layout.word, self.epilogue.written, *self._later("rounding")])

    @cached_property
    def name(self) -> str:
        """The kernel's name, an injective function of the axes: contract, `__`, how it is computed."""
        how = [self.schedule, self.load, self.masking, self.swizzle, *self._later("store", "product", "math")]
        return f"{self.contract}__{'_'.join(word.replace('_', '') for word in how)}"

    def _later(self, *axes: str) -> list[str]:
        """Axes that came later are named where they are off their default."""
        return [axis + word for axis in axes if (word := self.words[axis]) != DEFAULTS[axis]]

    @cached_property
    def chain(self) -> Epilogue:
        """The epilogue as it is computed: with `rounding: torch` the running value is rounded before each operation."""
        late = self.rounding == DEFAULTS["rounding"]
        return self.epilogue if late else self.epilogue.rounded(self.dtype.acc, self.dtype.out)

    @property
    def traits(self) -> Schedule:
        """What the schedule's kernels have: tiles, a loop over K, a workspace, and so on."""
        return SCHEDULE[self.schedule]

    @property
    def rounds_between(self) -> bool:
        """Whether the running value is rounded before operations, too."""
        return self.chain != self.epilogue


@dataclass(frozen=True)
class Exclusion:
    """Variants that a spec takes out: some axes with the words they may have, and why."""

    axes: tuple[tuple[str, frozenset[str]], ...]
    because: str

    def matches(self, variant: Variant) -> bool:
        """Whether every axis named has one of its words."""
        return all(variant.word(axis) in words for axis, words in self.axes)


#: What `generator.cost.fitted.seconds` takes of one row.
Rates = tuple[float, ...]


@dataclass(frozen=True)
class Winner:
    """The kernel and row that were fastest at one size."""

    contract: str
    sizes: tuple[int, ...]
    how: str
    row: Mapping[str, int]


@dataclass(frozen=True)
class Fitted:
    """The rates of one row of a kernel's table."""

    contract: str
    how: str
    row: Mapping[str, int]
    rates: Rates


@dataclass(frozen=True)
class Measured:
    """What was measured on one device."""

    device: str
    winners: tuple[Winner, ...]
    fitted: tuple[Fitted, ...]
    #: The model's error in seconds against the measurements it was fitted to, and what its choice loses.
    error: float
    regret: float


@dataclass(frozen=True)
class Spec:
    """One spec file, read and validated."""

    path: Path
    digest: str
    name: str
    summary: str
    axes: Mapping[str, tuple[AxisValue, ...]]
    tiles: tuple[Tile, ...] | None
    select: str
    targets: tuple[str, ...]
    triton: SpecifierSet
    exclude: tuple[Exclusion, ...]
    header: tuple[str, ...]
    #: Where each listed value stands, for what only the expansion finds: (key, word) -> (line, column) from 1. The word
    #: of an entry of `tile` or `exclude` is its number, from 0; an empty word is for all that stands under a key.
    positions: Mapping[tuple[str, str], tuple[int, int]] = field(repr=False)
    #: What was measured, for `select: table`.
    tuned: tuple[Measured, ...] = ()
