"""A call of a contract: what it is given, what it returns, and the shape, type and layout of each.

Launchers, docstrings, manifests and the harness follow from this description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, HALVES, MATRIX, ROWS, SCALAR
from generator.epilogue.quantisation import OUT_SCALE
from generator.language.model import Variant
from generator.language.storage import CONTAINER, POSITIONED, SCALE_TYPES, ZERO_TYPES, Storage, element_of
from generator.language.word_traits import Products
from generator.plan.extents import Amount, K, M, N, R, T, operation

#: The extents of a tensor's dimensions.
Shape: TypeAlias = tuple[Amount | int, ...]

#: The type of sums and maxima of the running value.
REDUCED = "fp32"

#: Layout -> the dimension of a matrix that has stride 1, None where any strides are taken.
_UNITS = {"row": 1, "column": 0, "strided": None}

_SHAPES: Mapping[str, Shape] = {
    SCALAR: (),
    ELEMENT: (1,),
    ROWS: (M,),
    COLUMNS: (N,),
    HALVES: (2 * N,),
    MATRIX: (M, N),
    BOTH: (M, 2 * N),
}


@dataclass(frozen=True)
class Argument:
    """An operand, the result or an auxiliary output of a call."""

    name: str
    #: The extent of each dimension, by the sizes of the call; none of a number.
    dimensions: Shape
    #: The element type, or those that are taken; None where any floating type is.
    dtype: str | tuple[str, ...] | None = None
    #: The layout of a matrix, or of each matrix of a batch; empty for vectors and numbers.
    layout: str = ""
    #: Whether the products may share one, which then lacks the first dimension.
    shared: bool = False

    @property
    def extents(self) -> tuple[str, ...]:
        """The extents as source: `("B", "K // 2", "2 * N")`."""
        return tuple(map(str, self.dimensions))

    @property
    def number(self) -> bool:
        """Whether it is a real number, or a tensor of one element."""
        return not self.dimensions

    @property
    def words(self) -> str:
        """The shape as the call of a kernel has it: `M K//2`, `cdiv(K,128) N`."""
        return " ".join(word.replace(" ", "") for word in self.extents)

    @property
    def description(self) -> str:
        """The shape as a docstring has it: `(ceil(K / 128), N)`."""
        listed = f"({', '.join(self.extents)}{',' if len(self.extents) == 1 else ''})"
        return _CEILING.sub(r"ceil(\1 / \2)", listed.replace(" // ", " / "))

    @property
    def torch_dtype(self) -> str:
        """The type as source: `torch.bfloat16`, or `None` where any floating type is taken.

        The types of scales have a name, `SCALES`, in `runtime.call`.
        """
        if isinstance(self.dtype, tuple):
            more = "".join(f", torch.{element_of(word).torch}" for word in self.dtype if word not in SCALE_TYPES)
            if SCALE_TYPES[0] not in self.dtype:
                return f"({more[2:]})"
            return f"(*SCALES{more})" if more else "SCALES"
        return f"torch.{element_of(self.dtype).torch}" if self.dtype else "None"

    @property
    def unit(self) -> int | None:
        """The dimension that has stride 1; None where there is none, and where any strides are taken."""
        unit = _UNITS[self.layout] if self.layout else 1 if self.extents else None
        return None if unit is None else unit + len(self.extents) - 2

    def sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The extents as numbers, for the `sizes` by name."""
        return tuple(x if isinstance(x, int) else x.of(sizes) for x in self.dimensions)


