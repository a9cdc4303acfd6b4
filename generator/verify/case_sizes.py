"""One case: a call of a kernel by its sizes, layouts and values, and the sizes that a configuration supports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from generator.epilogue.gated_units import CONCATENATED
from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant
from generator.plan import variant_rules
from generator.problem.grouping import extents


@dataclass(frozen=True)
class Case:
    """One call of a kernel: its sizes (M, N, K), its operands' layouts and values, and the reason for it."""

    name: str
    reason: str
    sizes: tuple[int, int, int]
    #: Index into CONFIGS; None leaves the choice to the launcher, which may need a GPU for it (autotuning).
    row: int | None
    #: Leading dimensions longer than the matrix needs.
    padded: bool = False
    #: Operands that start one element past an aligned address.
    unaligned: bool = False
    #: Infinity and NaN among the inputs.
    special: bool = False
    #: The operand whose offsets exceed 2**31 elements.
    huge: str = ""
    #: The type of the epilogue's vectors and matrices, and of a scalar that is a tensor.
    operand_type: str = "fp32"
    scalar_tensor: bool = False
    #: That tensor is on the CPU, whatever the device of the operands.
    scalar_elsewhere: bool = False
    #: A dimension of one element has an arbitrary stride.
    odd_single: bool = False
    #: a is scaled by two to this power, and b by two to its negative.
    shift: int = 0
    #: Scales of b that are powers of two begin at the least one, and a is larger.
    least: bool = False
    #: Layout of the operands whose layout is `strided`: "row", "column", or "gaps" along both dimensions.
    strided: str = "row"
    #: Whether the caller supplies the result's tensor; if not, the launcher allocates it.
    given_out: bool = True
    #: The number of matrices in a batch, the operand with one matrix for the whole batch, the operand whose batch
    #: stride makes offsets exceed 2**31 elements, and whether lines of the matrices are interleaved. Only for a batch.
    batch: int = 2
    repeated: str = ""
    apart: str = ""
    interleaved: bool = False
    #: The ends of groups, as `offsets` has them; None for a group of a third of all, one of none, and one of the rest.
    ends: tuple[int, ...] | None = None
    #: A number that multiplies C is 0, and C has infinity and NaN.
    beta_zero: bool = False
    #: Whether the rows of A are named, of which it then has a few more. Only for groups of rows.
    named: bool = False
    #: Whether the rows of C are named, of which it then has a few more. Only for groups of rows.
    scattered: bool = False
    #: On a GPU the case runs twice, and the results are compared bit for bit.
    repeat: bool = False

    def but(self, name: str, reason: str, **changes: Any) -> Case:
        """The same call with some changes, under another name and for another reason."""
        return replace(self, name=name, reason=reason, **changes)

    def offsets(self, total: int) -> tuple[int, ...]:
        """The ends of the groups that an extent of `total` is divided into."""
        return (total // 3, total // 3, total) if self.ends is None else self.ends


@dataclass(frozen=True)
class Fit:
    """Rounds the sizes of a case to sizes that one configuration supports."""

    variant: Variant
    tile: Tile
    #: The configuration's index, which its cases name; None leaves the choice to the launcher.
    row: int | None = None

    @property
    def unit(self) -> tuple[int, int, int]:
        """The sizes of a tile (M, N, K); a few elements if one program computes one element."""
        return (2, 2, 2) if not self.variant.traits.tiled else (self.tile.m, self.tile.n, self.tile.k)

    @property
    def primes(self) -> tuple[int, int, int]:
        """Prime sizes (M, N, K), each smaller than a tile."""
        if not self.variant.traits.tiled:
            return 3, 5, 2
        return _prime(self.tile.m), _prime(self.tile.n), _prime(self.tile.k)

    def case(self, name: str, reason: str, m: int, n: int, k: int, **rest: Any) -> Case:
        """A call of the nearest supported sizes with this configuration."""
        return Case(name, reason, self(m, n, k), self.row, **rest)

    def __call__(self, m: int, n: int, k: int) -> tuple[int, int, int]:
        """The nearest supported sizes that are not smaller; K is limited where one tile must hold it.

        Of a symmetric result M and N are the larger one of the two, or 0 where one is.
        """
        if self.variant.symmetric:
            m = n = max(m, n) if m and n else 0
        ragged = variant_rules.ragged(self.variant.masking)
        together = self.variant.dtype.together
        k = -(-k // together) * together
        if not self.variant.traits.tiled:
            return m, n, k
        if not self.variant.traits.looped:
            k = min(k, self.tile.k)
        # A symmetric result's M is its N.
        multiples = (self.tile.n if self.variant.symmetric else self.tile.m, self.tile.n, self.tile.k)
        m, n, k = (
            size if ragged[dimension] is not False else -(-size // block) * block
            for dimension, size, block in zip("mnk", (m, n, k), multiples, strict=True)
        )
        step, read = written_step(self.variant), read_step(self.variant)
        if self.variant.layout.c == "column":
            return -(-m // step) * step, -(-n // read) * read, k
        step = max(step, read, 1 if self.variant.quantised is None else self.variant.quantised.packed)
        return m, -(-n // step) * step, k


def written_step(variant: Variant) -> int:
    """The inner extent of C must be a multiple of this many elements: 16 bytes if the hardware copies it, else 1."""
    if not variant.loading.descriptors or variant.store != "as_load":
        return 1
    return 16 * 8 // ELEMENTS[variant.out].bits


def read_step(variant: Variant) -> int:
    """N must be a multiple of this many elements: 16 bytes if descriptors read the second half of B's rows, else 1."""
    if not variant.loading.descriptors or variant.epilogue.order != CONCATENATED or variant.layout.b != "row":
        return 1
    return 16 * 8 // variant.multiplied.dtype.stored_b.bits


#: How many rows A, or C, has besides those that the products have, where its rows are named.
_MORE_ROWS = 3


def sizes_of(variant: Variant, case: Case) -> Mapping[str, int]:
    """The sizes of a call by name: B, M, N and K; of groups also their number G, and T, the extent that they divide."""
    divided = variant.products.divided
    sizes = dict(zip("MNK", case.sizes, strict=True))
    groups = len(case.offsets(sizes[divided])) if divided else 0
    more, places = _MORE_ROWS * case.named, _MORE_ROWS * case.scattered
    return extents(*case.sizes, batch=case.batch, groups=groups, divided=divided, more=more, places=places)


def leading_extents(variant: Variant, case: Case) -> tuple[int, ...]:
    """The extents in front of those of C: the number of matrices where there are several, or nothing."""
    products = variant.products
    return () if products.divided == "M" else tuple(sizes_of(variant, case)[size] for size in products.front)


def _prime(limit: int) -> int:
    """The largest prime below `limit`; 1 if there is none."""
    return next((p for p in range(limit - 1, 1, -1) if all(p % d for d in range(2, p))), 1)
