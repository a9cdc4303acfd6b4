"""What a kernel may be asked for beyond a plain product, each of which a word of the vocabulary handles or does not.

A plain product has the default word of every axis but `layout`, `dtype` and `masking`, and operands of 16 bits that are
stored as they are multiplied. A word of `schedule`, `load` or `swizzle` that says nothing handles
that alone; everything else it names (`Word.handles`), and what it does not name is refused (`plan/claims.py`).
"""

from __future__ import annotations

from enum import Enum


class Feature(Enum):
    """Something that a word handles only if it says so; the value completes "handles no"."""

    CONVERSIONS = "stored operands that a kernel converts"
    SCALES = "stored operands with scales"
    SPARSITY = "sparse stored operands"
    MIXED = "operands of two types"
    REGISTERS = "operands that the matrix unit reads from registers"
    PRECISIONS = "products but those of 16 bits that are summed in fp32"
    GATES = "gated linear units"
    EPILOGUES = "epilogues"
    OUTPUTS = "auxiliary outputs"
    REDUCTIONS = "reductions of rows or columns"
    BATCHES = "batches"
    GROUPS = "groups of rows"
    GROUPS_OF_K = "groups along K"
    STRIDED = "strided layouts"
    EXCHANGED = "exchanged products"
    SCALED = "scaled products"
    SUMMED = "summed products"
    SYMMETRIC = "symmetric results"
    QUANTISED = "results quantised under scales of their own"
    ORDERS = "orders of tiles but the default"
    BLOCKS = "block pointers"
    DESCRIPTORS = "descriptors"
    STORES = "stores but that of the load"
    INVARIANT = "'invariant: rows'"

    #: Of loads: what a schedule asks of them.
    ELEMENTS = "loads of single elements"
    PARTS_OF_K = "programs that share the K of a tile"
    PAIRS = "tiles of several widths or heights"
    #: Of orders: the tile's number is bound in front of the macro, by a loop or behind the number of a product.
    NUMBERED = "tiles that are numbered before"


#: Features that the same macros handle.
STORED = (
    *(Feature.CONVERSIONS, Feature.SCALES, Feature.SPARSITY, Feature.MIXED),
    *(Feature.REGISTERS, Feature.PRECISIONS),
)
CHAINS = (Feature.EPILOGUES, Feature.OUTPUTS, Feature.REDUCTIONS)
SEVERAL = (Feature.BATCHES, Feature.GROUPS, Feature.GROUPS_OF_K)
LOADS = (Feature.BLOCKS, Feature.DESCRIPTORS, Feature.STORES)
