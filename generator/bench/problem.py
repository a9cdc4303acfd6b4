"""What is multiplied: sizes, types, layout and epilogue, and the work that they mean at the least."""

from __future__ import annotations

from dataclasses import dataclass

from generator.epilogue.chain import Epilogue
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX, ROWS
from generator.language.model import Dtype, Layout
from generator.language.vocabulary import ELEMENTS
from generator.lowering.outputs import REDUCED


@dataclass(frozen=True, order=True)
class Shape:
    """C (M, N) = A (M, K) @ B (K, N), or as many of them as a batch has."""

    m: int
    n: int
    k: int
    #: Elements by which the leading dimension of every matrix is larger than its row or column.
    pad: int = 0
    #: Products of a batch, all operands 3-D; 0 where there is none.
    batch: int = 0

    def __str__(self) -> str:
        front = f"{self.batch}x" if self.batch else ""
        return f"{front}{self.m}x{self.n}x{self.k}" + (f"+{self.pad}" if self.pad else "")

    @property
    def numbers(self) -> list[int]:
        """M, N and K, with the padding and the batch where there are: as a file keeps a shape."""
        more = [self.pad, self.batch] if self.batch else [self.pad] if self.pad else []
        return [self.m, self.n, self.k, *more]

    @property
    def sizes(self) -> tuple[int, ...]:
        """M, N and K, behind the products of a batch where there is one."""
        return (*self.front, self.m, self.n, self.k)

    @property
    def front(self) -> tuple[int, ...]:
        """The extents in front of a matrix's rows."""
        return (self.batch,) if self.batch else ()


@dataclass(frozen=True)
class Problem:
    """A product as both sides compute it; the layout has no `strided`, for operands lie in memory one way."""

    shape: Shape
    dtype: Dtype
    layout: Layout
    epilogue: Epilogue

    @property
    def columns(self) -> int:
        """The columns of B: as many as C has, or two for each where a gate makes one of them."""
        return self.shape.n * self.epilogue.columns_of_b

    @property
    def flops(self) -> int:
        """Operations of the product, an addition and a multiplication counted as two."""
        return 2 * self.shape.m * self.columns * self.shape.k * (self.shape.batch or 1)

    @property
    def bytes(self) -> int:
        """The fewest bytes moved: every input read once, the output written once."""
        m, n, k, count = self.shape.m, self.shape.n, self.shape.k, self.shape.batch or 1
        bits = (ELEMENTS[self.dtype.a].bits * m * k + ELEMENTS[self.dtype.b].bits * k * self.columns) * count
        bits += ELEMENTS[self.dtype.out].bits * m * n * count
        sizes = {ROWS: m, COLUMNS: n, HALVES: 2 * n, MATRIX: m * n * count}
        for operand in self.epilogue.operands:
            bits += ELEMENTS[self.operand_type].bits * sizes.get(operand.shape, 0)
        for output in self.epilogue.outputs:
            bits += ELEMENTS[REDUCED if output.tap.reduction else self.dtype.out].bits * sizes[output.shape]
        return bits // 8

    @property
    def operand_type(self) -> str:
        """The element type that epilogue operands get: the output's of a product of 16 bits or more, or A's where the
        output is a narrow one; fp32 beside operands of 8 bits, whose scales these are.
        """
        narrow = ELEMENTS[self.dtype.out].bits == 8
        return "fp32" if ELEMENTS[self.dtype.a].bits == 8 else self.dtype.a if narrow else self.dtype.out


def shared_layout(layouts: list[Layout]) -> Layout:
    """The layout in which operands serve all `layouts`: `strided` takes any, and means row-major where all do.

    Raises ValueError where two disagree.
    """
    letters = []
    for operand in ("a", "b", "c"):
        fixed = {getattr(layout, operand) for layout in layouts} - {"strided"}
        if len(fixed) > 1:
            raise ValueError(f"operand {operand} is {' and '.join(sorted(fixed))}: they cannot share operands")
        letters.append(fixed.pop() if fixed else "row")
    return Layout(*letters)
