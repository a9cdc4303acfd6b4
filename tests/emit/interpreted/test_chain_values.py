"""What chains read and give besides floats: masks without a copy, integers past 2**24, the largest magnitude."""

import math

import pytest
import torch

from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import contracts, drawn, operands
from tests.helpers.emit.gradients import check
from tests.helpers.support import render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; epilogue: [dropout, rows+level, mul, grad(relu)]; "
    "load: pointer; backward: kernels; ops: {"
    'dropout: {formula: "where(keep, x * 2, 0)", operands: {keep: [M, N]}}, '
    'rows: {formula: "where(valid, x, -1)", operands: {valid: [M]}}, '
    'level: {formula: "x * (level / 255)", operands: {level: [N]}}}'
)
M, N, K = 20, 70, 19
#: Of 70 columns of bytes, which begin anywhere.
WIDE = 96


def given():
    a, b = drawn((M, K), torch.float32), drawn((N, K), torch.float32).T
    return a, b, drawn((M, WIDE), torch.float32)[:, 3 : 3 + N] > 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_a_mask_of_any_of_its_types_is_read_as_it_is(family, dtype):
    a, b, keep = given()
    x, mask = a @ b, keep.to(dtype)
    for _ in range(2):
        found = family.gemm_fp32_rcr_dropout(a, b, keep=mask)
        torch.testing.assert_close(found, torch.where(keep, x * 2, 0))
        torch.testing.assert_close(family.gemm_fp32_rcr_mul(a, b, mul=mask), x * keep)
        torch.testing.assert_close(family.gemm_fp32_rcr_gradrelu(a, b, preact=mask), x * keep)


def test_a_uint8_has_all_of_its_values(family):
    a, b, _ = given()
    valid, level = torch.arange(M).to(torch.uint8) // 3, torch.arange(N).to(torch.uint8) * 3 + 40
    expected = torch.where((valid > 0)[:, None], a @ b, -1) * (level.float() / 255)
    torch.testing.assert_close(family.gemm_fp32_rcr_rows_level(a, b, valid=valid, level=level), expected)
    many = family.bmm_fp32_rcr_rows_level(a.expand(3, M, K), b.expand(3, K, N), valid=valid.bool(), level=level)
    torch.testing.assert_close(many, expected.expand(3, M, N))


def test_gradients_pass_where_the_mask_is_not_zero(family):
    a, b, keep = given()
    found, expected = a.clone().requires_grad_(), a.clone().requires_grad_()
    for _ in range(2):
        found.grad = expected.grad = None
        family.gemm_fp32_rcr_dropout(found, b, keep=keep).square().sum().backward()
        torch.where(keep, expected @ b * 2, 0).square().sum().backward()
        # Two sums of fp32 in two orders, squared: how torch adds depends on the processor.
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.complex64])
def test_other_types_are_refused(family, dtype):
    a, b, keep = given()
    told = f"keep must be of a floating type, bool or uint8, got {dtype}"
    with pytest.raises(TypeError, match=told):
        family.gemm_fp32_rcr_dropout(a, b, keep=keep.to(dtype))
    with pytest.raises(TypeError, match=r"a must be torch\.float32"):
        family.gemm_fp32_rcr_dropout(a.bool(), b, keep=keep)


WHOLE = spec(
    "layout: [rcr, rrc]; dtype: int8; batch: [none, strided]; epilogue: [bias, [add, relu, bias_m], [bias, "
    "{clamp: {min: -16777217, max: 33554433}}], [{accumulate: {beta: 1}}], less]; "
    'ops: {less: {formula: "min(x - shift, shift)", operands: {shift: [M, N]}}}; load: pointer; '
    "tile: [{m: 16, n: 16, k: 32, warps: 1}]"
)


@pytest.fixture(scope="module", params=["tiled", "persistent", "split_k"])
def integers(request, render):
    text = WHOLE.replace("[none, strided]", "none") if request.param == "split_k" else WHOLE
    return render(f"whole_{request.param}", f"{text}schedule: {request.param}\n")


def test_every_integer_is_kept(integers):
    for name, variant in contracts(integers).items():
        given = operands(variant)
        for x, value in given.items():
            if value.dtype == torch.int32:
                # Odd numbers beyond those that fp32 has.
                given[x] = value * 20_000_001 + 1
        a, b, *more = (x.long() for x in given.values())
        wanted = a @ b
        for x, value in zip([*given][2:], more):
            if x == "shift":
                wanted = torch.minimum(wanted - value, value)
            else:
                wanted += value[..., None] if x == "bias_m" else value[..., None, :] if x == "bias" else value
            wanted = wanted.relu() if x == "add" else wanted
        wanted = wanted.clamp(-16777217, 33554433) if "clamp" in name else wanted
        assert torch.equal(getattr(integers, name)(**given).long(), wanted), name


