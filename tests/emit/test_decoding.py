"""The two kernels of decoded: launched in order by every call, on a dense B that the call allocates."""

import pytest
import torch

from generator.lowering.decoding import MOST_DECODED
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, rrr]; dtype: {{a: bf16, b: int4, scales: {{b: [32, 1]}}}}; schedule: {schedule}; load: {load}; "
    "epilogue: [none, swiglu]; tile: [{{m: 32, n: 32, k: 32, group: 2, warps: 4}}]"
)
NAME = "gemm_bf16xint4_fp32_bf16_b32x1_rcr_none"


@pytest.fixture(params=["pointer", "descriptor"])
def family(request, rendered):
    return rendered(SPEC.format(schedule="decoded", load=request.param))


def kernels(package, contract):
    """The stand-ins for both kernels of a contract that has one file."""
    module = package._kernel(package._KERNELS[contract][0])
    return module.decode_kernel, module.gemm_kernel


def operands(m=64, n=48, k=72, layout="c"):
    b = torch.zeros(n, k // 2, dtype=torch.uint8).T if layout == "c" else torch.zeros(k // 2, n, dtype=torch.uint8)
    return {"a": torch.randn(m, k).bfloat16(), "b": b, "b_scale": torch.rand(-(-k // 32), n)}


@pytest.mark.parametrize(("layout", "strides"), [("c", (1, 72)), ("r", (96, 1))])
def test_a_dense_b_lies_as_b_does(family, layout, strides):
    """With a gated linear unit it has two columns for each of the result."""
    name = NAME.replace("rcr_none", f"r{layout}r_swiglu")
    assert getattr(family, name)(**operands(n=96, layout=layout)).shape == (64, 48)
    dense = kernels(family, name)[0].launches[0][2]["decoded_ptr"]
    assert (dense.shape, dense.stride()) == ((72, 96), strides)


def large():
    """Operands whose dense B has more bytes than are allocated, in little memory."""
    k, n = 16384, MOST_DECODED // (2 * 16384) + 1
    b = torch.zeros(k // 2, 1, dtype=torch.uint8).expand(k // 2, n)
    return {"a": torch.zeros(1, k, dtype=torch.bfloat16), "b": b, "b_scale": torch.ones(1, 1).expand(512, n)}


def test_a_large_b_is_refused_or_a_siblings(rendered):
    package, given = rendered(SPEC.format(schedule="[tiled, decoded]", load="pointer")), large()
    assert getattr(package, NAME)(**given).shape == (1, 16385)
    tiled, decoded = (package._kernel(name) for name in package._KERNELS[NAME])
    assert len(tiled.gemm_kernel.launches) == 1 and not decoded.gemm_kernel.launches
    with pytest.raises(ValueError, match="the bytes of a decoded b are at most 536870912, got 536903680"):
        decoded.gemm(**given)
    decoded.gemm(**{name: x[:, :-1] if name != "a" else x for name, x in given.items()})
    assert len(decoded.gemm_kernel.launches) == 1
