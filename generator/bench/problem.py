"""A problem to time: sizes, types, layout and epilogue, with its operations and the least bytes that it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from generator.epilogue.chain import Epilogue
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX, ROWS
from generator.language.model import Dtype, Layout, Variant
from generator.language.vocabulary import DEFAULTS, ELEMENTS, IMPLEMENTATION_AXES
from generator.plan.call import REDUCED, Call, call

#: Classes of products by M, each with its least and its largest M.
ROW_CLASSES: Mapping[str, tuple[int, float]] = {
    "M up to 64": (1, 64),
    "M 65 to 1024": (65, 1024),
    "larger M": (1025, math.inf),
}


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

    def __str__(self) -> str:
        front = f"{self.batch}x" if self.batch else ""
        return f"{front}{self.m}x{self.n}x{self.k}" + (f"+{self.pad}" if self.pad else "")

    @property
    def numbers(self) -> list[int]:
        """M, N and K, then the padding and the batch if there are any: a shape as JSON stores it."""
        more = [self.pad, self.batch] if self.batch else [self.pad] if self.pad else []
        return [self.m, self.n, self.k, *more]

    @property
    def sizes(self) -> tuple[int, ...]:
        """M, N and K, after the number of products if there is a batch."""
        return (*self.front, self.m, self.n, self.k)

    @property
    def front(self) -> tuple[int, ...]:
        """The sizes of the dimensions before a matrix's rows."""
        return (self.batch,) if self.batch else ()


@dataclass(frozen=True)
class Problem:
    """A product with its epilogue; its layout is that of the operands in memory, so it is never `strided`."""

    shape: Shape
    dtype: Dtype
    layout: Layout
    epilogue: Epilogue

    @property
    def columns(self) -> int:
        """The columns of B: as many as C has, or twice as many with a gated linear unit."""
        return self.shape.n * self.epilogue.columns_of_b

    @property
    def call(self) -> Call:
        """The call of a kernel that computes it."""
        words = {axis: DEFAULTS[axis] for axis in IMPLEMENTATION_AXES}
        batch = "strided" if self.shape.batch else "none"
        return call(Variant(self.layout, self.dtype, batch, self.epilogue, **words))

    @property
    def flops(self) -> int:
        """Operations of the product, where a multiplication and an addition are two operations."""
        return 2 * self.shape.m * self.columns * self.shape.k * (self.shape.batch or 1)

    @property
    def bytes(self) -> int:
        """The least bytes moved: every input is read once, and every output is written once."""
        m, n, k, count = self.shape.m, self.shape.n, self.shape.k, self.shape.batch or 1
        bits = (self.dtype.stored_a.bits * m * k + self.dtype.stored_b.bits * k * self.columns) * count
        bits += ELEMENTS[self.dtype.out].bits * m * n * count
        extents = dict(zip("BMNK", (count, m, n, k), strict=True))
        widths = {storage.scale: 8 if storage.bytewise else 32 for storage in self.dtype.stored}
        bits += sum(widths.get(x.name, 32) * math.prod(x.sizes(extents)) for x in self.call.stored)
        sizes = {ROWS: m, COLUMNS: n, HALVES: 2 * n, MATRIX: m * n * count}
        for operand in self.epilogue.operands:
            bits += ELEMENTS[self.operand_type].bits * sizes.get(operand.shape, 0)
        for output in self.epilogue.outputs:
            bits += ELEMENTS[REDUCED if output.writer.reduction else self.dtype.out].bits * sizes[output.shape]
        return bits // 8

    @property
    def aligned_rows(self) -> bool:
        """Whether the leading dimensions of A, B and C are multiples of 16 bytes."""
        m, n, k = self.shape.m, self.columns, self.shape.k
        extents = (
            (self.layout.a, self.dtype.stored_a.bits, m, k),
            (self.layout.b, self.dtype.stored_b.bits, k, n),
            (self.layout.c, ELEMENTS[self.dtype.out].bits, m, self.shape.n),
        )
        return all(
            ((rows if order == "column" else columns) + self.shape.pad) * bits % 128 == 0
            for order, bits, rows, columns in extents
        )

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