@dataclass(frozen=True)
class ContractCall:
    """The operands and results of a contract, each under the launcher's keyword."""

    a: Argument
    b: Argument
    #: What divides the products, in front of the keywords.
    offsets: Argument | None
    #: What may name the row of A for each row of the products, an optional keyword.
    rows: Argument | None
    #: What may name the row of the result for each row of the products, an optional keyword.
    scatter: Argument | None
    #: What belongs to A and B as they are stored: scales and zero points.
    stored: tuple[Argument, ...]
    #: What the epilogue reads, in the order of its steps, and what it writes beside the result, in the same order.
    operands: tuple[Argument, ...]
    out: Argument
    #: The auxiliary outputs of the chain.
    beside: tuple[Argument, ...]
    #: The scales of `out`, if it has any.
    out_scale: Argument | None
    #: Whether `out` must be given, because the epilogue reads it.
    reads_out: bool
    #: How many products there are, and how the operands hold them.
    products: Products
    #: Whether b has two columns for each of the result.
    gated: bool
    #: Whether N is M, the only name that both then have.
    square: bool = False

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """The operands but for numbers."""
        return (self.a, self.b, *(operand for operand in self.keywords if not operand.number))

    @property
    def keywords(self) -> tuple[Argument, ...]:
        """The operands behind A and B, in the order of the signature."""
        return (*self.positional, *self.stored, *self.operands)

    @property
    def optional(self) -> tuple[Argument, ...]:
        """Operands that may be left out, behind the others."""
        return tuple(x for x in (self.rows, self.scatter) if x is not None)

    @property
    def positional(self) -> tuple[Argument, ...]:
        """Those of them that need no keyword."""
        return () if self.offsets is None else (self.offsets,)

    @property
    def numbers(self) -> tuple[Argument, ...]:
        return tuple(operand for operand in self.operands if operand.number)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """What is returned beside the result."""
        return self.beside if self.out_scale is None else (*self.beside, self.out_scale)

    @property
    def results(self) -> tuple[Argument, ...]:
        """What is returned, in order."""
        return (self.out, *self.outputs)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of the products: how many there are, the extents of a result, and the one that is summed over."""
        return tuple(self.named(size) for size in self.products.sizes)

    def named(self, size: str) -> str:
        """The name by which a call knows a size: M for an N that is M."""
        return "M" if self.square and size == "N" else size


@cache
def call(v: Variant) -> ContractCall:
    """The call of a variant's contract."""
    products = v.products
    layout, dtype, epilogue = v.layout, v.dtype, v.epilogue

    def matrix(name: str, shape: Shape, layout: str, dtype: str | tuple[str, ...] | None) -> Argument:
        if v.symmetric:
            shape = tuple(M if x == N else x for x in shape)
        return Argument(name, _of_all(products, shape), dtype, layout)

    def operand(name: str, shape: str) -> Argument:
        own = dtype.sum if v.exact else None
        if shape == MATRIX:
            return matrix(name, (M, N), layout.c, own)
        if shape in (SCALAR, ELEMENT):
            return Argument(name, _SHAPES[shape])
        # Each group has its own vector; the matrices of a batch may share one.
        return Argument(name, _of_all(products, _SHAPES[shape]), own, shared=products.several and not products.divided)

    def output(name: str, shape: str) -> Argument:
        if shape in (MATRIX, BOTH):
            return matrix(name, _SHAPES[shape], layout.c, dtype.out)
        return Argument(name, _of_all(products, _SHAPES[shape]), REDUCED)

    def scales(storage: Storage) -> Iterator[Argument]:
        """The scales and zero points of an operand, one for each block, or the positions of what is stored of it."""
        if storage.sparse:
            yield matrix(storage.index, (K // POSITIONED, columns), "strided", CONTAINER)
        if storage.block is None:
            return
        along, across = _blocks(K, storage.block.along), storage.block.across
        types = storage.scale_types if len(storage.scale_types) > 1 else storage.scale_types[0]
        # Those of A follow its rows, of which there may be more than the products have.
        rows = R if products.divided else M
        shape = (_blocks(rows, across), along) if storage.letter == "a" else (along, _blocks(columns, across))
        if storage.letter == "a" and products.divided:
            yield Argument(storage.scale, shape, types, "strided")
            return
        yield matrix(storage.scale, shape, "strided", types)
        if storage.zeros:
            yield matrix(storage.zero, shape, "strided", ZERO_TYPES)

    def stored_result() -> tuple[Argument, Argument | None]:
        """The result and its scales, if it has any."""
        quantised = v.quantised
        if quantised is None:
            return matrix("out", (M, N), layout.c, dtype.out), None
        columns = N if quantised.packed == 1 else N // quantised.packed
        scales = matrix(OUT_SCALE, (M, operation("cdiv", N, quantised.block)), "row", quantised.scale)
        return matrix("out", (M, columns), layout.c, quantised.container), scales

    a, b = dtype.stored
    out, out_scale = stored_result()
    columns = 2 * N if epilogue.gate else N
    left = matrix("a", (M, _containers(a)), layout.a, a.container)
    by_rows = products.divided == "M"
    return ContractCall(
        # The products' rows may be named: then A has any number of rows.
        a=replace(left, dimensions=(R, left.dimensions[1])) if by_rows else left,
        b=matrix("b", (_containers(b), columns), layout.b, b.container),
        offsets=Argument("offsets", (Amount(products.count),), "int32") if products.divided else None,
        rows=Argument("rows", (T,), "int32") if by_rows else None,
        scatter=Argument("scatter", (T,), "int32") if by_rows else None,
        stored=(*scales(a), *scales(b)),
        operands=tuple(operand(x.name, x.shape) for x in epilogue.operands),
        out=out,
        beside=tuple(output(x.name, x.shape) for x in epilogue.outputs),
        out_scale=out_scale,
        reads_out=epilogue.reads_out,
        products=products,
        gated=epilogue.gate is not None,
        square=v.symmetric,
    )


#: A number of blocks, the last of which may be short.
_CEILING = re.compile(r"cdiv\(([^(),]+), (\d+)\)")


def _of_all(products: Products, shape: Shape) -> Shape:
    """The shape of what has this shape in a product: it is divided among products, or there is one for each."""
    divided = products.divided
    if divided and any(isinstance(x, Amount) and divided in x.names for x in shape):
        return tuple(_divided(x, divided) for x in shape)
    return (*map(Amount, products.front), *shape)


def _divided(x: Amount | int, divided: str) -> Amount | int:
    """The extent with T, the extent of all products together, in place of the one that is divided."""
    if isinstance(x, Amount) and x.sides:
        return replace(x, sides=tuple([_divided(side, divided) for side in x.sides]))
    return T if x == Amount(divided) else x


def _containers(storage: Storage) -> Amount:
    """How many containers K has."""
    return K if storage.packed == 1 else K // storage.packed


def _blocks(extent: Amount, size: int) -> Amount | int:
    """How many blocks of `size` an extent has; one of size 0 is the whole extent."""
    return 1 if size == 0 else extent if size == 1 else operation("cdiv", extent, size)
