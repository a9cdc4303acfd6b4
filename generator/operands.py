"""Operands as a kernel and its launcher spell them."""

from __future__ import annotations

from dataclasses import dataclass

from generator.epilogue import MATRIX, SCALAR, Operand

_UNITS = {"row": 1, "column": 0, "strided": None}


@dataclass(frozen=True)
class Matrix:
    """A matrix of the launcher (`a`, `b`, `c` or an M×N epilogue operand) as kernel and launcher address it."""

    name: str
    #: The launcher's variable, and its dimensions as the kernel names them.
    variable: str
    rows: str
    columns: str
    layout: str
    torch_dtype: str

    shape = MATRIX

    @property
    def zero(self) -> str:
        """What a masked load yields past the edge."""
        return "0" if self.torch_dtype == "torch.int8" else "0.0"

    @property
    def row_stride(self) -> str | None:
        """The kernel's parameter for the stride between rows; None for a unit stride."""
        if self.layout == "strided":
            return f"stride_{self.name}{self.rows.lower()}"
        return f"ld{self.name}" if self.layout == "row" else None

    @property
    def column_stride(self) -> str | None:
        """The kernel's parameter for the stride between columns; None for a unit stride."""
        if self.layout == "strided":
            return f"stride_{self.name}{self.columns.lower()}"
        return f"ld{self.name}" if self.layout == "column" else None

    @property
    def strides(self) -> tuple[tuple[str, str], ...]:
        """Each stride parameter with the launcher's expression for it."""
        both = ((self.row_stride, 0), (self.column_stride, 1))
        return tuple((name, f"{self.variable}.stride({dimension})") for name, dimension in both if name)

    @property
    def extent(self) -> str:
        return f"({self.rows}, {self.columns})"

    @property
    def unit(self) -> int | None:
        """The dimension of stride 1."""
        return _UNITS[self.layout]

    @property
    def described(self) -> str:
        """The row-major matrix that a descriptor describes."""
        return f"{self.variable}.T" if self.layout == "column" else self.variable

    def block(self, row: str, brackets: str = "()") -> str:
        """The block a descriptor copies, in the order of `described`, from a row of the table."""
        sizes = [f'{row}["BLOCK_{self.rows}"]', f'{row}["BLOCK_{self.columns}"]']
        if self.layout == "column":
            sizes.reverse()
        return f"{brackets[0]}{', '.join(sizes)}{brackets[1]}"


@dataclass(frozen=True)
class Vector:
    """A vector or scalar operand of the epilogue."""

    name: str
    shape: str

    variable = property(lambda self: self.name)
    torch_dtype = "None"
    unit = 0

    @property
    def extent(self) -> str:
        return f"({self.shape},)"

    @property
    def flag(self) -> str:
        """The constexpr that says whether a scalar lies on the device."""
        return f"{self.name.upper()}_ON_DEVICE"


@dataclass(frozen=True)
class Argument:
    """An epilogue operand in the launcher's signature."""

    name: str
    annotation: str

    @classmethod
    def of(cls, operand: Operand) -> Argument:
        """The argument that an epilogue operand becomes."""
        return cls(operand.name, "float | torch.Tensor" if operand.shape == SCALAR else "torch.Tensor")
