"""What a result may be quantised to: the types and formats that `quantize` names, a record each.

They follow from the records of `elements.py`: a type that results are saturated to has scales of fp32 and blocks of
any size, a format its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generator.epilogue.quantisation import (
    DEFAULT_BLOCK,
    FP32,
    LEAST_BLOCK,
    MOST_BLOCK,
    PARAMETERS,
    POW2,
    SCALES,
    Quantisation,
    quantisation,
)
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS, FORMATS, ElementType


@dataclass(frozen=True)
class QuantisedResult:
    """How C is stored: its elements, the columns that share a scale, and the scales."""

    #: The type of an element and of a scale.
    kind: str
    scale: str
    #: How many columns share a scale.
    block: int
    #: How a scale is found: the macro of templates/math.j2 is `scale_` and this.
    rule: str
    #: The format, whose blocks and scales belong to it; empty where a spec has chosen them.
    format: str = ""

    @property
    def element(self) -> ElementType:
        return ELEMENTS[self.kind]

    @property
    def packed(self) -> int:
        """How many columns a container has."""
        return 8 // self.element.bits

    @property
    def container(self) -> str:
        """The type of the tensor that a call returns."""
        return "uint8" if self.packed > 1 else self.kind

    @property
    def most(self) -> float:
        """The largest magnitude, which that of a block becomes."""
        return self.element.most

    @property
    def limit(self) -> float:
        """The largest number that is at most half a step from it."""
        if not self.element.floating:
            return self.most + 0.5
        digits = 1 << (self.element.mantissa + 1)
        # The largest number is 1.75 or 1.5 times a power of two.
        power = float(1 << (int(self.most).bit_length() - 1))
        return self.most + power / digits

    @property
    def powers(self) -> bool:
        """Whether each scale is a power of two, so that products by its inverse are exact."""
        return self.rule == POW2 or ELEMENTS[self.scale].powers

    @property
    def bytewise(self) -> bool:
        """Whether a kernel writes scales as bytes."""
        return bool(self.format)


#: The words of `to`.
RESULT_TYPES: tuple[str, ...] = (
    *sorted(QUANTISED, key=lambda word: not ELEMENTS[word].floating),
    *FORMATS,
)


def quantised_result(quantisation: Quantisation) -> QuantisedResult:
    """How C is stored by an operation of a chain."""
    if quantisation.to in FORMATS:
        format = FORMATS[quantisation.to]
        return QuantisedResult(format.element, format.scales[0], format.block, format.scales[0], quantisation.to)
    return QuantisedResult(quantisation.to, "fp32", quantisation.block, quantisation.scale)


#: The blocks that a spec may choose.
BLOCKS = tuple(1 << bits for bits in range(LEAST_BLOCK.bit_length() - 1, MOST_BLOCK.bit_length()))


def quantisation_of(entry: Mapping[str, Any]) -> Quantisation:
    """The operation of an entry of JSON; raise ValueError where there is none."""
    to, block, scale = (entry.get(key, default) for key, default in zip(PARAMETERS, ("", DEFAULT_BLOCK, FP32)))
    own = to in FORMATS and (block, scale) != (DEFAULT_BLOCK, FP32)
    if to not in RESULT_TYPES or type(block) is not int or block not in BLOCKS or scale not in SCALES or own:
        raise ValueError(f"no result is quantised to {dict(entry)}")
    return quantisation(to, block, scale)
