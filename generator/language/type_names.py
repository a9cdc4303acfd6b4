"""Names that libraries and people give types, each with this project's word."""

from __future__ import annotations

from generator.language.dtypes import WEIGHTS
from generator.language.elements import ELEMENTS, FORMATS

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
    "mxfp4": "fp4 float4 e2m1 float4e2m1 float4e2m1fnx2",
    "nvfp4": "nvf4",
}
_WORDS = {name: word for word, names in _OFTEN.items() for name in (word, *names.split())}
# Several types have the name of what contains them, which the first of them is.
_NAMED = {
    name.lower().replace("_", ""): word
    for word, element in reversed(list(ELEMENTS.items()))
    for name in (element.triton, element.torch)
}


def type_of(text: str) -> str | None:
    """The word for a type of another name, such as `float16`, `torch.half` or `E4M3`; None if it is no type's."""
    word = text.strip().rpartition(".")[2].lower().replace("_", "").replace("-", "")
    own = word if word in (*ELEMENTS, *FORMATS, "tf32x3") else None
    return _WORDS.get(word) or own or _NAMED.get(word)


def mapping_of(word: str) -> str | None:
    """The mapping of `dtype` that has an operand of a type, for one that is no shorthand; None for other types."""
    if word in FORMATS:
        return f"{{a: {word}, b: {word}}}"
    if word in WEIGHTS:
        return f"{{a: bf16, b: {word}, scales: {{b: [128, 1]}}}}"
    return None
