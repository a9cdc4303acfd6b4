"""`alpha` of torch's products: by the contract whose chain begins with `scale`, in eager mode and in graphs."""

import math

import pytest
import torch

from tests.emit.interpreted.test_graph_pass import compiled
from tests.helpers.emit.calls import drawn
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; epilogue: [none, bias, scale, scale+bias, scale+add]; "
    "load: pointer; with: [aten, inductor]; tile: [{m: 16, n: 16, k: 32, warps: 1}]"
)
M, N, K = 7, 24, 40


def calls():
    """What a model writes of its input, with the contract."""
    w, bias, square = drawn((N, K), torch.float32), drawn((N,), torch.float32), drawn((M, N), torch.float32)
    nothing, many = torch.full((N,), math.nan), torch.full((3, M, N), math.nan)
    batch = drawn((3, N, K), torch.float32)
    return {
        "no bias": ("gemm_fp32_rcr_scale", lambda x: torch.addmm(nothing, x, w.T, alpha=0.25, beta=0)),
        "a negative one": ("gemm_fp32_rcr_scale_bias", lambda x: torch.addmm(bias, x, w.T, alpha=-3)),
        "a matrix": ("gemm_fp32_rcr_scale_add", lambda x: torch.addmm(square, x, w.T, alpha=0.5)),
        "a batch": (
            "bmm_fp32_rcr_scale",
            lambda x: torch.baddbmm(many, x.expand(3, M, K), batch.mT, alpha=0.5, beta=0),
        ),
        "a batch with a bias": (
            "bmm_fp32_rcr_scale_bias",
            lambda x: torch.baddbmm(bias, x.expand(3, M, K), batch.mT, alpha=2),
        ),
        "neither": ("gemm_fp32_rcr_none", lambda x: torch.addmm(nothing, x, w.T, beta=0)),
        "none": ("gemm_fp32_rcr_bias", lambda x: torch.addmm(bias, x, w.T, alpha=1)),
    }


@pytest.mark.parametrize("name", calls())
def test_eager_products(family, name):
    contract, call = calls()[name]
    x = drawn((M, K), torch.float32)
    expected = call(x)
    with family.override_aten() as override:
        found = [call(x) for _ in range(2)]
    ((_, told),) = override.report.replaced
    assert told == contract and not override.report.kept
    torch.testing.assert_close(found, [expected] * 2)


@pytest.mark.parametrize("name", calls())
def test_products_of_a_graph(family, name):
    contract, call = calls()[name]
    x = drawn((M, K), torch.float32)
    with family.inductor.install() as installed:
        found = compiled(call)(x)
    ((_, told),) = installed.report.replaced
    assert told == contract and not installed.report.kept
    torch.testing.assert_close(found, call(x))
