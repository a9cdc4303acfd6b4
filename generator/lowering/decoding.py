"""The kernel that decodes B: it makes a dense B, of the type and in the order that is multiplied, for another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from generator.language.dtypes import ELEMENTS
from generator.language.model import Tile, Variant
from generator.language.storage import Storage
from generator.lowering.operands import Matrix, Slot
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
from generator.plan.memory import DECODED

#: The launcher's variable for the dense B.
DENSE = "decoded"
#: The most elements of B along K in a program.
_DEEPEST = 128
#: The bytes of which the rows of the dense B are a multiple, as descriptors need it.
_PITCH = 16
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
        found = [matrix for matrix in self.stored if matrix.name != self.storage.index]
        return tuple(factor(matrix, self.storage, _STRIP, (self.tile,)) for matrix in found)

    @property
    def positions(self) -> tuple[Metadata, ...]:
        """Where the elements of a block that are stored are along K."""
        found = [matrix for matrix in self.stored if matrix.name == self.storage.index]
        return tuple(metadata(matrix, self.storage, _STRIP, "always") for matrix in found)

    @property
    def conversion(self) -> Conversion | None:
        """The block, which is converted; None where only the order of B's elements changes."""
        if not self.storage.converted:
            return None
        index = next((found.name for found in self.positions), "")
        return conversion(self.storage, self.b.name, "BLOCK_N", None, index)

    @property
    def value(self) -> str:
        """The expression for the block's values, which are rounded once."""
        zeros = [found for found in self.factors if found.zero]
        scales = [found for found in self.factors if not found.zero]
        if not scales:
            # Elements without scales are numbers of the type already.
            return self.b.name
        found = f"{self.b.name}.to(tl.float32)"
        for zero in zeros:
            found = f"({found} - {zero.spread(exchanged=True)})"
        return f"({found} * {product_of(scales, exchanged=True)}).to(tl.{ELEMENTS[self.storage.multiplied].triton})"

    @property
    def pointed(self) -> tuple[Matrix, ...]:
        """The matrices that the kernel addresses, all through strides."""
        return (self.b, *self.stored, self.dense)

    @property
    def wide_strides(self) -> tuple[str, ...]:
        """The statements that make strides as wide as offsets may be."""
        return tuple(f"{name} = tl.cast({name}, INDEX)" for matrix in self.pointed for name, _ in matrix.strides)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The kernel's parameters that are no constants, in order."""
        found = [Slot(f"{x.name}_ptr", x.passed, x.variable) for x in self.pointed]
        found += [Slot(size, size) for size in ("N", "K")]
        return (*found, *(Slot(name, value) for x in self.pointed for name, value in x.strides))

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """The constants that a launch passes, by name."""
        return (("INDEX", "index"), ("BLOCK_N", str(self.tile.n)), ("BLOCK_K", str(self.tile.k)))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's parameters in order."""
        return (*(slot.parameter for slot in self.slots), *(f"{name}: tl.constexpr" for name, _ in self.constants))

    @property
    def grid(self) -> str:
        """The programs, as source."""
        return f"(triton.cdiv(K, {self.tile.k}) * triton.cdiv({self.columns}, {self.tile.n}),)"

    @property
    def room(self) -> str:
        """The expression for the dense B, whose rows in memory are padded."""
        element = ELEMENTS[self.storage.multiplied]
        step = _PITCH * 8 // element.bits
        strides = f"(1, triton.cdiv(K, {step}) * {step})"
        if self.dense.layout == "row":
            strides = f"(triton.cdiv({self.columns}, {step}) * {step}, 1)"
        kind = f"dtype=torch.{element.torch}, device=a.device"
        return f"torch.empty_strided((K, {self.columns}), {strides}, {kind})"

    def bytes(self, columns: str, depth: str) -> str:
        """The expression for the bytes of that, for so many columns and elements along K."""
        lines, along = (depth, columns) if self.dense.layout == "row" else (columns, depth)
        return f"{lines} * triton.cdiv({along}, {_PITCH * 8 // ELEMENTS[self.storage.multiplied].bits}) * {_PITCH}"
