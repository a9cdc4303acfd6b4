"""`quantize`: the last element of a chain, which stores C in another type under scales that are found from C itself.

Code that walks a chain sees an operation whose formula is `x`: what a chain computes is the value before it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from generator.epilogue.formula import X
from generator.epilogue.operations import EpilogueOperation

#: The word in a chain, its parameters, and the output that has the scales.
QUANTIZE = "quantize"
TO, BLOCK, SCALE = PARAMETERS = ("to", "block", "scale")
OUT_SCALE = "out_scale"
#: The shape of the scales, as a manifest names it: a row for each row of C, a column for each block of its columns.
PER_BLOCK = "M,N/block"

#: How a scale is found where the type of the result does not say it, the first is the default.
FP32, POW2 = SCALES = ("fp32", "pow2")
#: The sizes of a block of columns where the type of the result does not say it.
LEAST_BLOCK, MOST_BLOCK, DEFAULT_BLOCK = 16, 256, 128


@dataclass(frozen=True)
class Quantisation(EpilogueOperation):
    """The type or format that C is stored in, the columns that share a scale, and how a scale is found.

    `block` and `scale` are the defaults for a format, whose blocks and scales belong to it.
    """

    to: str = ""
    block: int = DEFAULT_BLOCK
    scale: str = FP32

    @property
    def settings(self) -> dict[str, int | str]:
        """The parameters that are not the default, in their order."""
        parameters: dict[str, int | str] = {TO: self.to}
        if self.block != DEFAULT_BLOCK:
            parameters[BLOCK] = self.block
        return parameters if self.scale == FP32 else {**parameters, SCALE: self.scale}

    @property
    def written(self) -> str:
        """The operation in a kernel's name: `quantize_fp8e4m3_64_block_pow2`."""
        words = [QUANTIZE, self.to]
        words += [f"{self.block}", BLOCK] if self.block != DEFAULT_BLOCK else []
        return "_".join([*words, *[self.scale] * (self.scale != FP32)])


#: The operation without a type, as an element of the vocabulary.
QUANTISES = Quantisation(X, built_in=True)


def quantisation(to: str, block: int = DEFAULT_BLOCK, scale: str = FP32) -> Quantisation:
    """The operation that stores C as `to`."""
    return Quantisation(X, built_in=True, to=to, block=block, scale=scale)
