"""The grammars of layout, dtype, epilogue and the tile rows."""

from __future__ import annotations

import pytest

from generator.language.model import Dtype, Layout, Tile
from tests.helpers.support import BASE, family_of, read_text


def spec(layout: str = "rcr", dtype: str = "fp16", more: str = "") -> str:
    return f"summary: x\nlayout: {layout}\ndtype: {dtype}\n{more}\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # What a mapping leaves out is what gives the operands' type its accuracy.
        ("{a: fp16}", Dtype("fp16", "fp16", "fp32", "fp16", None)),
        ("{a: fp32}", Dtype("fp32", "fp32", "fp32", "fp32", "ieee")),
        ("{a: fp8e4m3}", Dtype("fp8e4m3", "fp8e4m3", "fp32", "bf16", "full")),
        ("{a: fp16, b: fp16, acc: fp16, out: fp32}", Dtype("fp16", "fp16", "fp16", "fp32", None)),
        ("{a: int8, out: bf16}", Dtype("int8", "int8", "int32", "bf16", None)),
    ],
)
def test_dtype(value: str, expected: Dtype) -> None:
    assert read_text(spec(dtype=value)).axes["dtype"] == (expected,)


@pytest.mark.parametrize("letters", [a + b + c for a in "rcs" for b in "rcs" for c in "rcs"])
def test_layout_letters_and_mapping_agree(letters: str) -> None:
    words = {"r": "row", "c": "column", "s": "strided"}
    mapping = ", ".join(f"{operand}: {words[letter]}" for operand, letter in zip("abc", letters))
    (value,) = read_text(spec(layout=f"{{{mapping}}}")).axes["layout"]
    assert isinstance(value, Layout) and value == Layout.of(letters) and value.word == letters


def test_tile_defaults() -> None:
    row = "{m: 64, n: 32, k: 0x40, warps: 4, ctas: 1, warp_specialize: false}"
    assert read_text(spec(more=f"tile: [{row}]")).tiles == (Tile(64, 32, 64, warps=4, group=8, stages=3),)


@pytest.mark.parametrize(
    ("written", "formula"),
    [
        ("none", "A @ B"),
        ("bias", "A @ B + bias"),
        ("bias+relu", "relu(A @ B + bias)"),
        ("relu+scale", "relu(A @ B) * scale"),
        ("scale+bias+gelu_tanh", "gelu_tanh(A @ B * scale + bias)"),
        ("add+bias+add+add+bias", "A @ B + add + bias + add2 + add3 + bias2"),
        ("scale_m+scale_n+mul+softplus", "softplus(A @ B * scale_m * scale_n * mul)"),
        ("[[bias, {clamp: {min: 0, max: 6}}, relu2]]", "relu2(clamp(A @ B + bias, min=0, max=6))"),
    ],
)
def test_formula(written: str, formula: str) -> None:
    (kernel,) = family_of(BASE + f"epilogue: {written}\n").kernels
    assert kernel.variant.epilogue.text == formula
