"""Types and targets by other names than this project's lead to its word."""

from __future__ import annotations

import pytest

from generator.language.dtypes import DTYPE_SHORTHANDS, WEIGHTS
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.type_names import mapping_of, type_of
from tests.helpers.support import BASE, mistakes_of, read_text

NAMES = {
    "fp16": "float16 half torch.float16 torch.half tl.float16 np.float16 FP16 f16 Float16 Half",
    "bf16": "bfloat16 torch.bfloat16 tl.bfloat16 BF16 bfloat",
    "fp32": "float32 float torch.float torch.float32 single f32 FP32",
    "tf32": "TF32 tfloat32",
    "int8": "torch.int8 i8 s8 INT8",
    "fp8e4m3": "float8_e4m3fn torch.float8_e4m3fn fp8 fp8_e4m3 e4m3 float8e4nv tl.float8e4nv FP8",
    "fp8e5m2": "float8_e5m2 torch.float8_e5m2 e5m2 float8e5 fp8_e5m2",
}
STORED = {"int4": "int4 torch.int4 i4", "uint4": "uint4 u4", "mxfp4": "mxfp4", "mxfp8e4m3": "mxfp8 mxfp8_e4m3"}


@pytest.mark.parametrize(("word", "names"), NAMES.items())
def test_a_name_of_a_library_leads_to_the_word(word: str, names: str) -> None:
    for name in names.split():
        (told,) = mistakes_of(BASE.replace("fp16", name))
        assert f"dtype: unknown value '{name}'; did you mean {word!r}? legal: fp16, bf16" in told
        if word != "tf32":
            (told,) = mistakes_of(BASE.replace("fp16", f"{{a: {name}}}"))
            assert f"dtype.a: unknown value '{name}'; did you mean {word!r}? legal: " in told


@pytest.mark.parametrize(("word", "names"), STORED.items())
def test_a_type_of_stored_operands_is_shown_in_its_mapping(word: str, names: str) -> None:
    mapping = mapping_of(word)
    assert mapping is not None
    assert read_text(BASE.replace("dtype: fp16", f"dtype: {mapping}"))
    for name in names.split():
        (told,) = mistakes_of(BASE.replace("fp16", name))
        assert f"; {word} is a type of operands as they are stored: {mapping}; legal: fp16, " in told


def test_a_type_of_b_is_no_type_of_a() -> None:
    (told,) = mistakes_of(BASE.replace("fp16", "{a: int4}"))
    assert "'int4'; a B is stored so, and a has the type that it is multiplied in; legal: fp32, " in told
    (told,) = mistakes_of(BASE.replace("fp16", "{a: bf16, b: torch.int4, scales: {b: [128, 1]}}"))
    assert "dtype.b: unknown value 'torch.int4'; did you mean 'int4'? legal: " in told
    told, other = mistakes_of(BASE.replace("fp16", "{a: fp16, acc: float32, out: half}"))
    assert "dtype.acc: unknown value 'float32'; did you mean 'fp32'? " in told
    assert "dtype.out: unknown value 'half'; did you mean 'fp16'? " in other


def test_every_word_of_the_project_stands_for_itself() -> None:
    for word in (*DTYPE_SHORTHANDS, *WEIGHTS, *ELEMENTS, *FORMATS):
        assert type_of(word) == word
    assert type_of("fp16x") is None and type_of("") is None
