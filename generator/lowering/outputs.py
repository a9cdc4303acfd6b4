"""Outputs beside C as a kernel and its launcher spell them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from generator.epilogue.chain import Output
from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, MATRIX, ROWS
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.lowering.operands import Matrix
from generator.plan.contract_call import REDUCED


@dataclass(frozen=True)
class OutputView:
    """An output: the matrix that the kernel writes, the value that it writes of, and the tensor that the caller gets.

    Of a reduction the kernel writes a part for each tile: a matrix of (tiles along the other dimension, M or N), whose
    lines the launcher adds, or takes the largest of, in order.
    """

    name: str
    shape: str
    reduction: str
    matrix: Matrix
    value: str
    #: Whether the launcher makes a single element of all parts.
    single: bool = False

    @property
    def reduced(self) -> bool:
        return bool(self.reduction)

    @property
    def halved(self) -> bool:
        """Whether it has two columns for each of C; it is written through pointers."""
        return self.shape == BOTH

    @property
    def across(self) -> str:
        """The dimension that a reduction leaves no trace of."""
        return "N" if self.shape == ROWS else "M"


def output_view(
    output: Output, like: Matrix, x: str, sum_type: str, out: str, *, whole: bool, place: str = "{}"
) -> OutputView:
    """An output of a kernel whose C is `like` C of type `out`, where the running value is `x` of type `sum_type`.

    `whole` as `stored` has it; `place` says where the half `x` of an output before a gate belongs.
    """
    writer = output.writer
    if writer.shape == MATRIX:
        # Outputs beside C stay by the rows of the product.
        matrix = replace(like, name=output.name, variable=output.name, place=place, scattered=False, line="offs_m")
        return OutputView(output.name, output.shape, writer.reduction, matrix, stored(x, sum_type, out, whole=whole))
    # Of a single element a tile writes what it has of each column.
    shape = COLUMNS if writer.shape == ELEMENT else writer.shape
    parts = Matrix(output.name, f"{output.name}_parts", "tiles", shape, "row", like.number)
    value = stored(x, sum_type, REDUCED, whole=whole)
    return OutputView(output.name, shape, writer.reduction, parts, value, shape != writer.shape)


def stored(x: str, sum_type: str, out: str, *, whole: bool) -> str:
    """The running value `x` of type `sum_type` as an expression of type `out`.

    `whole` where the value is an int32 to the end of the chain, so that the kernel saturates one.
    """
    if sum_type == out:
        return x
    if out in QUANTISED:
        taken = sum_type == "fp32" or (whole and ELEMENTS[out].saturates)
        return f"_to_{out}({x}{'' if taken else '.to(tl.float32)'})"
    # Triton's interpreter cannot convert integers to bf16 in one step.
    first = ".to(tl.float32)" if not ELEMENTS[sum_type].floating and out != "fp32" else ""
    return f"{x}{first}.to(tl.{ELEMENTS[out].triton})"


def reduced_shapes(outputs: tuple[Output, ...]) -> str:
    """The dimensions whose coordinates and masks the outputs need, beside those of the store."""
    return f"{ROWS} {COLUMNS}" if any(output.reduced or output.gated for output in outputs) else ""
