"""`_pack.py` of a family: what others have packed, element by element by the definition of each format."""

import re

import pytest
import torch
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

from tests.helpers.emit.weights import packing

PACK = packing()
#: Rows, columns and group of the weights: two groups, of which the contracts have 32 rows.
K, N, G = 64, 24, 32


def drawn(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def scales(*shape, dtype=torch.float16):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(9)) + 0.5).to(dtype)


def words_along(elements, bits=4, order=()):
    """int32 words of the elements of each row: element `order[i]` of a word's lies `i` places above the lowest bits."""
    each = 32 // bits
    padded = torch.nn.functional.pad(elements, (0, -elements.shape[1] % each)).unflatten(1, (-1, each))
    places = torch.arange(each) * bits
    # Bits do not overlap, and a sum beyond 31 bits is the int32 of the same bits.
    return (padded[..., [*(order or range(each))]] << places).sum(-1).to(torch.int32)


def spread(x, codes):
    """What each element (K, N) has of a matrix that has one of each group of rows, or of all rows."""
    return x.double().repeat_interleave(G if len(x) > 1 else len(codes), 0)[: len(codes)]


def values(codes, scale, zeros):
    """(code - zero) * scale of a matrix (K, N) in float64, with the scales and zeros (K/g, N) of groups of rows."""
    return (codes - spread(zeros, codes)) * spread(scale, codes)


def assert_values(name, keywords, expected, rtol=1e-6):
    torch.testing.assert_close(PACK.dequantize(name, **keywords).double(), expected, rtol=rtol, atol=rtol)
    again = PACK.quantize(torch.zeros(expected.shape), name)
    assert keywords.keys() == again.keys()
    for keyword, x in again.items():
        assert keywords[keyword].shape == x.shape
        # Of one row or column, several strides are contiguous.
        assert keywords[keyword].stride() == x.stride() or keywords[keyword].is_contiguous() == x.is_contiguous()
    assert keywords["b"].dtype == again["b"].dtype


