"""Names that libraries and people give types, each with this project's word."""

from __future__ import annotations

import re
from collections.abc import Iterable

from generator.language.dtypes import WEIGHTS
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.errors import nearest

#: What is written often, and is no library's name of exactly this type, by the project's word.
_OFTEN = {
    "fp16": "half f16",
    "bf16": "bfloat brain",
    "fp32": "float single f32 ieee",
    "tf32": "tfloat32 tensorfloat32",
    "fp8e4m3": "e4m3 e4m3fn fp8e4m3fn float8e4m3 fp8 float8",
    "fp8e5m2": "e5m2 float8e5m2",
    "int8": "i8 s8 char",
    "uint8": "u8",
    "int4": "i4 s4",
    "uint4": "u4",
    "int32": "i32 s32 int",
    "mxfp8e4m3": "mxfp8",
    "nvfp4": "nvf4",
}
_WORDS = {name: word for word, names in _OFTEN.items() for name in (word, *names.split())}
# Several types have the name of what contains them, which the first of them is.
_NAMED = {
    name.lower().replace("_", ""): word
    for word, element in reversed(list(ELEMENTS.items()))
    for name in (element.triton, element.torch)
}


#: The names of types that others have, which are no misspelt names of this language's.
_FOREIGN = re.compile(
    r"(u?int|[uisf]|fp|float|bf|bfloat)([1-8]|16|32|64|128)(x\d+)?(e\d.*|b\d.*|fn.*|nv.*|x\d+)?|e\d+m\d.*|nf\d|(mx|nv)(fp|int)?\d.*"
    r"|i?q\d.*|complex\d*|[cz]?double|long|u?short|byte|uchar|bool|ternary"
)


def spelled(text: str) -> str:
    """A name without what spellings differ in: capitals, underscores, and the module in front of it."""
    return text.strip().rpartition(".")[2].lower().replace("_", "").replace("-", "")


def type_of(text: str) -> str | None:
    """The word for a type of another name, such as `float16`, `torch.half` or `E4M3`; None if it is no type's."""
    word = spelled(text)
    own = word if word in (*ELEMENTS, *FORMATS, "tf32x3") else None
    return _WORDS.get(word) or own or _NAMED.get(word)


def nearest_type(word: str, legal: Iterable[str]) -> str:
    """The end of a message about a type that is not legal: the same one by this language's name, or one misspelt.

    A known type gets no suggestion of another, which holds other numbers.
    """
    words, meant = list(legal), type_of(word)
    if meant in words or not (meant or _FOREIGN.fullmatch(spelled(word))):
        return nearest(word, words, meant)
    hint = "that type is not available here"
    if meant in ("tf32", "tf32x3") and "fp32" in words:
        hint = f"write fp32, and 'precision: {meant}'"
    return f"{hint}; legal: {', '.join(words)}"


def mapping_of(word: str) -> str | None:
    """The mapping of `dtype` that has an operand of a type, for one that is no shorthand; None for other types."""
    if word in FORMATS:
        return f"{{a: {word}, b: {word}}}"
    if word in WEIGHTS:
        return f"{{a: bf16, b: {word}, scales: {{b: [128, 1]}}}}"
    return None
