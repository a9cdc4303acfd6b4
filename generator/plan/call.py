"""A call of a contract: what it is given, what it returns, and the shape, type and layout of each.

Launchers, docstrings, manifests and the harness follow from this description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, HALVES, MATRIX, ROWS, SCALAR
from generator.language.model import Variant
from generator.language.storage import CONTAINER, POSITIONED, SCALE_TYPES, ZERO_TYPES, Storage, element_of
from generator.language.vocabulary import Products

#: The type of sums and maxima of the running value.
REDUCED = "fp32"

#: Layout -> the dimension of a matrix that has stride 1, None where any strides are taken.
_UNITS = {"row": 1, "column": 0, "strided": None}

_EXTENTS: Mapping[str, tuple[str, ...]] = {
    SCALAR: (),
    ELEMENT: ("1",),
    ROWS: ("M",),
    COLUMNS: ("N",),
    HALVES: ("2 * N",),
    MATRIX: ("M", "N"),
    BOTH: ("M", "2 * N"),
}


@dataclass(frozen=True)
class Argument:
    """An operand, the result or an auxiliary output of a call."""

    name: str
    #: The extent of each dimension as source, by the sizes of the call: `("B", "K // 2", "2 * N")`; none of a number.
    extents: tuple[str, ...]
    #: The element type, or those that are taken; None where any floating type is.
    dtype: str | tuple[str, ...] | None = None
    #: The layout of a matrix, or of each matrix of a batch; empty for vectors and numbers.
    layout: str = ""

    @property
    def number(self) -> bool:
        """Whether it is a real number, or a tensor of one element."""
        return not self.extents

    @property
    def shape(self) -> str:
        """The shape as source: `(M, K)`, `(N,)`."""
        return f"({', '.join(self.extents)}{',' if len(self.extents) == 1 else ''})"

    @property
    def told(self) -> str:
        """The shape as a docstring has it: `(ceil(K / 128), N)`."""
        extents = (_CEILING.sub(r"ceil(\1 / \2)", extent).replace(" // ", " / ") for extent in self.extents)
        return replace(self, extents=tuple(extents)).shape

    @property
    def torch_dtype(self) -> str:
        """The type as source: `torch.bfloat16`, or `None` where any floating type is taken.

        The types of scales have a name, `_SCALES`, in each file that checks them.
        """
        if isinstance(self.dtype, tuple):
            more = "".join(f", torch.{element_of(word).torch}" for word in self.dtype if word not in SCALE_TYPES)
            if SCALE_TYPES[0] not in self.dtype:
                return f"({more[2:]})"
            return f"(*_SCALES{more})" if more else "_SCALES"
        return f"torch.{element_of(self.dtype).torch}" if self.dtype else "None"

    @property
    def unit(self) -> int | None:
        """The dimension that has stride 1; None where there is none, and where any strides are taken."""
        unit = _UNITS[self.layout] if self.layout else 1 if self.extents else None
        return None if unit is None else unit + len(self.extents) - 2

    def sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The extents as numbers, for the `sizes` by name."""
        return tuple(_size(extent, sizes) for extent in self.extents)


