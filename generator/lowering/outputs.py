"""Outputs beside C, and a C that is quantised under scales of its own, as a kernel and its launcher spell them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from generator.epilogue.chain import Output
from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, MATRIX, ROWS
from generator.epilogue.quantisation import OUT_SCALE
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.quantised_results import QuantisedResult
from generator.lowering.operands import Matrix
from generator.plan.contract_call import REDUCED, ContractCall

#: The kernel's name for the quantised tile, which it stores.
QUANTISED_TILE = "quantised"


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


@dataclass(frozen=True)
class QuantisedView:
    """What `templates/quantise.j2` is given."""

    quantised: QuantisedResult
    #: The running value behind the chain, in fp32.
    value: str
    #: The scales, a row for each row of C.
    scales: Matrix

    @property
    def convert(self) -> str:
        """The function that rounds quotients to elements, and saturates where a scale may be rounded down."""
        # A scale of fp32 makes of no magnitude more than is rounded to the type's largest number.
        return f"_to_{self.quantised.kind}" if self.quantised.format else f"_nearest_{self.quantised.kind}"

    @property
    def scale(self) -> str:
        """The function that finds the scales of blocks from their largest magnitudes."""
        return f"_scale_{self.quantised.rule}"

    @property
    def numbers(self) -> str:
        """The type's largest magnitude, and where scales are rounded, the largest that it is rounded down from."""
        most, limit = float(self.quantised.most), float(self.quantised.limit)
        return {"e8m0": f"{limit}", "fp8e4m3": f"{most}, {limit}"}.get(self.quantised.rule, f"{most}")

    @property
    def factor(self) -> str:
        """What the elements of a block are multiplied or divided by, of the kernel's `block_scale`."""
        return {"e8m0": "_value_e8m0(block_scale)", "fp8e4m3": "_value_fp8e4m3(block_scale)"}.get(
            self.quantised.rule, "block_scale"
        )

    @property
    def quotients(self) -> str:
        """The elements of blocks over their scales, each rounded once."""
        if self.quantised.powers:
            # The inverse of a power of two is exact.
            return f"{QUANTISED_TILE} * tl.div_rn(1.0, {self.factor})[:, :, None]"
        return f"_quotients({QUANTISED_TILE}, {self.factor}[:, :, None])"

    @property
    def helpers(self) -> tuple[str, ...]:
        """The macros of math.j2 for what the kernel calls, a function before those that call it."""
        convert, rule = self.convert.removeprefix("_"), f"scale_{self.quantised.rule}"
        before = {"pow2": ("scale_fp32",), "fp8e4m3": ("code_fp8e4m3", "value_fp8e4m3")}.get(self.quantised.rule, ())
        after = ("value_e8m0",) if self.quantised.rule == "e8m0" else () if self.quantised.powers else ("quotients",)
        return tuple(dict.fromkeys((*before, rule, *after, convert)))

    @property
    def description(self) -> str:
        """The comment that opens the quantisation."""
        word, columns = self.quantised.format or self.quantised.kind, f"{self.quantised.block} columns"
        return f"# Quantise to {word}: {columns} share a scale, by their largest magnitude."


def quantised_view(quantisation: QuantisedResult, value: str, call: ContractCall, like: Matrix) -> QuantisedView:
    """The view of a kernel whose C is `like`, where the running value behind the chain is `value`."""
    assert call.out_scale is not None
    lies = like.number, like.first_row, like.first_column
    # They go with C, row for row.
    scales = Matrix(
        OUT_SCALE,
        OUT_SCALE,
        "M",
        "blocks",
        "row",
        *lies,
        bytes=quantisation.bytewise,
        scattered=like.scattered,
        line=like.line,
    )
    return QuantisedView(quantisation, value, scales)
