"""A family's `_pack.py`: what `quantize` stores, its scales, and what `dequantize` makes of it."""

import contextlib
import math
import re
import shutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.emit.package_files import pack_source
from tests.helpers.emit.weights import CONVERTERS, STORED, VALUES, along, decoded, dense, packing, values_of
from tests.helpers.support import ROOT, assert_formatted, python

PACK = packing()
RUNTIME = ROOT / "generator" / "runtime"
SPARSE = ("fp16", "bf16")
PLAIN = ("int4_plain", "fp8e4m3_plain")
SCALED = [name for name in STORED if name not in (*SPARSE, *PLAIN, "int4_batch")]
MX = [name for name in SCALED if name.startswith("mx")]
#: What is half a step past the largest value.
LIMITS = {"mxfp4": 7.0, "mxfp8e4m3": 464.0, "mxfp8e5m2": 61440.0}
#: The last block is short in one direction, in both, in none; one short block; nothing.
SHAPES = [(64, 16, 1.0), (40, 5, 300.0), (34, 17, 1e-3), (2, 1, 2.0**-40), (0, 3, 1.0), (8, 0, 1.0)]


def weight(name, K, N, seed=0, size=1.0):
    """Random numbers that the contract can store."""
    w = torch.randn(K, N, generator=torch.Generator().manual_seed(seed)) * size
    return w.abs() if name == "uint4" else w.clamp(-7, 7) if name in PLAIN else w


def assert_nearest(name, w, keywords):
    """Every stored element is one of those nearest to weight / scale + zero, and half a step from it at most."""
    stored, values = decoded(name, keywords["b"]), torch.tensor(values_of(name), dtype=torch.float64)
    values = values[~values.isnan()].unique()
    block = PACK.CONTRACTS[name].block
    scale = along(block, keywords["b_scale"], *w.shape)
    wanted = w.double() / scale + (along(block, keywords["b_zero"], *w.shape) if "b_zero" in keywords else 0.0)
    nearest = (values - wanted[..., None]).abs().amin(-1)
    # fp32 rounds the quotient.
    assert ((stored - wanted).abs() <= nearest + 1e-6 * wanted.abs().clamp(min=1)).all()
    assert_half_a_step(name, w, keywords)


