"""Weights in fragment order: each element where a matrix unit takes it, of `quantize` and of the converters."""

import pytest
import torch

from tests.helpers.emit.weights import packing

PACK = packing()
#: Each with the bits of an element, and the contract that stores the same without this order.
ORDERED = {
    "int4_fragments": (4, "int4"),
    "int4_zeros_fragments": (4, "int4_zeros"),
    "uint4_fragments_row": (4, "uint4_zeros"),
    "int8_fragments": (8, "int8"),
    "int8_batch_fragments": (8, "int8_batch"),
}


def elements_of(b, bits):
    """The bits of each element (K, N) of a `b` that is not in this order."""
    octets = b.view(torch.uint8).long()
    if bits == 8:
        return octets
    return torch.stack((octets & 15, octets >> 4), -2).flatten(-3, -2)


def assert_in_fragments(words, elements, bits):
    """Word i of four has elements 8j + 2i and 8j + 2i + 1 of a group, at bits `bits` * j and 16 more."""
    assert words.dtype == torch.int32
    group = 128 // bits
    assert words.shape[-2] * 32 // bits == elements.shape[-2]
    for k in range(elements.shape[-2]):
        first, within = divmod(k, group)
        j, i, half = within // 8, within % 8 // 2, within % 2
        found = words[..., 4 * first + i, :].long() >> bits * j + 16 * half & (1 << bits) - 1
        assert torch.equal(found, elements[..., k, :]), k


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize(("K", "N"), [(64, 5), (32, 16), (0, 3), (160, 1)])
def test_each_element_is_where_a_matrix_unit_takes_it(name, K, N):
    bits, plain = ORDERED[name]
    stored = PACK.CONTRACTS[name]
    shape = (3, K, N) if stored.batched else (K, N)
    w = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found, alike = PACK.quantize(w, name), PACK.quantize(w, plain)
    assert_in_fragments(found["b"], elements_of(alike["b"], bits), bits)
    assert K == 0 or found["b"].stride(-1 if stored.layout == "row" else -2) == 1
    for keyword in alike.keys() - {"b"}:
        assert torch.equal(found[keyword], alike[keyword])
    assert torch.equal(PACK.dequantize(name, **found), PACK.dequantize(plain, **alike))


@pytest.mark.parametrize("name", ["int4_zeros_fragments", "uint4_fragments_row"])
def test_converters_write_this_order(name):
    _, plain = ORDERED[name]
    generator = torch.Generator().manual_seed(1)
    draw = {"dtype": torch.int32, "generator": generator}
    qweight = torch.randint(-(2**31), 2**31, (96, 2), **draw)
    qzeros = torch.randint(-(2**31), 2**31, (3, 2), **draw)
    scales = torch.rand(3, 16, generator=generator).half() + 0.5
    found, alike = (PACK.from_awq(qweight, qzeros, scales, each) for each in (name, plain))
    assert found["b"].dtype == torch.int32
    assert torch.equal(PACK.dequantize(name, **found), PACK.dequantize(plain, **alike))


def test_a_part_of_a_group_is_refused():
    for name, K, multiple in (("int4_fragments", 48, 32), ("int8_fragments", 24, 16)):
        with pytest.raises(ValueError, match=f"^K must be a multiple of {multiple} for {name}, got {K}$"):
            PACK.quantize(torch.zeros(K, 3), name)
    with pytest.raises(ValueError, match=r"^b must have a multiple of 4 rows, got 6$"):
        PACK.dequantize("int4_fragments", b=torch.zeros(6, 3, dtype=torch.int32), b_scale=torch.ones(2, 3))
