"""The words of the axis `dtype`, as they follow from the records of types in `elements.py`, and its shorthands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generator.language.elements import ELEMENTS, FORMATS, ElementType, Format

_MULTIPLIED: Mapping[str, ElementType | Format] = {
    **{word: element for word, element in ELEMENTS.items() if element.accumulators},
    **FORMATS,
}

#: Operand type -> the legal accumulators; the first is the default.
ACCUMULATORS: Mapping[str, tuple[str, ...]] = {word: each.accumulators for word, each in _MULTIPLIED.items()}

#: Operand type -> the legal precisions of the product; the first is the default.
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    word: each.precisions for word, each in _MULTIPLIED.items() if each.precisions
}

#: The types that a result may have.
RESULTS = tuple(word for word, element in ELEMENTS.items() if element.written)

#: Types of a B whose A has 16 bits; the kernel converts them to A's type.
WEIGHTS = (
    *sorted(
        (word for word, element in ELEMENTS.items() if element.weight and not element.floating),
        key=lambda word: ELEMENTS[word].bits,
    ),
    *(word for word, element in ELEMENTS.items() if element.weight and element.floating),
    *sorted(word for word, format in FORMATS.items() if format.weight),
)
#: Those of them that may have zero points.
OFFSET = tuple(word for word in WEIGHTS if word in ELEMENTS and ELEMENTS[word].zeros)
#: By the bits of A, the types of B that are converted to A's type if it has all their numbers.
CONVERTED = {16: WEIGHTS, 8: tuple(word for word in OFFSET if ELEMENTS[word].bits == 4)}
#: How many elements of how many along K are stored, of a B of 16 bits.
SPARSITIES = ("2:4",)
#: The orders of elements along K in words of 32 bits, and the types whose elements may lie so.
PACKINGS = ("fragments",)
PACKED = tuple(word for word in OFFSET if ELEMENTS[word].fragments)

#: The types to which results are saturated and rounded to nearest even, integers first.
QUANTISED: Mapping[str, ElementType] = {
    word: ELEMENTS[word]
    for word in sorted(RESULTS, key=lambda word: ELEMENTS[word].floating)
    if ELEMENTS[word].quantises
}


@dataclass(frozen=True)
class Shorthand:
    """A word for a whole mapping of types."""

    a: str
    b: str
    acc: str
    out: str
    precision: str | None
    #: Whether kernels of these types have the word in their names. Only the shorthands of the first release have it: a
    #: shorthand that is added later must not rename kernels that a spec names by the mapping.
    naming: bool = False

    @property
    def types(self) -> tuple[str, str, str, str, str | None]:
        """The types of A, B, the accumulator and the result, and the precision."""
        return self.a, self.b, self.acc, self.out, self.precision


def _of_element(word: str) -> Shorthand:
    """What the mapping `{a: WORD}` stands for."""
    element = ELEMENTS[word]
    return Shorthand(word, word, element.accumulators[0], element.result, next(iter(element.precisions), None))


_NAMING: Mapping[str, Shorthand] = {
    "fp16": Shorthand("fp16", "fp16", "fp32", "fp16", None, naming=True),
    "bf16": Shorthand("bf16", "bf16", "fp32", "bf16", None, naming=True),
    "fp32": Shorthand("fp32", "fp32", "fp32", "fp32", "ieee", naming=True),
    "tf32": Shorthand("fp32", "fp32", "fp32", "fp32", "tf32", naming=True),
    "tf32x3": Shorthand("fp32", "fp32", "fp32", "fp32", "tf32x3", naming=True),
    "int8": Shorthand("int8", "int8", "int32", "int32", None, naming=True),
    "fp8e4m3": Shorthand("fp8e4m3", "fp8e4m3", "fp32", "bf16", "full", naming=True),
    "fp8e5m2": Shorthand("fp8e5m2", "fp8e5m2", "fp32", "bf16", "full", naming=True),
}
#: Every other type that is multiplied is a shorthand, too, which names do not have.
DTYPE_SHORTHANDS: Mapping[str, Shorthand] = {
    **_NAMING,
    **{word: _of_element(word) for word, each in ELEMENTS.items() if each.accumulators and word not in _NAMING},
}