def assert_half_a_step(name, w, keywords):
    values = torch.tensor(values_of(name), dtype=torch.float64)
    values = values[~values.isnan()].unique()
    steps = torch.nn.functional.pad(values.diff(), (1, 1))
    place = torch.searchsorted(values, decoded(name, keywords["b"]))
    step = torch.maximum(steps[place], steps[place + 1])
    scale = along(PACK.CONTRACTS[name].block, keywords["b_scale"], *w.shape)
    assert ((dense(name, keywords) - w.double()).abs() <= 0.5 * step * scale * (1 + 1e-5)).all()


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize(("K", "N", "size"), SHAPES)
def test_elements_are_the_nearest(name, K, N, size):
    for seed in range(3):
        w = weight(name, K, N, seed, size)
        keywords = PACK.quantize(w, name)
        assert_nearest(name, w, keywords)
        found = PACK.dequantize(name, **keywords)
        assert found.dtype == torch.float32 and found.shape == (K, N)
        torch.testing.assert_close(found.double(), dense(name, keywords), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", SCALED)
def test_scales_by_their_definition(name):
    w = weight(name, 70, 7)
    w[:32, 2] = 0
    stored, keywords = PACK.CONTRACTS[name], PACK.quantize(w, name)
    largest = max(value for value in values_of(name) if not math.isnan(value))
    for row in range(keywords["b_scale"].shape[0]):
        for column in range(keywords["b_scale"].shape[1]):
            rows, columns = (slice(x * each, (x + 1) * each or None) for x, each in zip((row, column), stored.block))
            block = w[rows, columns].flatten().tolist()
            magnitude, scale = max(map(abs, block)), float(keywords["b_scale"][row, column])
            if stored.zeros:
                spread = max(0.0, *block) - min(0.0, *block)
                steps = max(values_of(name)) - min(values_of(name))
                assert scale == pytest.approx(spread / steps, rel=1e-6, abs=2.0**-126)
                zero = float(keywords["b_zero"][row, column])
                assert zero in values_of(name)
            elif name in MX:
                ocp = 2.0 ** (math.floor(math.log2(magnitude)) - math.floor(math.log2(largest)) if magnitude else -127)
                assert scale == (ocp if magnitude <= LIMITS[name] * ocp else 2 * ocp)
            elif name == "nvfp4":
                near = sorted((value for value in VALUES["fp8e4m3"] if value > 0), key=lambda v: abs(v - magnitude / 6))
                assert scale == (near[0] if 7 * near[0] >= magnitude else min(v for v in near if 7 * v >= magnitude))
            else:
                assert scale == pytest.approx(magnitude / largest, rel=1e-6, abs=2.0**-126)


@pytest.mark.parametrize("name", ["int4", "int4_zeros", "uint4_zeros", "int8", "int8_zeros", "fp8e4m3"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-8, 1e-6, 1.0])
def test_scales_of_sixteen_bits_cut_nothing_off(name, dtype, size):
    w = weight(name, 66, 6, size=size)
    keywords = PACK.quantize(w, name, scale_dtype=dtype)
    assert keywords["b_scale"].dtype == dtype
    assert keywords.get("b_zero", keywords["b_scale"]).dtype == (torch.uint8 if name == "uint4_zeros" else dtype)
    assert_half_a_step(name, w, keywords)


def test_scales_at_the_ends_of_their_types():
    least, most = 2.0**-149, torch.finfo(torch.float32).max
    for name in ("int4", "int8_zeros", "mxfp4", "mxfp8e4m3"):
        for value in (least, -least, most / 2, -most / 2):
            w = torch.full((32, 1), value)
            keywords = PACK.quantize(w, name)
            assert float(keywords["b_scale"][0, 0]) > 0
            assert_half_a_step(name, w, keywords)
    assert int(PACK.quantize(torch.full((32, 1), least), "mxfp4")["b_scale"].view(torch.uint8)) == 0
    # The smallest scale of nvfp4 still holds half a step.
    for value in (2.0**-9, 1.49 * 6 * 2.0**-9, 2.5 * 6 * 2.0**-9, 3000.0):
        w = torch.full((16, 1), value)
        assert_half_a_step("nvfp4", w, PACK.quantize(w, "nvfp4"))


def test_zero_is_stored_exactly():
    for name in ("int4_zeros", "uint4_zeros", "int8_zeros"):
        w = weight(name, 64, 4) + 5
        w[::3] = 0
        assert (PACK.dequantize(name, **PACK.quantize(w, name))[::3] == 0).all()


def test_values_halfway_go_to_the_even_code():
    halves = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    w = torch.cat([halves, -halves])[:, None]
    expected = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0])
    for name in ("mxfp4", "nvfp4"):
        keywords = PACK.quantize(w, name)
        assert (keywords["b_scale"].float() == 1).all()
        assert torch.equal(PACK.dequantize(name, **keywords)[:, 0], torch.cat([expected, -expected]))
    w = torch.tensor([[0.5], [1.5], [2.5], [-0.5], [-1.5], [7.0]])
    assert PACK.dequantize("int4", **PACK.quantize(w, "int4"))[:, 0].tolist() == [0, 2, 2, 0, -2, 7]


@pytest.mark.parametrize("name", MX)
def test_scales_of_mx_cut_off_half_a_step_at_most(name):
    most, limit = max(value for value in values_of(name) if not math.isnan(value)), LIMITS[name]
    for largest, scale, stored in ((most, 1, most), (limit, 1, most), (limit * (1 + 2.0**-20), 2, None)):
        w = torch.tensor([[largest], [-largest], [0.0], [1.0]])
        keywords = PACK.quantize(w, name)
        assert float(keywords["b_scale"]) == scale
        assert_half_a_step(name, w, keywords)
        assert stored is None or PACK.dequantize(name, **keywords)[:2, 0].tolist() == [stored, -stored]


