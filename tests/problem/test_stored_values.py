"""The numbers that stored operands stand for, and their product, against the definition of each format."""

import itertools
from dataclasses import replace

import pytest
import torch

from generator.language.model import Dtype
from generator.language.storage import element_of
from generator.problem.element_types import scales
from generator.problem.stored_values import blocks, decoded, product, product_of_decoded

INT4 = Dtype("bf16", "int4", "fp32", "bf16", None)
UINT4 = Dtype("fp16", "uint4", "fp32", "fp16", None)
INT8 = Dtype("fp16", "int8", "fp32", "fp16", None)
MX = Dtype("mxfp4", "mxfp4", "fp32", "bf16", None)


def test_every_byte_holds_two_elements():
    data = torch.arange(256, dtype=torch.uint8)[:, None]
    unsigned, signed = decoded(UINT4.stored_b, data, {})[:, 0], decoded(INT4.stored_b, data, {})[:, 0]
    for byte in range(256):
        low, high = byte & 15, byte >> 4
        assert unsigned[2 * byte : 2 * byte + 2].tolist() == [low, high]
        assert signed[2 * byte : 2 * byte + 2].tolist() == [low - 16 * (low > 7), high - 16 * (high > 7)]


def test_every_code_of_e2m1_is_a_number_of_the_standard():
    b = torch.arange(256, dtype=torch.uint8)[:, None]
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    expected = [-magnitudes[code - 8] if code > 7 else magnitudes[code] for code in range(16)]
    for storage, found in (
        (MX.stored_b, decoded(MX.stored_b, b, {})[:, 0]),
        (MX.stored_a, decoded(MX.stored_a, b.T, {})[0]),
    ):
        pairs = found.reshape(256, 2).tolist()
        assert pairs == [[expected[byte & 15], expected[byte >> 4]] for byte in range(256)], storage


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e8m0fnu])
def test_scales_of_mx_are_powers_of_two(dtype):
    found = scales("e8m0", torch.arange(256, dtype=torch.uint8).view(dtype))
    assert found[:255].tolist() == [2.0 ** (byte - 127) for byte in range(255)] and bool(found[255].isnan())


def test_every_byte_has_the_places_of_four_elements_among_eight():
    storage = replace(Dtype.of("fp16"), sparse=True).stored_b
    kept = torch.tensor([[1.0], [2.0], [3.0], [4.0]]).half()
    for first, second, third, fourth in itertools.product(range(4), repeat=4):
        if first < second and third < fourth:
            index = torch.tensor([[first | second << 2 | third << 4 | fourth << 6]], dtype=torch.uint8)
            expected = [0.0] * 8
            expected[first], expected[second], expected[4 + third], expected[4 + fourth] = 1.0, 2.0, 3.0, 4.0
            assert decoded(storage, kept, {"b_index": index})[:, 0].tolist() == expected


@pytest.mark.parametrize("depth", [4, 64, 130])
@pytest.mark.parametrize(
    "dtype",
    [
        INT4.scaled_by({"b": [64, 1]}),
        UINT4.scaled_by({"b": [32, 3]}, zeros=True),
        INT8.scaled_by({"b": [0, 1]}, zeros=True),
        INT8.scaled_by({"b": [0, 0]}),
        Dtype.of("int8").scaled_by({"a": [2, 32], "b": [64, 0]}),
        Dtype.of("fp8e4m3").scaled_by({"a": [1, 32], "b": [32, 2]}),
        Dtype("int8", "uint4", "int32", "bf16", None).scaled_by({"a": [1, 0], "b": [32, 1]}, zeros=True),
        INT8,
        MX,
        Dtype("nvfp4", "nvfp4", "fp32", "bf16", None),
        Dtype("bf16", "mxfp8e4m3", "fp32", "bf16", None),
    ],
    ids=lambda dtype: dtype.word,
)
def test_a_product_is_that_of_the_values(dtype, depth):
    random = torch.Generator().manual_seed(depth)
    rows, columns = 5, 7
    a, b = dtype.stored
    operands = {}
    for storage, shape in ((a, (rows, depth // a.packed)), (b, (depth // b.packed, columns))):
        data = torch.randint(0, 256, shape, generator=random).to(torch.uint8)
        if storage.element.floating and storage.packed == 1:
            x = torch.randn(shape, generator=random).to(getattr(torch, storage.element.torch))
        else:
            x = data.view(getattr(torch, storage.element.torch))
        operands[storage.letter] = x
    values = {}
    for storage in (a, b):
        value = decoded(storage, operands[storage.letter], {})
        if storage.block is not None:
            along = storage.block.along or depth
            across = storage.block.across or 100
            lines = rows if storage.letter == "a" else columns
            counts = (-(-lines // across), -(-depth // along))
            counts = counts if storage.letter == "a" else counts[::-1]
            operands[storage.scale] = torch.rand(counts, generator=random) + 0.5
            if storage.bytewise:
                operands[storage.scale] = operands[storage.scale].to(
                    getattr(torch, element_of(storage.scale_types[0]).torch)
                )
            operands[storage.zero] = torch.randn(counts, generator=random)
            for i in range(value.shape[0]):
                for j in range(value.shape[1]):
                    line, k = (i, j) if storage.letter == "a" else (j, i)
                    at = (line // across, k // along) if storage.letter == "a" else (k // along, line // across)
                    zero = operands[storage.zero][at].double() if storage.zeros else 0.0
                    value[i, j] = (value[i, j] - zero) * operands[storage.scale][at].double()
        values[storage.letter] = value
    found = product(dtype, operands["a"], operands["b"], operands, hardware=False)
    torch.testing.assert_close(found.value, values["a"] @ values["b"], rtol=1e-12, atol=1e-9)
    assert found.value.shape == found.error.shape == (rows, columns) and bool((found.error >= 0).all())


def test_blocks_end_where_a_scale_changes():
    dtype = Dtype.of("fp8e4m3").scaled_by({"a": [1, 32], "b": [48, 2]})
    assert blocks(dtype, 100) == [(0, 32), (32, 48), (48, 64), (64, 96), (96, 100)]
    assert blocks(dtype, 0) == [] and blocks(INT8.scaled_by({"b": [0, 1]}), 100) == [(0, 100)]


def test_the_bound_counts_the_rounding_of_each_value():
    """A product with a row of ones is the sum of what is rounded: half a unit in the last place of bf16 each."""
    dtype = Dtype("bf16", "int8", "fp32", "bf16", None).scaled_by({"b": (0, 1)})
    a, b = torch.ones(1, 64, dtype=torch.bfloat16), torch.full((64, 1), 127, dtype=torch.int8)
    read = {"b_scale": torch.full((1, 1), 0.0078)}
    fused = product(dtype, a, b, read, hardware=False)
    rounded_first = product_of_decoded(dtype, a, b, read, hardware=False)
    value, bound = rounded_first.value, rounded_first.error
    assert torch.allclose(fused.value, value) and float(fused.error) < 0.001
    # Values just below 1 are 2**-8 apart.
    assert 64 * 2**-9 <= float(bound) < 64 * 2**-8
    rounded = (b.float() * read["b_scale"]).bfloat16().double()
    assert float((a.double() @ rounded - value).abs()) <= float(bound)
