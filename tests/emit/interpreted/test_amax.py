"""The largest magnitude of a result, in one element: of every schedule, in a batch, behind a gate, and with NaN."""

import math

import pytest
import torch

from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import contracts, operands
from tests.helpers.emit.gradients import check
from tests.helpers.support import render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; "
    "epilogue: [[bias, silu, {amax: {}}], [amax, relu, {amax: peak}], [swiglu, {amax: {}}, twice]]; "
    "ops: {twice: {formula: x * 2}}; load: pointer; tile: [{m: 16, n: 32, k: 16, warps: 1}]"
)


@pytest.fixture(scope="module", params=["tiled", "persistent", "[split_k, tiled]"])
def family(request, render):
    schedule = request.param
    return render(f"maxima_{schedule.strip('[').partition('_')[0]}", f"{SPEC}schedule: {schedule}\n")


@pytest.mark.parametrize("sizes", [{}, {"M": 1, "N": 1}, {"M": 70, "N": 67, "K": 19}, {"K": 0}])
def test_the_largest_magnitude(family, sizes):
    for name, variant in contracts(family).items():
        given = operands(variant, {"B": 3, "M": 20, "N": 50, "K": 33} | sizes)
        out, *maxima = getattr(family, name)(**given)
        many = name.startswith("bmm")
        assert [x.shape for x in maxima] == [(3, 1) if many else (1,)] * len(maxima)
        if name.endswith("peak"):
            product = given["a"] @ given["b"]
            expected = product.abs().amax((-2, -1)), product.relu().amax((-2, -1))
        else:
            expected = (out.abs().amax((-2, -1)) / (2 if "swiglu" in name else 1),)
        for found, wanted in zip(maxima, expected, strict=True):
            torch.testing.assert_close(found.squeeze(-1), wanted, rtol=1e-5, atol=1e-5)


def test_nan_infinity_and_nothing(family):
    a, b = torch.ones(40, 8), torch.ones(70, 8).T
    call = family.gemm_fp32_rcr_amax_relu_amax_1peak
    a[39, 0] = -math.inf
    assert [x.item() for x in call(a, b)[1:]] == [math.inf, 8.0]
    a[17, 3] = math.nan
    given = torch.zeros(1)
    _, amax, peak = call(a, b, amax=given)
    assert amax is given and amax.isnan() and peak.isnan()
    assert [x.item() for x in call(a[:0], b)[1:]] == [0.0, 0.0]


def test_a_result_of_eight_bits_has_the_maximum_before_it_is_rounded(render):
    """As delayed scaling needs it: this call's scale is of an earlier amax."""
    text = SPEC.replace("fp32", "{a: fp16, out: fp8e4m3}").replace("batch: [none, strided]\n", "")
    family = render("delayed", text)
    a, b = torch.full((20, 32), 8.0).half(), torch.full((32, 40), 8.0).half().T.contiguous().T
    out, amax, _ = family.gemm_fp16_fp32_fp8e4m3_rcr_amax_relu_amax_1peak(a, b)
    assert out.float().amax() == 448 and amax.item() == 2048


def test_it_has_no_gradient_and_the_result_has_one(render):
    family = render("maxima_of_gradients", f"{SPEC}backward: kernels\n")
    check(family, "gemm_fp32_rcr_bias_silu_amax", {"M": 20, "N": 50, "K": 33})
    check(family, "bmm_fp32_rcr_bias_silu_amax", {"B": 2, "M": 20, "N": 50, "K": 33})


def test_a_file_that_stands_alone(tmp_path):
    (path,) = render_spec(tmp_path, "apart", f"{SPEC}package: files\n").glob("bmm_*peak*.py")
    a, b = torch.randn(3, 40, 16), torch.randn(3, 16, 70).mT.contiguous().mT
    _, amax, peak = load_kernel(path).gemm(a, b)
    torch.testing.assert_close(amax.squeeze(1), (a @ b).abs().amax((1, 2)))
    torch.testing.assert_close(peak.squeeze(1), (a @ b).amax((1, 2)))
    assert all(x.shape == (0, 1) for x in load_kernel(path).gemm(a[:0], b[:0])[1:])
