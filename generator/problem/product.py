"""A problem to time: sizes, types, layout and epilogue, with its operations and the least bytes that it moves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from generator.epilogue.chain import Epilogue
from generator.language import measured_values as values
from generator.language.call_numbers import too_large
from generator.language.elements import ELEMENTS
from generator.language.measured_values import LARGEST_SIZE, Unfit
from generator.language.model import Dtype, Layout, Variant
from generator.language.quantised_results import QuantisedResult, quantised_result
from generator.language.storage import element_of
from generator.language.vocabulary import DEFAULTS, IMPLEMENTATION_AXES
from generator.plan.contract_call import Argument, ContractCall, call
from generator.problem.grouping import EVEN, ROUTING, ends, extents
from generator.runtime import spreading

#: Classes of products by M, each with its least and its largest M.
ROW_CLASSES = {"M up to 64": (1, 64), "M 65 to 1024": (65, 1024), "larger M": (1025, math.inf)}

#: The largest `pad` of a shape.
LARGEST_PAD = 999_999
#: The most groups, and the most rows, or columns of A, in groups: for each of them its group is drawn.
MOST_GROUPS, MOST_IN_GROUPS = 1 << 16, 1 << 22


@dataclass(frozen=True, order=True)
class Shape:
    """C (M, N) = A (M, K) @ B (K, N), or as many of them as a batch has."""

    m: int
    n: int
    k: int
    #: Elements by which the leading dimension of every matrix is larger than its row or column.
    pad: int = 0
    #: Products of a batch, with all operands 3-D; 0 if there is no batch.
    batch: int = 0
    #: Groups of the rows, each with a matrix of B of its own, or of K, each with a C of its own; 0 without groups.
    groups: int = 0
    #: How the rows, or K, are spread over the groups, a word of `ROUTING`; empty without groups.
    routing: str = ""
    #: Whether K is in groups, and not the rows.
    inner: bool = False

    def __str__(self) -> str:
        front = f"{self.batch}x" if self.batch else f"{self.groups}g" if self.groups else ""
        routing = f":{self.routing}" if self.routing not in ("", EVEN) else ""
        return f"{front}{self.m}x{self.n}x{self.k}" + (f"+{self.pad}" if self.pad else "") + routing

    @property
    def numbers(self) -> list[int | str]:
        """M, N and K, then the other fields as far as any is not 0 or empty: a shape as JSON stores it."""
        values = list(astuple(self))
        while not values[-1]:
            values.pop()
        return values

    @property
    def fault(self) -> str | None:
        """Why there is no such product, or None if there is one."""
        if not all(1 <= size <= LARGEST_SIZE for size in (self.m, self.n, self.k, self.batch or 1)):
            return f"a size is not a whole number from 1 to {LARGEST_SIZE}"
        reason = too_large(self.m, self.n, self.k, self.batch or 1)
        if reason is not None:
            return reason
        if not 0 <= self.pad <= LARGEST_PAD:
            return f"{self.pad} elements of padding, and at most {LARGEST_PAD} are possible"
        if self.groups and (self.groups > MOST_GROUPS or self.total > MOST_IN_GROUPS):
            return f"{self.total} in {self.groups} groups, and at most {MOST_IN_GROUPS} in {MOST_GROUPS} are possible"
        if (self.batch and self.groups) or (self.inner and not self.groups):
            return "a product is one of a batch, or of groups"
        if self.routing not in (ROUTING if self.groups else ("",)):
            words = f"one of {', '.join(ROUTING)}" if self.groups else "nothing, for there are no groups"
            return f"the routing is {self.routing!r}; expected {words}"
        return None

    @property
    def sizes(self) -> tuple[int, ...]:
        """M, N and K, after the number of products if there are several.

        Of groups, as cost models take them: those that rows can reach, all of as many rows, or of the same K.
        """
        return self.ways[0]

    @property
    def ways(self) -> list[tuple[int, ...]]:
        """The `sizes`, and those for other ways in which groups may be filled, as the choice weighs them."""
        if self.groups:
            own = {"M": self.m} if self.inner else {"K": self.k}
            return spreading.of_groups({"G": self.groups, "T": self.total, "N": self.n, **own})
        return [(self.batch, self.m, self.n, self.k) if self.batch else (self.m, self.n, self.k)]

    @property
    def products(self) -> str:
        """How a call holds its products: a word of `BATCH`."""
        if self.groups:
            return "grouped_k" if self.inner else "grouped"
        return "strided" if self.batch else "none"

    @property
    def total(self) -> int:
        """What is in groups: rows, or columns of A."""
        return self.k if self.inner else self.m

    @property
    def extents(self) -> Mapping[str, int]:
        """The sizes of a call by their names."""
        divided = ("K" if self.inner else "M") if self.groups else None
        return extents(self.m, self.n, self.k, batch=self.batch or 1, groups=self.groups, divided=divided)

    @property
    def ends(self) -> tuple[int, ...]:
        """The end of each group."""
        return ends(self.total, self.groups, self.routing)

    @property
    def reached(self) -> int:
        """The products that have a result: of a batch all, of groups of rows those with any."""
        if self.groups and not self.inner:
            return len({end for end in self.ends if end})
        return self.groups or self.batch or 1


#: The schema of `Shape.numbers`.
SHAPE = {
    "type": "array",
    "items": [*[values.SIZE] * 3, *[values.PRODUCTS] * 3, values.TEXT, values.SWITCH],
    "additionalItems": False,
    "minItems": 3,
}


def shape_of(numbers: Sequence[Any], *steps: str | int) -> Shape:
    """The shape with these `numbers`, which have the schema `SHAPE`; raises `Unfit` if there is none."""
    shape = Shape(*numbers)
    fault = shape.fault
    if fault is None and shape.numbers != list(numbers):
        fault = "0, false and nothing are left out at the end"
    if fault is not None:
        raise Unfit(fault, *steps)
    return shape


@dataclass(frozen=True)
class Problem:
    """A product with its epilogue; its layout is that of the operands in memory, so it is never `strided`."""

    shape: Shape
    dtype: Dtype
    layout: Layout
    epilogue: Epilogue
    #: Whether it is a product of A and A^T, of whose symmetric result one half is computed.
    symmetric: bool = False

    @property
    def columns(self) -> int:
        """The columns of B: as many as C has, or twice as many with a gated linear unit."""
        return self.shape.n * self.epilogue.columns_of_b

    @property
    def call(self) -> ContractCall:
        """The call of a kernel that computes it."""
        words = {axis: DEFAULTS[axis] for axis in IMPLEMENTATION_AXES}
        return call(Variant(self.layout, self.dtype, self.shape.products, self.epilogue, **words))

    @property
    def quantised(self) -> QuantisedResult | None:
        """How the result is stored under scales of its own; None for one of the type that the problem says."""
        quantisation = self.epilogue.quantisation
        return None if quantisation is None else quantised_result(quantisation)

    @property
    def flops(self) -> int:
        """Operations of the product, where a multiplication and an addition are two operations.

        Of a symmetric result those of the elements on and above the diagonal.
        """
        computed = self.shape.m + 1 if self.symmetric else 2 * self.columns
        return self.shape.m * computed * self.shape.k * (self.shape.batch or 1)

    @property
    def bytes(self) -> int:
        """The least bytes moved: every input is read once, and every output is written once.

        What belongs to groups without rows is not moved.
        """
        reached, of = self.shape.reached, self.shape.groups or 1
        return sum(bits * reached // of if x.extents[0] == "G" else bits for x, bits in self._tensors()) // 8

    @property
    def held(self) -> int:
        """The bytes of all operands and results."""
        return sum(bits for _, bits in self._tensors()) // 8

    def _tensors(self) -> Iterator[tuple[Argument, int]]:
        """The operands and results, each with its bits."""
        for x in (*self.call.tensors, *self.call.results):
            if self.symmetric and x.name == "b":
                # It is A, read in another layout.
                continue
            yield x, element_of(self.type_of(x)).bits * math.prod(x.sizes(self.shape.extents)[x.shared :])

    def type_of(self, x: Argument) -> str:
        """The type of an operand or result; the first of those that scales may have, fp32 or a byte."""
        if isinstance(x.dtype, str):
            return x.dtype
        return self.operand_type if x.dtype is None else x.dtype[0]

    @property
    def aligned_rows(self) -> bool:
        """Whether the leading dimensions of A, B and C are multiples of 16 bytes."""
        out = self.dtype.out if self.quantised is None else self.quantised.kind
        bits = self.dtype.stored_a.bits, self.dtype.stored_b.bits, ELEMENTS[out].bits
        return all(pitch * each % 128 == 0 for pitch, each in zip(self.pitches, bits, strict=True))

    @property
    def pitches(self) -> tuple[int, int, int]:
        """The leading dimensions of A, B and C, in elements."""
        shape, layout = self.shape, self.layout
        shapes = ((layout.a, (shape.m, shape.k)), (layout.b, (shape.k, self.columns)), (layout.c, (shape.m, shape.n)))
        a, b, c = (max(matrix_strides(each, order == "column", pad=shape.pad)) for order, each in shapes)
        return a, b, c

    @property
    def operand_type(self) -> str:
        """The element type of epilogue operands.

        It is fp32 if A has 8 bits, because the operands are then scales; else A's type if the output has 8 bits; else
        the output's type.
        """
        narrow = ELEMENTS[self.dtype.out].bits == 8
        return "fp32" if self.dtype.stored_a.bits == 8 else self.dtype.a if narrow else self.dtype.out


def shared_layout(layouts: list[Layout]) -> Layout:
    """The layout of operands that all `layouts` accept: `strided` accepts any, and is row-major if all are strided.

    Raises ValueError if two layouts do not agree.
    """
    letters = []
    for operand in ("a", "b", "c"):
        fixed = {getattr(layout, operand) for layout in layouts} - {"strided"}
        if len(fixed) > 1:
            raise ValueError(f"operand {operand} is {' and '.join(sorted(fixed))}: they cannot share operands")
        letters.append(fixed.pop() if fixed else "row")
    return Layout(*letters)


def matrix_strides(
    shape: Sequence[int], column: bool, *, pad: int = 0, multiple: int = 1, unit: int = 1
) -> tuple[int, int]:
    """The strides in elements of a matrix of this shape, whose columns are contiguous if `column`, else its rows.

    The leading dimension is larger than a line by `pad`, rounded up to `multiple`; all strides are times `unit`.
    """
    leading = shape[0] if column else shape[1]
    outer = max(-(-(leading + pad) // multiple), 1) * multiple * unit
    return (unit, outer) if column else (outer, unit)
