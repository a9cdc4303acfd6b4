"""What the mapping of `dtype` says of operands as they are stored: names, defaults, and mistakes with their places."""

from __future__ import annotations

import pytest

from generator.language.dtypes import WEIGHTS
from generator.language.model import Dtype
from generator.language.storage import Block
from tests.helpers.support import mistakes_of, read_text


def spec(dtype: str) -> str:
    return f"summary: Stored operands.\nlayout: rcr\ndtype: {dtype}\n"


def dtype_of(text: str) -> Dtype:
    (found,) = read_text(spec(text)).axes["dtype"]
    assert isinstance(found, Dtype)
    return found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{a: bf16, b: int4, scales: {b: [128, 1]}}", "bf16xint4_fp32_bf16_b128x1"),
        ("{a: fp16, b: uint4, scales: {b: [64, 1]}, zeros: {b: true}}", "fp16xuint4_fp32_fp16_b64x1_zeros"),
        ("{a: fp16, b: uint4, scales: {b: [64, 1]}, zeros: {b: false}}", "fp16xuint4_fp32_fp16_b64x1"),
        ("{a: fp16, b: int8, scales: {b: [0, 1]}}", "fp16xint8_fp32_fp16_ballx1"),
        ("{a: bf16, b: fp8e4m3}", "bf16xfp8e4m3_fp32_bf16"),
        ("{a: fp8e4m3, b: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}", "fp8e4m3_a1x128_b128x128"),
        ("{a: fp8e4m3, b: fp8e5m2, scales: {b: [0, 0]}}", "fp8e4m3xfp8e5m2_fp32_bf16_ballxall"),
        ("{a: int8, scales: {a: [1, 0], b: [0, 1]}}", "int8_int32_bf16_a1xall_ballx1"),
        (
            "{a: bf16, b: int4, scales: {b: [128, 1]}, packing: {b: fragments}}",
            "bf16xint4_fp32_bf16_b128x1_fragments",
        ),
        (
            "{a: fp16, b: uint4, scales: {b: [64, 1]}, zeros: {b: true}, packing: {b: fragments}}",
            "fp16xuint4_fp32_fp16_b64x1_zeros_fragments",
        ),
        ("{a: fp16, b: int8, packing: {b: fragments}}", "fp16xint8_fp32_fp16_fragments"),
        ("{a: mxfp8e4m3, b: mxfp4}", "mxfp8e4m3xmxfp4_fp32_bf16"),
        ("{a: bf16, b: mxfp4}", "bf16xmxfp4_fp32_bf16"),
        ("{a: fp16, b: nvfp4}", "fp16xnvfp4_fp32_fp16"),
        ("{a: nvfp4, b: nvfp4, out: fp32}", "nvfp4_fp32_fp32"),
        ("{a: mxfp8e5m2}", "mxfp8e5m2_fp32_bf16"),
    ],
)
def test_the_word_says_how_operands_are_stored(text: str, word: str) -> None:
    assert dtype_of(text).word == word


def test_a_packed_operand() -> None:
    b = dtype_of("{a: bf16, b: int4, scales: {b: [128, 1]}}").stored_b
    assert (b.container, b.packed, b.multiplied, b.bits) == ("uint8", 2, "bf16", 4)
    assert b.block == Block(along=128, across=1) and b.converted and not b.plain
    assert b.bytes(64) == 32


@pytest.mark.parametrize(("word", "packed", "together"), [("int4", 8, 32), ("uint4", 8, 32), ("int8", 4, 16)])
def test_an_operand_in_fragment_order(word: str, packed: int, together: int) -> None:
    dtype = dtype_of(f"{{a: bf16, b: {word}, scales: {{b: [128, 1]}}, packing: {{b: fragments}}}}")
    b = dtype.stored_b
    assert (b.container, b.packed, b.together, b.width, b.multiplied) == ("int32", packed, together, 4, "bf16")
    assert b.converted and not b.plain and b.bytes(128) == 128 * b.bits // 8
    assert dtype.together == together and Dtype.from_data(dtype.data) == dtype
    assert dtype.data["packing"] == {"b": "fragments"} and not dtype.stored_a.fragments


def test_an_operand_that_is_multiplied_as_it_is() -> None:
    dtype = dtype_of("{a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}")
    assert dtype.stored_a.block == Block(along=128, across=1)
    assert not any(storage.converted or storage.plain for storage in dtype.stored) and not dtype.plain
    assert all(storage.plain for storage in Dtype.of("fp16").stored) and Dtype.of("fp16").plain


@pytest.mark.parametrize(
    ("text", "multiplied"),
    [
        ("{a: bf16, b: mxfp4}", ("bf16", "bf16")),
        ("{a: mxfp8e4m3, b: mxfp8e5m2}", ("fp8e4m3", "fp8e5m2")),
        ("{a: mxfp8e4m3, b: mxfp4}", ("fp16", "fp16")),
        ("{a: mxfp4, b: mxfp8e5m2}", ("fp16", "fp16")),
        ("{a: nvfp4}", ("fp16", "fp16")),
    ],
)
def test_the_type_in_which_a_format_is_multiplied(text: str, multiplied: tuple[str, str]) -> None:
    dtype = dtype_of(text)
    assert (dtype.stored_a.multiplied, dtype.stored_b.multiplied) == multiplied
    assert dtype.scaled and dtype.sum == "fp32" and Dtype.from_data(dtype.data) == dtype