def awq(zeros):
    """The tensors of AWQ, and their values."""
    codes, scale, order = drawn(0, 16, K, N), scales(K // G, N), (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {"qweight": words_along(codes, order=order), "qzeros": words_along(zeros, order=order), "scales": scale}
    return tensors, values(codes, scale, zeros)


def gptq(zeros, bits=4, checkpoint_format="gptq"):
    codes, scale = drawn(0, 2**bits, K, N), scales(zeros.shape[0], N)
    qweight, qzeros = words_along(codes.T, bits).T.contiguous(), words_along(zeros, bits)
    if checkpoint_format == "gptq":
        # As its writer does: a zero point of 0 borrows from the next one.
        qzeros -= 0x11111111 if bits == 4 else 0x01010101
    return {"qweight": qweight, "qzeros": qzeros, "scales": scale}, values(codes, scale, zeros)


def compressed(zeros, rows=K, bits=4, packed=True):
    """The tensors of compressed-tensors, with zeros (K/g, N), and their values."""
    half = 2 ** (bits - 1)
    elements, scale = drawn(-half, half, N, rows), scales(N, 1 if bits == 8 else -(-rows // G))
    tensors = {"weight_packed": words_along(elements + half, bits), "weight_scale": scale, "weight_shape": (N, rows)}
    if zeros is not None:
        words = words_along(zeros + half, bits).T.contiguous()
        tensors["weight_zero_point"] = words if packed else zeros.T.to(torch.int8)
    return tensors, values(elements.T, scale.T, torch.zeros_like(scale.T) if zeros is None else zeros)


EIGHTS = torch.full((K // G, N), 8)


@pytest.mark.parametrize("name", ["uint4_zeros", "int4_zeros"])
def test_awq(name):
    tensors, expected = awq(drawn(0, 16, K // G, N, seed=1))
    keywords = PACK.from_awq(*tensors.values(), name)
    assert_values(name, keywords, expected)
    assert keywords["b_zero"].dtype == (torch.uint8 if name == "uint4_zeros" else torch.float16)


@pytest.mark.parametrize("name", ["uint4_zeros", "int4_zeros"])
@pytest.mark.parametrize("checkpoint_format", ["gptq", "gptq_v2"])
def test_gptq(name, checkpoint_format):
    tensors, expected = gptq(drawn(0, 16, K // G, N, seed=1), checkpoint_format=checkpoint_format)
    ascending = torch.arange(K, dtype=torch.int32) // G
    keywords = PACK.from_gptq(**tensors, name=name, g_idx=ascending, checkpoint_format=checkpoint_format)
    assert_values(name, keywords, expected)


@pytest.mark.parametrize("checkpoint_format", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_with_the_least_and_the_largest_zero_points(bits, checkpoint_format):
    name = {4: "uint4_zeros", 8: "int8_zeros"}[bits]
    for zero in (0, 2**bits - 1):
        for places in ([], [0], [N - 1], [1, 2], range(N)):
            zeros = torch.full((K // G, N), 8)
            zeros[:, [*places]] = zero
            tensors, expected = gptq(zeros, bits, checkpoint_format)
            keywords = PACK.from_gptq(**tensors, name=name, checkpoint_format=checkpoint_format)
            assert_values(name, keywords, expected)


def test_symmetric_weights_need_no_zeros():
    """A zero of 8 is half the range: int4 without zeros stores that."""
    for convert, (tensors, expected) in ((PACK.from_awq, awq(EIGHTS)), (PACK.from_gptq, gptq(EIGHTS))):
        for name in ("int4", "int4_row"):
            assert_values(name, convert(**tensors, name=name), expected)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["uint4_zeros", "int4_zeros"])
def test_compressed_tensors_with_zeros(name, packed):
    tensors, expected = compressed(drawn(-8, 8, K // G, N, seed=1), packed=packed)
    assert_values(name, PACK.from_compressed_tensors(**tensors, name=name), expected)


@pytest.mark.parametrize("name", ["int4", "int4_zeros", "uint4_zeros"])
@pytest.mark.parametrize("rows", [K, 60, 36])
def test_compressed_tensors_without_zeros(name, rows):
    tensors, expected = compressed(None, rows)
    tensors["weight_shape"] = torch.tensor(tensors["weight_shape"])
    assert_values(name, PACK.from_compressed_tensors(**tensors, name=name), expected)
    if rows % 8 == 0:
        del tensors["weight_shape"]
        assert_values(name, PACK.from_compressed_tensors(**tensors, name=name), expected)


def test_eight_bits():
    for zeros, name in ((drawn(0, 256, K // G, N, seed=1), "int8_zeros"), (torch.full((1, N), 128), "int8")):
        tensors, expected = gptq(zeros, bits=8)
        assert_values(name, PACK.from_gptq(**tensors, name=name), expected)
    tensors, expected = compressed(None, bits=8)
    assert_values("int8", PACK.from_compressed_tensors(**tensors, name="int8"), expected)


@pytest.mark.parametrize("name", ["uint4_zeros", "int4_zeros"])
def test_torchao_with_two_elements_a_byte(name):
    elements, scale = drawn(-8, 8, N, K), scales(K // G, N, dtype=torch.bfloat16)
    middle = torch.randn(K // G, N, generator=torch.Generator().manual_seed(2)).bfloat16()
    qdata = (elements[:, ::2] % 16 | elements[:, 1::2] % 16 << 4).to(torch.uint8).view(torch.int8)
    for zeros in (None, 3):
        if zeros:
            # A block of one value has a scale of 0, and that value as its zero point.
            scale[0, zeros], scale[-1] = 0, 0
        expected = elements.T * spread(scale, elements.T) + spread(middle, elements.T)
        assert_values(name, PACK.from_torchao(qdata, scale, middle, name), expected, rtol=1e-5)
    symmetric = PACK.from_torchao(qdata, scale, torch.zeros_like(middle), "int4")
    assert_values("int4", symmetric, elements.T * spread(scale, elements.T))


@pytest.mark.parametrize("name", ["uint4_zeros", "int4_zeros"])
def test_torchao_with_eight_elements_a_word(name):
    codes, scale, zeros = drawn(0, 16, K, N), scales(K // G, N), drawn(0, 16, K // G, N, seed=1)
    keywords = PACK.from_torchao(words_along(codes.T), scale, zeros.to(torch.int8), name)
    assert_values(name, keywords, values(codes, scale, zeros))


@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (40, 20)])
def test_block_fp8(rows, columns):
    weight = torch.randn(columns, rows, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    scale = scales(-(-columns // 16), -(-rows // 16), dtype=torch.float32)
    keywords = PACK.from_block_fp8(weight, scale, "fp8e4m3")
    each = scale.double().repeat_interleave(16, 0).repeat_interleave(16, 1)[:columns, :rows]
    assert_values("fp8e4m3", keywords, (weight.double() * each).T)
    assert torch.equal(keywords["b"].T.view(torch.uint8), weight.view(torch.uint8))


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
@pytest.mark.parametrize("blocked", [True, False])
def test_blocks_of_fp4(name, blocked):
    octets, size = drawn(0, 256, N, K // 2).to(torch.uint8), 32 if name == "mxfp4" else 16
    if name == "mxfp4":
        scale = drawn(120, 134, N, K // size).to(torch.uint8)
        factor = torch.exp2(scale.double() - 127)
    else:
        scale = scales(N, K // size).to(torch.float8_e4m3fn)
        factor = scale.double()
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    codes = torch.stack((octets & 15, octets >> 4), -1).flatten(1).long()
    expected = (1 - 2 * (codes >> 3)) * magnitudes[codes & 7] * factor.repeat_interleave(size, 1)
    given = octets.reshape(N, K // size, size // 2) if blocked else octets
    assert_values(name, PACK.from_mx(given, scale, name), expected.T)


def test_blocks_of_fp8():
    weight = torch.randn(N, 80, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    scale = drawn(120, 134, N, 3).to(torch.uint8)
    expected = weight.double() * torch.exp2(scale.double() - 127).repeat_interleave(32, 1)[:, :80]
    assert_values("mxfp8e4m3", PACK.from_mx(weight, scale.view(torch.float8_e8m0fnu), "mxfp8e4m3"), expected.T)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (192, 96)])
def test_semi_structured(name, rows, columns):
    """Against torch's own conversion, of a matrix with two of four."""
    w = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    wanted = PACK.quantize(w, name)
    pruned = PACK.dequantize(name, **wanted)
    packed, meta = sparse_semi_structured_from_dense_cutlass(pruned.T.to(wanted["b"].dtype).contiguous())
    keywords = PACK.from_semi_structured(packed, meta, name)
    assert all(torch.equal(keywords[keyword], x) for keyword, x in wanted.items())
    assert_values(name, keywords, pruned.double())


def test_a_batch_is_that_of_its_matrices():
    (tensors, _), other = gptq(EIGHTS), torch.roll(gptq(EIGHTS)[0]["qweight"], 1, 0)
    both = {key: torch.stack([x, other if key == "qweight" else x]) for key, x in tensors.items()}
    keywords = PACK.from_gptq(**both, name="int4_batch")
    for i in range(2):
        for keyword, x in PACK.from_gptq(**{key: x[i] for key, x in both.items()}, name="int4").items():
            assert torch.equal(keywords[keyword][i], x)


ORDERED = torch.randperm(K, generator=torch.Generator().manual_seed(0)) // G
FP8 = torch.zeros(32, 32, dtype=torch.float8_e4m3fn)
HALF = torch.zeros(32, 32, dtype=torch.float16)
ZEROS = torch.zeros(1, 1)


@pytest.mark.parametrize(
    ("convert", "tensors", "changes", "error", "message"),
    [
        ("awq", awq(EIGHTS)[0], {"name": "fp8e4m3"}, ValueError, "does not make what fp8e4m3 stores"),
        ("awq", awq(EIGHTS)[0], {"name": "int4_plain"}, ValueError, "contracts that fit: int4, int4_row, int4_wide"),
        ("awq", awq(EIGHTS)[0], {"qweight": None}, TypeError, "qweight must be a torch.Tensor, got NoneType"),
        ("awq", awq(EIGHTS)[0], {"qzeros": HALF.int()}, ValueError, "qzeros must have shape (2, 3), got (32, 32)"),
        ("awq", awq(EIGHTS + 1)[0], {"name": "int4"}, ValueError, "all zero points must be 8, got 9 to 9"),
        ("awq", awq(EIGHTS)[0], {"name": "uint4"}, ValueError, "all zero points must be 0, got 8 to 8"),
        ("gptq", gptq(EIGHTS)[0], {"g_idx": ORDERED}, ValueError, "g_idx must be k // 32 for each k below 64"),
        ("gptq", gptq(EIGHTS)[0], {"checkpoint_format": "v3"}, ValueError, "must be gptq or gptq_v2, got 'v3'"),
        ("compressed_tensors", compressed(None)[0], {"weight_scale": HALF}, ValueError, "must have shape (24, 2), got"),
        ("compressed_tensors", compressed(None)[0], {"weight_shape": (N, 63)}, ValueError, "K must be a multiple of 2"),
        ("compressed_tensors", compressed(None)[0], {"weight_zero_point": HALF}, TypeError, "must be torch.int8 or"),
        ("torchao", dict(qdata=HALF.char(), scale=HALF[:2], zero_point=HALF[:2].char()), {}, TypeError, "zero_point"),
        ("block_fp8", {"weight": FP8, "weight_scale_inv": ZEROS}, {"name": "fp8e4m3"}, ValueError, "(2, 2), got (1,"),
        ("mx", {"values": FP8, "scales": ZEROS}, {"name": "mxfp8e4m3"}, TypeError, "scales must be torch.float8"),
        ("semi_structured", {"packed": HALF, "meta": None}, {"name": "fp16"}, TypeError, "meta must be a torch.Tensor"),
        ("semi_structured", {"packed": HALF[:24], "meta": HALF}, {"name": "fp16"}, ValueError, "multiples of 32 rows"),
    ],
)
def test_tensors_that_do_not_fit(convert, tensors, changes, error, message):
    called = getattr(PACK, f"from_{convert}")
    with pytest.raises(error, match=re.escape(message)):
        called(**{"name": "int4_zeros", **tensors, **changes})
