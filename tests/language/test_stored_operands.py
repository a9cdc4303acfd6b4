"""What the mapping of `dtype` says of operands as they are stored: names, defaults, and mistakes with their places."""

import pytest

from generator.language.model import Dtype
from generator.language.storage import Block
from tests.helpers.support import read_text


def spec(dtype):
    return f"summary: Stored operands.\nlayout: rcr\ndtype: {dtype}\n"


def dtype_of(text):
    (found,) = read_text(spec(text)).axes["dtype"]
    return found


def test_a_packed_operand():
    b = dtype_of("{a: bf16, b: int4, scales: {b: [128, 1]}}").stored_b
    assert (b.container, b.packed, b.multiplied, b.bits) == ("uint8", 2, "bf16", 4)
    assert b.block == Block(along=128, across=1) and b.converted and not b.plain
    assert b.bytes(64) == 32


@pytest.mark.parametrize(("word", "packed", "together"), [("int4", 8, 32), ("uint4", 8, 32), ("int8", 4, 16)])
def test_an_operand_in_fragment_order(word, packed, together):
    dtype = dtype_of(f"{{a: bf16, b: {word}, scales: {{b: [128, 1]}}, packing: {{b: fragments}}}}")
    b = dtype.stored_b
    assert (b.container, b.packed, b.together, b.width, b.multiplied) == ("int32", packed, together, 4, "bf16")
    assert b.converted and not b.plain and b.bytes(128) == 128 * b.bits // 8
    assert dtype.together == together and Dtype.from_data(dtype.data) == dtype
    assert dtype.data["packing"] == {"b": "fragments"} and not dtype.stored_a.fragments


def test_an_operand_that_is_multiplied_as_it_is():
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
def test_the_type_in_which_a_format_is_multiplied(text, multiplied):
    dtype = dtype_of(text)
    assert (dtype.stored_a.multiplied, dtype.stored_b.multiplied) == multiplied
    assert dtype.scaled and dtype.sum == "fp32" and Dtype.from_data(dtype.data) == dtype


def test_a_format_has_scales_of_its_own():
    a, b = dtype_of("{a: mxfp8e4m3, b: mxfp4}").stored
    assert (a.kind, a.container, a.packed, a.block) == ("fp8e4m3", "fp8e4m3", 1, Block(along=32, across=1))
    assert (b.kind, b.container, b.packed, b.scale_types) == ("e2m1", "uint8", 2, ("e8m0", "uint8"))
    nvfp4 = dtype_of("{a: nvfp4}").stored_a
    assert (nvfp4.block, nvfp4.scale_types, nvfp4.packed) == (Block(along=16, across=1), ("fp8e4m3",), 2)
