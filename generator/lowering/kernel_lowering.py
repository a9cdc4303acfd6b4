"""A kernel lowered to its view: operands, edges, the steps of its epilogue, and what a kernel in front decodes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from generator.epilogue.gated_units import CONCATENATED, INTERLEAVED
from generator.epilogue.operations import COLUMNS, MATRIX, ROWS
from generator.language.storage import element_of
from generator.language.vocabulary import DEFAULTS
from generator.language.word_traits import Products
from generator.lowering import approximate_math
from generator.lowering.decoding import DENSE, Decoding
from generator.lowering.edges import edges_of
from generator.lowering.epilogue_lowering import step_views
from generator.lowering.operands import Matrix, blocks_of
from generator.lowering.outputs import QUANTISED_TILE, quantised_view, reduced_shapes
from generator.lowering.shuffled import shuffle_of
from generator.lowering.stored_operands import one_of_tile, whole_blocks
from generator.lowering.view import View
from generator.plan.contract_call import Argument, call
from generator.plan.kernels import Kernel
from generator.plan.resources import through_registers

#: The kernel's name for where a product begins in an extent that is divided among products.
START = "start"
#: The rows and columns of what belongs to an operand, by its letter.
_EXTENTS = {"a": ("M", "K"), "b": ("K", "N")}


def view(kernel: Kernel) -> View:
    """The view of a kernel: every choice that a template would otherwise have to make.

    Kernels that differ in the order of tiles alone have one view but for the order.
    """
    if kernel.variant.traits.twice:
        # A view of two kernels has views of each.
        return _lowered(kernel)
    variant = replace(kernel.variant, swizzle=DEFAULTS["swizzle"])
    return _lowered(replace(kernel, variant=variant)).ordered(kernel)


@lru_cache(maxsize=64)
def _lowered(kernel: Kernel) -> View:
    v = kernel.variant.multiplied
    described = call(kernel.variant)
    products = v.products
    c = _matrix("c", "M", "N", described.out, products)
    if described.scatter is not None:
        c = replace(c, scattered=True, line="offs_c")
    storages = {storage.letter: storage for storage in kernel.variant.dtype.stored}
    b = _matrix("b", "K", "N", described.b, products, v.epilogue.order, storages["b"].packed)
    beside = [_matrix(x.name, *_EXTENTS[x.name[0]], x, products) for x in described.stored]
    stored = tuple(replace(x, bytes=storages[x.name[0]].bytewise) for x in beside)
    decoding = None
    if kernel.variant.traits.decodes:
        dense = Matrix(DENSE, DENSE, "K", "N", v.layout.b, order=v.epilogue.order, flipped=True, line="offs_k")
        decoding = Decoding(kernel.variant, replace(b, order=None, flipped=True), stored, dense)
        b, stored = replace(dense, name="b", line="offs_m"), ()
    steps, sum_type, result = step_views(v.chain, v.dtype, c, products, v.schedule, approximate_math.math_of(v))
    # C lies as the matrices of the epilogue do, and is read as they are.
    shapes = [operand.shape for operand in v.epilogue.operands] + [MATRIX] * v.epilogue.reads_out
    # Scales are read as a vector of the epilogue is.
    shuffle = shuffle_of(v, kernel.tiles)
    scaled = [storage for storage in v.dtype.stored if storage.block is not None]
    vectors = [storage for storage in scaled if not one_of_tile(storage, kernel.tiles, v.epilogue.order is None)]
    vectors += [storage for storage in v.dtype.stored if storage.sparse]
    apart = v.epilogue.order == CONCATENATED and whole_blocks(v.dtype.stored_b, kernel.tiles)
    if v.epilogue.order == INTERLEAVED or apart:
        # Those of B have offsets of their own.
        vectors = [storage for storage in vectors if storage.letter == "a"]
    scales = [{"a": ROWS, "b": COLUMNS}[storage.letter] for storage in vectors]
    a, parts = _matrix("a", "M", "K", described.a, products, packed=storages["a"].packed), blocks_of(v.traits)
    gathered = described.rows is not None and v.loading.pointers

    quantisation = None
    if v.quantised is not None:
        quantisation, result = quantised_view(v.quantised, result, described, c), QUANTISED_TILE

    words = v.masking, v.schedule, v.load, v.store, v.products.divided
    reduced = f"{ROWS} {COLUMNS}" if quantisation is not None else reduced_shapes(v.epilogue.outputs)

    def rows_of_a(x: Matrix) -> Matrix:
        return replace(x, gathered=gathered and bool(x.first_row))

    return View(
        kernel,
        a=rows_of_a(replace(a, parts=parts if v.traits.side == "m" else ())),
        b=replace(
            b,
            flipped=through_registers(v) == "b" or b.packed > 1 or shuffle is not None,
            shuffle=shuffle,
            parts=parts if v.traits.side == "n" else (),
        ),
        stored=tuple(rows_of_a(x) for x in stored),
        c=replace(c, located=v.epilogue.reads_out),
        edges=edges_of(*words, " ".join((*shapes, *scales)), reduced),
        columns_of_chain=edges_of(*words, " ".join(shapes), reduced).needs_n,
        steps=steps,
        kind=sum_type,
        result=result,
        decoding=decoding,
        quantisation=quantisation,
    )


def _matrix(
    name: str, rows: str, columns: str, of: Argument, products: Products, order: str | None = None, packed: int = 1
) -> Matrix:
    integer = isinstance(of.dtype, str) and not element_of(of.dtype).floating
    number = products.number if len(of.extents) > 2 else ""
    first_row, first_column = (START if extent in ("T", "R") else "" for extent in of.extents[-2:])
    lies = number, first_row, first_column
    return Matrix(name, of.name, rows, columns, of.layout, *lies, order=order, integer=integer, packed=packed)
