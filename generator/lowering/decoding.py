"""The kernel that decodes B: it makes a dense B, of the type and in the order that is multiplied, for another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant
from generator.language.storage import Storage
from generator.lowering.edges import Dimensions, Edges
from generator.lowering.operands import Matrix, Slot, parameters, stride_slots, wide_strides
from generator.lowering.stored_operands import (
    Conversion,
    Factor,
    Metadata,
    Strip,
    conversion,
    factor,
    metadata,
    product_of,
)
from generator.plan.shared_memory import DECODED

#: The launcher's variable for the dense B.
DENSE = "decoded"
#: Bytes of a B that is decoded, at most: more is not worth the memory to a caller, whom other kernels answer.
MOST_DECODED = 2**29
#: The most elements of B along K in a program.
_DEEPEST = 128
#: The bytes of which the rows of the dense B are a multiple, as descriptors need it.
_PITCH = 16
#: The edges of a block, whose rows are along K.
_EDGES = Edges(Dimensions("always", "always", "never"), Dimensions("in_k", "in_n", ""), needs_m=True, needs_n=True)
#: The columns of a block.
_STRIP = Strip("", "offs_n", "pid_n * BLOCK_N", "in_n")


@dataclass(frozen=True)
class Decoding:
    """A kernel of which each program decodes a block of B, which has the scales of one block along K."""

    variant: Variant
    b: Matrix
    #: The scales and zero points of B.
    stored: tuple[Matrix, ...]
    dense: Matrix
    edges = _EDGES

    @property
    def storage(self) -> Storage:
        """How B is stored."""
        return self.variant.dtype.stored_b

    @property
    def tile(self) -> Tile:
        """A block of B: its columns and its elements along K."""
        along = self.storage.block.along if self.storage.block is not None else 0
        depth = math.gcd(_DEEPEST, along)
        return Tile(16, DECODED // depth, depth, warps=4)

    @property
    def columns(self) -> str:
        """The number of B's columns."""
        return self.dense.width

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """The scales and zero points of a block."""
        matrices = [matrix for matrix in self.stored if matrix.name != self.storage.index]
        return tuple(factor(matrix, self.storage, _STRIP, (self.tile,)) for matrix in matrices)

    @property
    def positions(self) -> tuple[Metadata, ...]:
        """Where the elements of a block that are stored are along K."""
        matrices = [matrix for matrix in self.stored if matrix.name == self.storage.index]
        return tuple(metadata(matrix, self.storage, _STRIP, "always") for matrix in matrices)

    @property
    def conversion(self) -> Conversion | None:
        """The block, which is converted; None where only the order of B's elements changes."""
        if not self.storage.converted:
            return None
        index = next((each.name for each in self.positions), "")
        return conversion(self.storage, self.b.name, "BLOCK_N", None, index)

    @property
    def value(self) -> str:
        """The expression for the block's values, which are rounded once."""
        zeros = [text for text in self.factors if text.zero]
        scales = [text for text in self.factors if not text.zero]
        if not scales:
            # Elements without scales are numbers of the type already.
            return self.b.name
        text = f"{self.b.name}.to(tl.float32)"
        for zero in zeros:
            text = f"({text} - {zero.spread(exchanged=True)})"
        return f"({text} * {product_of(scales, exchanged=True)}).to(tl.{ELEMENTS[self.storage.multiplied].triton})"

    @property
    def pointed(self) -> tuple[Matrix, ...]:
        """The matrices that the kernel addresses, all through strides."""
        return (self.b, *self.stored, self.dense)

    @property
    def wide_strides(self) -> tuple[str, ...]:
        """The statements that make strides as wide as offsets may be."""
        return wide_strides(self.pointed)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The kernel's parameters that are no constants, in order."""
        return (*(x.slot for x in self.pointed), Slot("N", "N"), Slot("K", "K"), *stride_slots(self.pointed))

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """The constants that a launch passes beside the width of offsets, by name."""
        return ("BLOCK_N", str(self.tile.n)), ("BLOCK_K", str(self.tile.k))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's parameters in order."""
        return parameters(self.slots, ["INDEX", *(name for name, _ in self.constants)])

    @property
    def grid(self) -> str:
        """The programs, as source."""
        return f"(cdiv(K, {self.tile.k}) * cdiv({self.columns}, {self.tile.n}),)"

    @property
    def torch_dtype(self) -> str:
        """The type of the dense B, as source."""
        return f"torch.{ELEMENTS[self.storage.multiplied].torch}"

    @property
    def pitch(self) -> int:
        """The elements of which the rows of the dense B in memory have a multiple."""
        return _PITCH * 8 // ELEMENTS[self.storage.multiplied].bits

    @property
    def bytes(self) -> str:
        """The bytes of the dense B, as source."""
        lines, along = ("K", self.columns) if self.dense.layout == "row" else (self.columns, "K")
        return f"{lines} * cdiv({along}, {self.pitch}) * {_PITCH}"
