"""A result that is quantised under scales of its own, as a kernel spells it."""

from __future__ import annotations

from dataclasses import dataclass

from generator.epilogue.quantisation import OUT_SCALE
from generator.language.quantised_results import QuantisedResult
from generator.lowering.operands import Matrix
from generator.plan.contract_call import ContractCall

#: The kernel's name for the quantised tile, which it stores.
QUANTISED = "quantised"


@dataclass(frozen=True)
class QuantisedView:
    """What `templates/quantise.j2` is given."""

    quantised: QuantisedResult
    #: The running value behind the chain, in fp32.
    value: str
    #: The scales, a row for each row of C.
    scales: Matrix

    @property
    def block(self) -> int:
        return self.quantised.block

    @property
    def packed(self) -> int:
        """How many columns a container has."""
        return self.quantised.packed

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
            return f"{QUANTISED} * tl.div_rn(1.0, {self.factor})[:, :, None]"
        return f"_quotients({QUANTISED}, {self.factor}[:, :, None])"

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
        word, columns = self.quantised.format or self.quantised.kind, f"{self.block} columns"
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