@dataclass(frozen=True)
class Call:
    """The operands and results of a contract, each under the launcher's keyword."""

    a: Argument
    b: Argument
    #: What divides the products, in front of the keywords.
    offsets: Argument | None
    #: What may name the row of A for each row of the products, an optional keyword.
    rows: Argument | None
    #: What belongs to A and B as they are stored: scales and zero points.
    stored: tuple[Argument, ...]
    #: What the epilogue reads, in the order of its steps, and what it writes beside the result, in the same order.
    operands: tuple[Argument, ...]
    out: Argument
    outputs: tuple[Argument, ...]
    #: Whether `out` must be given, because the epilogue reads it.
    reads_out: bool
    #: How many products there are, and how the operands hold them.
    products: Products
    #: Whether b has two columns for each of the result.
    gated: bool

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
        return () if self.rows is None else (self.rows,)

    @property
    def positional(self) -> tuple[Argument, ...]:
        """Those of them that need no keyword."""
        return () if self.offsets is None else (self.offsets,)

    @property
    def numbers(self) -> tuple[Argument, ...]:
        return tuple(operand for operand in self.operands if operand.number)

    @property
    def results(self) -> tuple[Argument, ...]:
        """What is returned, in order."""
        return (self.out, *self.outputs)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes of the products: how many there are, the extents of a result, and the one that is summed over."""
        return self.products.sizes

    def size(self, name: str) -> str:
        """A size of the products as an extent of A or B, as source: `b.shape[1] // 2`."""
        name = "R" if name == "T" and self.rows is not None else name
        for x in (self.a, self.b):
            for dimension, extent in enumerate(x.extents):
                if extent.rpartition(" * ")[2] == name:
                    return f"{x.name}.shape[{dimension}]{' // 2' * (extent != name)}"
        for dimension, extent in enumerate(self.a.extents):
            whole, _, packed = extent.partition(" // ")
            if whole == name:
                return f"{packed} * a.shape[{dimension}]"
        raise KeyError(name)


@cache
def call(v: Variant) -> Call:
    """The call of a variant's contract."""
    products = v.products
    layout, dtype, epilogue = v.layout, v.dtype, v.epilogue

    def matrix(name: str, rows: str, columns: str, layout: str, dtype: str | tuple[str, ...] | None) -> Argument:
        return Argument(name, _of_all(products, (rows, columns)), dtype, layout)

    def operand(name: str, shape: str) -> Argument:
        if shape == MATRIX:
            return matrix(name, "M", "N", layout.c, None)
        # All matrices of a batch share what is no matrix; each group has its own.
        own = products.divided and shape not in (SCALAR, ELEMENT)
        return Argument(name, _of_all(products, _EXTENTS[shape]) if own else _EXTENTS[shape])

    def output(name: str, shape: str) -> Argument:
        if shape in (MATRIX, BOTH):
            rows, columns = _EXTENTS[shape]
            return matrix(name, rows, columns, layout.c, dtype.out)
        return Argument(name, _of_all(products, _EXTENTS[shape]), REDUCED)

    def scales(storage: Storage) -> Iterator[Argument]:
        """The scales and zero points of an operand, one for each block, or the positions of what is stored of it."""
        if storage.sparse:
            yield matrix(storage.index, f"K // {POSITIONED}", columns, "strided", CONTAINER)
        if storage.block is None:
            return
        along, across = _blocks("K", storage.block.along), storage.block.across
        types = storage.scale_types if len(storage.scale_types) > 1 else storage.scale_types[0]
        shape = (_blocks("M", across), along) if storage.letter == "a" else (along, _blocks(columns, across))
        if storage.letter == "a" and products.divided:
            # They follow the rows of A.
            yield Argument(storage.scale, tuple(extent.replace("M", "R") for extent in shape), types, "strided")
            return
        yield matrix(storage.scale, *shape, "strided", types)
        if storage.zeros:
            yield matrix(storage.zero, *shape, "strided", ZERO_TYPES)

    a, b = dtype.stored
    columns = "2 * N" if epilogue.gate else "N"
    left = matrix("a", "M", _containers(a), layout.a, a.container)
    by_rows = products.divided == "M"
    return Call(
        # The products' rows may be named: then A has any number of rows.
        a=replace(left, extents=("R", left.extents[1])) if by_rows else left,
        b=matrix("b", _containers(b), columns, layout.b, b.container),
        offsets=Argument("offsets", (products.count,), "int32") if products.divided else None,
        rows=Argument("rows", ("T",), "int32") if by_rows else None,
        stored=(*scales(a), *scales(b)),
        operands=tuple(operand(found.name, found.shape) for found in epilogue.operands),
        out=matrix("out", "M", "N", layout.c, dtype.out),
        outputs=tuple(output(found.name, found.shape) for found in epilogue.outputs),
        reads_out=epilogue.reads_out,
        products=products,
        gated=epilogue.gate is not None,
    )


#: The types of scales as source.
SCALES = f"_SCALES = ({', '.join(f'torch.{element_of(word).torch}' for word in SCALE_TYPES)})"

#: A number of blocks, the last of which may be short.
_CEILING = re.compile(r"triton\.cdiv\(([^(),]+), (\d+)\)")


def _of_all(products: Products, extents: tuple[str, ...]) -> tuple[str, ...]:
    """The extents of what has those extents in a product: it is divided among products, or there is one for each."""
    divided = re.compile(rf"\b{products.divided}\b") if products.divided else None
    if divided is not None and any(divided.search(extent) for extent in extents):
        return tuple(divided.sub("T", extent) for extent in extents)
    return (*products.front, *extents)


def _containers(storage: Storage) -> str:
    """How many containers K has, as source."""
    return "K" if storage.packed == 1 else f"K // {storage.packed}"


def _blocks(extent: str, size: int) -> str:
    """How many blocks of `size` an extent has, as source; one of size 0 is the whole extent."""
    return "1" if size == 0 else extent if size == 1 else f"triton.cdiv({extent}, {size})"


def _size(extent: str, sizes: Mapping[str, int]) -> int:
    blocks = _CEILING.fullmatch(extent)
    if blocks is not None:
        return -(-_size(blocks[1], sizes) // int(blocks[2]))
    extent, _, packed = extent.partition(" // ")
    if packed:
        return _size(extent, sizes) // int(packed)
    factor, _, name = extent.rpartition(" * ")
    return int(factor or 1) * (sizes[name] if name in sizes else int(name))