def test_a_format_has_scales_of_its_own() -> None:
    a, b = dtype_of("{a: mxfp8e4m3, b: mxfp4}").stored
    assert (a.kind, a.container, a.packed, a.block) == ("fp8e4m3", "fp8e4m3", 1, Block(along=32, across=1))
    assert (b.kind, b.container, b.packed, b.scale_types) == ("e2m1", "uint8", 2, ("e8m0", "uint8"))
    nvfp4 = dtype_of("{a: nvfp4}").stored_a
    assert (nvfp4.block, nvfp4.scale_types, nvfp4.packed) == (Block(along=16, across=1), ("fp8e4m3",), 2)


def test_scales_make_fp32_of_a_sum() -> None:
    assert dtype_of("{a: int8, scales: {a: [1, 0], b: [0, 1]}}").sum == "fp32"
    assert Dtype.of("int8").sum == "int32"


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (
            "{a: bf16, b: int4, scales: {a: [1, 128], b: [128, 1]}}",
            ["3:39: dtype.scales.a: a is bf16, and scales are of operands of 8 bits or fewer"],
        ),
        (
            "{a: bf16, b: int4, scales: {b: [128, -1]}}",
            [
                "3:39: dtype.scales.b: expected [k, columns], the sizes of a block as whole numbers up to 1048576, "
                "0 for the whole extent; found [128, -1]"
            ],
        ),
        (
            "{a: bf16, b: int4, scales: {}}",
            ["3:35: dtype.scales: names no operand; expected {b: [k, columns]} or {a: [rows, k]}"],
        ),
        (
            "{a: fp16, b: fp8e4m3, scales: {b: [0, 1]}, zeros: {b: true}}",
            ["3:62: dtype.zeros.b: zero points go with int4, uint4, int8, and b is fp8e4m3"],
        ),
        (
            "{a: fp16, b: uint4, zeros: {b: true}}",
            ["3:39: dtype.zeros.b: zero points go with scales; give dtype.scales.b"],
        ),
        (
            "{a: int8, b: fp16}",
            ["3:21: dtype.b: 'fp16' cannot be multiplied with an a of int8; the operand of fewer bits is b"],
        ),
        (
            "{a: fp8e4m3, b: fp8e5m2}",
            [
                "3:24: dtype.b: 'fp8e5m2' cannot be multiplied with an a of fp8e4m3; "
                "fp8 operands of two types need `scales`"
            ],
        ),
        (
            "{a: fp32, b: int4}",
            ["3:21: dtype.b: 'int4' cannot be multiplied with an a of fp32; legal with it: fp32"],
        ),
        (
            "{a: fp16, b: int4, acc: fp16}",
            ["3:32: dtype.acc: unknown value 'fp16'; that type is not available here; legal: fp32"],
        ),
        (
            "{a: mxfp4, b: nvfp4}",
            [
                "3:22: dtype.b: 'nvfp4' cannot be multiplied with an a of mxfp4; "
                "legal with it: mxfp8e4m3, mxfp8e5m2, mxfp4"
            ],
        ),
        (
            "{a: bf16, b: mxfp8e5m2}",
            [
                "3:21: dtype.b: 'mxfp8e5m2' cannot be multiplied with an a of bf16; legal with it: "
                f"bf16, {', '.join(WEIGHTS)}"
            ],
        ),
        (
            "{a: nvfp4, b: int4}",
            ["3:22: dtype.b: 'int4' cannot be multiplied with an a of nvfp4; legal with it: nvfp4"],
        ),
        (
            "{a: bf16, b: mxfp4, scales: {b: [32, 1]}}",
            ["3:40: dtype.scales.b: b is mxfp4, which has scales of its own; leave this out"],
        ),
        (
            "{a: mxfp4, acc: fp16}",
            ["3:24: dtype.acc: unknown value 'fp16'; that type is not available here; legal: fp32"],
        ),
        (
            '{a: fp16, sparsity: {b: "1:4"}}',
            ["3:32: dtype.sparsity.b: unknown value '1:4'; did you mean '2:4'? legal: 2:4"],
        ),
        (
            '{a: fp16, acc: fp16, sparsity: {b: "2:4"}}',
            ["3:23: dtype.acc: unknown value 'fp16'; that type is not available here; legal: fp32"],
        ),
        (
            "{a: fp16, b: int4, packing: {b: fragment}}",
            ["3:40: dtype.packing.b: unknown value 'fragment'; did you mean 'fragments'? legal: fragments"],
        ),
        (
            "{a: fp16, b: fp8e4m3, packing: {b: fragments}}",
            [
                "3:43: dtype.packing.b: needs an a of 16 bits and a b of int4, uint4, int8, "
                "and they are fp16 and fp8e4m3"
            ],
        ),
        (
            "{a: int8, packing: {b: fragments}}",
            ["3:31: dtype.packing.b: needs an a of 16 bits and a b of int4, uint4, int8, and they are int8 and int8"],
        ),
        ("{a: fp16, b: int8, packing: {}}", ["3:36: dtype.packing: the key 'b' is missing"]),
        (
            '{a: int8, sparsity: {b: "2:4"}}',
            ["3:32: dtype.sparsity.b: needs a and b of one 16-bit type, and they are int8 and int8"],
        ),
    ],
)
def test_mistakes(dtype: str, expected: list[str]) -> None:
    assert mistakes_of(spec(dtype)) == [f"family.yaml:{line}" for line in expected]