@pytest.mark.parametrize("name", PLAIN)
def test_without_scales_elements_are_values(name):
    w = weight(name, 20, 9, size=3.0)
    keywords = PACK.quantize(w, name)
    assert list(keywords) == ["b"]
    values = torch.tensor([value for value in values_of(name) if not math.isnan(value)], dtype=torch.float64)
    stored = decoded(name, keywords["b"])
    assert torch.equal((stored - w).abs(), (values[:, None, None] - w.double()).abs().amin(0))
    assert torch.equal(PACK.dequantize(name, **keywords).double(), stored)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize(("K", "N"), [(16, 5), (8, 1), (64, 12), (0, 3), (8, 0)])
def test_two_of_four_are_kept(name, K, N):
    # Few values, so that many are equal.
    w = torch.randint(-3, 4, (K, N), generator=torch.Generator().manual_seed(K)).float() / 3
    keywords = PACK.quantize(w, name)
    b, index = keywords["b"], keywords["b_index"]
    assert b.shape == (K // 2, N) and b.dtype == getattr(torch, {"fp16": "float16", "bf16": "bfloat16"}[name])
    assert index.shape == (K // 8, N) and index.dtype == torch.uint8
    expected = torch.zeros(K, N)
    for n in range(N):
        for four in range(K // 4):
            column = [float(w[4 * four + i, n]) for i in range(4)]
            first, second = sorted(sorted(range(4), key=lambda i: (-abs(column[i]), i))[:2])
            bits = int(index[four // 2, n]) >> 4 * (four % 2)
            assert (bits & 3, bits >> 2 & 3) == (first, second)
            for place, i in enumerate((first, second)):
                expected[4 * four + i, n] = b[2 * four + place, n].float()
                assert b[2 * four + place, n] == w[4 * four + i, n].to(b.dtype)
    assert torch.equal(PACK.dequantize(name, **keywords), expected)


@pytest.mark.parametrize("name", [*SCALED, *SPARSE])
def test_equal_weights_give_equal_bits(name):
    w = weight(name, 64, 16).half()
    wide = torch.empty(128, 40, dtype=torch.float64)[::2, 3:35:2].copy_(w)
    expected = PACK.quantize(w, name)
    for other in (w, w.T.contiguous().T, w.float(), wide, torch.nn.Parameter(w.float())):
        found = PACK.quantize(other, name)
        assert list(found) == list(expected)
        for keyword, x in expected.items():
            assert torch.equal(found[keyword].contiguous().view(torch.uint8), x.contiguous().view(torch.uint8))
            assert found[keyword].stride() == x.stride() and not found[keyword].requires_grad


def test_a_batch_is_that_of_its_matrices():
    w = torch.stack([weight("int4", 40, 6, seed) for seed in range(3)])
    keywords = PACK.quantize(w, "int4_batch")
    for i in range(3):
        for keyword, x in PACK.quantize(w[i], "int4").items():
            assert torch.equal(keywords[keyword][i], x)
    each = [PACK.dequantize("int4", **{keyword: x[i] for keyword, x in keywords.items()}) for i in range(3)]
    assert torch.equal(PACK.dequantize("int4_batch", **keywords), torch.stack(each))


@pytest.mark.parametrize(
    ("w", "name", "error", "message"),
    [
        ([[1.0]], "int4", TypeError, "weight must be a tensor of a floating dtype, got [[1.0]]"),
        (torch.ones(2, 2), "int3", ValueError, "int3 is no contract with a stored B; those of this family: int4, "),
        (torch.ones(2, 2, 2), "int4", ValueError, "weight must have 2 dimensions, got shape (2, 2, 2)"),
        (torch.ones(5, 2), "mxfp4", ValueError, "K must be a multiple of 2 for mxfp4, got 5"),
        (torch.tensor([[1.0], [math.nan]]), "int8", ValueError, "weight must be finite in torch.float32"),
        (torch.full((8, 1), 1e5), "fp16", ValueError, "weight must be finite in torch.float16"),
        (torch.full((2, 1), 8.0), "int4_plain", ValueError, "since int4_plain has no scales, got 8 to"),
        (torch.tensor([[1.0], [-0.1]]), "uint4", ValueError, "since uint4 has no zeros, got -0.1 to"),
        (torch.full((2, 1), 4000.0), "nvfp4", ValueError, "needs a scale of 571.429, but"),
    ],
)
def test_a_weight_that_does_not_fit(w, name, error, message):
    with pytest.raises(error, match=re.escape(message)):
        PACK.quantize(w, name)


def test_a_dtype_of_scales_that_does_not_fit():
    with pytest.raises(ValueError, match=re.escape("weight needs a scale of 133333, but torch.float16 ends at 65504")):
        PACK.quantize(torch.full((2, 1), 1e6), "int4", scale_dtype=torch.float16)
    with pytest.raises(TypeError, match=r"scale_dtype must be torch.float32 or .*, got torch.float64"):
        PACK.quantize(torch.ones(2, 1), "int4", scale_dtype=torch.float64)


def test_keywords_that_do_not_fit():
    keywords = PACK.quantize(weight("uint4_zeros", 64, 4), "uint4_zeros")
    wrong = [
        ({"b_zero": None}, ValueError, "uint4_zeros takes b, b_scale, b_zero, got b, b_scale"),
        ({"b": keywords["b"].float()}, TypeError, "b must be torch.uint8, got torch.float32"),
        ({"b_scale": keywords["b_scale"][:1]}, ValueError, "b_scale must have shape (2, 4), got (1, 4)"),
        ({"b_zero": keywords["b_zero"].short()}, TypeError, "b_zero must be torch.float32 or"),
    ]
    for changes, error, message in wrong:
        given = {keyword: x for keyword, x in {**keywords, **changes}.items() if x is not None}
        with pytest.raises(error, match=re.escape(message)):
            PACK.dequantize("uint4_zeros", **given)


def test_the_file_is_clean_with_any_converters(tmp_path):
    """One process imports all of them: importing torch takes most of the time."""
    entries = [f'"{name}": {stored},' for name, stored in STORED.items()]
    names = []
    for index, parts in enumerate(((), *((part,) for part in CONVERTERS), tuple(CONVERTERS))):
        folder = tmp_path / f"family{index}"
        shutil.copytree(RUNTIME, folder / "_runtime", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "_pack.py").write_text(pack_source(entries, parts))
        names.append(f"family{index}._pack")
    assert len(names) == len(CONVERTERS) + 2
    assert_formatted(tmp_path)
    code = f"import sys, {', '.join(names)}; print('triton' in sys.modules)"
    ran = python("-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ran.stdout == "False\n", ran.stderr


@pytest.mark.parametrize("name", STORED)
def test_a_weight_at_the_end_of_fp32_is_finite_or_refused(name):
    shape = (2, 64, 16) if name == "int4_batch" else (64, 16)
    for sign in (1.0, -1.0):
        try:
            keywords = PACK.quantize(torch.full(shape, sign * torch.finfo(torch.float32).max), name)
        except ValueError as error:
            assert "weight" in str(error)
            continue
        assert PACK.dequantize(name, **keywords).isfinite().all()


@pytest.mark.parametrize("name", STORED)
def test_a_weight_without_memory_has_shapes_or_is_refused(name):
    shape = (2, 64, 16) if name == "int4_batch" else (64, 16)
    wanted = {key: (x.shape, x.dtype) for key, x in PACK.quantize(torch.ones(shape), name).items()}
    for mode, device in ((contextlib.nullcontext(), "meta"), (FakeTensorMode(), "cpu")):
        with mode:
            try:
                found = PACK.quantize(torch.empty(shape, device=device), name)
            except ValueError as error:
                assert "weight" in str(error)
                continue
            assert {key: (x.shape, x.dtype) for key, x in found.items()} == wanted


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