def test_operands_are_of_the_sums_type(integers):
    name = next(name for name in contracts(integers) if name.startswith("gemm") and name.endswith("_bias"))
    a, b = torch.ones(4, 8, dtype=torch.int8), torch.ones(8, 6, dtype=torch.int8)
    b = b if "rrc" in name else b.t().contiguous().t()
    with pytest.raises(TypeError, match=r"bias must be torch.int32, got torch.float32"):
        getattr(integers, name)(a, b, bias=torch.ones(6))


MAXIMA = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; "
    "epilogue: [[bias, silu, {amax: {}}], [amax, relu, {amax: peak}], [swiglu, {amax: {}}, twice]]; "
    "ops: {twice: {formula: x * 2}}; load: pointer; tile: [{m: 16, n: 32, k: 16, warps: 1}]"
)


@pytest.fixture(scope="module", params=["tiled", "persistent", "[split_k, tiled]"])
def maxima(request, render):
    schedule = request.param
    return render(f"maxima_{schedule.strip('[').partition('_')[0]}", f"{MAXIMA}schedule: {schedule}\n")


@pytest.mark.parametrize("sizes", [{}, {"M": 1, "N": 1}, {"M": 70, "N": 67, "K": 19}, {"K": 0}])
def test_the_largest_magnitude(maxima, sizes):
    for name, variant in contracts(maxima).items():
        given = operands(variant, {"B": 3, "M": 20, "N": 50, "K": 33} | sizes)
        out, *others = getattr(maxima, name)(**given)
        many = name.startswith("bmm")
        assert [x.shape for x in others] == [(3, 1) if many else (1,)] * len(others)
        if name.endswith("peak"):
            product = given["a"] @ given["b"]
            expected = product.abs().amax((-2, -1)), product.relu().amax((-2, -1))
        else:
            expected = (out.abs().amax((-2, -1)) / (2 if "swiglu" in name else 1),)
        for found, wanted in zip(others, expected, strict=True):
            torch.testing.assert_close(found.squeeze(-1), wanted, rtol=1e-5, atol=1e-5)


def test_nan_infinity_and_nothing(maxima):
    a, b = torch.ones(40, 8), torch.ones(70, 8).T
    call = maxima.gemm_fp32_rcr_amax_relu_amax_1peak
    a[39, 0] = -math.inf
    assert [x.item() for x in call(a, b)[1:]] == [math.inf, 8.0]
    a[17, 3] = math.nan
    given = torch.zeros(1)
    _, amax, peak = call(a, b, amax=given)
    assert amax is given and amax.isnan() and peak.isnan()
    assert [x.item() for x in call(a[:0], b)[1:]] == [0.0, 0.0]


def test_a_result_of_eight_bits_has_the_maximum_before_it_is_rounded(render):
    """As delayed scaling needs it: this call's scale is of an earlier amax."""
    text = MAXIMA.replace("fp32", "{a: fp16, out: fp8e4m3}").replace("batch: [none, strided]\n", "")
    family = render("delayed", text)
    a, b = torch.full((20, 32), 8.0).half(), torch.full((32, 40), 8.0).half().T.contiguous().T
    out, amax, _ = family.gemm_fp16_fp32_fp8e4m3_rcr_amax_relu_amax_1peak(a, b)
    assert out.float().amax() == 448 and amax.item() == 2048


def test_it_has_no_gradient_and_the_result_has_one(render):
    family = render("maxima_of_gradients", f"{MAXIMA}backward: kernels\n")
    check(family, "gemm_fp32_rcr_bias_silu_amax", {"M": 20, "N": 50, "K": 33})
    check(family, "bmm_fp32_rcr_bias_silu_amax", {"B": 2, "M": 20, "N": 50, "K": 33})


def test_a_file_that_stands_alone(tmp_path):
    (path,) = render_spec(tmp_path, "apart", f"{MAXIMA}package: files\n").glob("bmm_*peak*.py")
    a, b = torch.randn(3, 40, 16), torch.randn(3, 16, 70).mT.contiguous().mT
    _, amax, peak = load_kernel(path).gemm(a, b)
    torch.testing.assert_close(amax.squeeze(1), (a @ b).abs().amax((1, 2)))
    torch.testing.assert_close(peak.squeeze(1), (a @ b).amax((1, 2)))
    assert all(x.shape == (0, 1) for x in load_kernel(path).gemm(a[:0], b[:0])[1:])
