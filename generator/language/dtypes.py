"""The words of the axis `dtype`, as they follow from the records of types in `elements.py`, and its shorthands."""

from __future__ import annotations

from collections.abc import Mapping

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

#: The types of A, B, the accumulator and the result, and the precision.
Types = tuple[str, str, str, str, str | None]


def _of(word: str) -> Types:
    """What a shorthand stands for: the mapping `{a: WORD}`, or `{a: fp32, precision: WORD}`."""
    a = word if word in ELEMENTS else "fp32"
    element = ELEMENTS[a]
    precision = next(iter(element.precisions), None) if word in ELEMENTS else word
    return a, a, element.accumulators[0], element.result, precision


#: The shorthands that kernels have in their names, those of the first release: one that is added later must not rename
#: kernels that a spec names by the mapping.
NAMING = ("fp16", "bf16", "fp32", "tf32", "tf32x3", "int8", "fp8e4m3", "fp8e5m2")
#: Words for a whole mapping of types. Every other type that is multiplied is one, too, which names do not have.
DTYPE_SHORTHANDS: Mapping[str, Types] = {
    word: _of(word) for word in dict.fromkeys((*NAMING, *(word for word in ACCUMULATORS if word in ELEMENTS)))
}
