"""Scaled products: what each byte of a scale stands for, and which kernel a device runs."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.language.model import Dtype
from generator.problem.stored_values import product
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: [{a: mxfp8e4m3}, {a: nvfp4}]; product: [direct, exchanged, scaled]; select: fixed; "
    "targets: [sm90, sm100]; "
    "tile: [{m: 128, n: 64, k: 128, warps: 4}, {m: 64, n: 64, k: 32, warps: 4}, {m: 64, n: 64, k: 16, warps: 4}]"
)
MXFP8, NVFP4 = "gemm_mxfp8e4m3_fp32_bf16_rcr_none", "gemm_nvfp4_fp32_bf16_rcr_none"
SCALED = "__tiled_pointer_auto_grouped_productscaled"


def mxfp8(rows=3, columns=5, depth=160):
    """Operands whose scales have every byte in turn; those of A and B cancel, but for the last."""
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(lines, depth, generator=random).to(torch.float8_e4m3fn) for lines in (rows, columns))
    scales = torch.arange(rows * depth // 32).reshape(rows, -1).to(torch.uint8)
    return {"a": a, "b": b.T, "a_scale": scales, "b_scale": torch.full((depth // 32, columns), 254, dtype=torch.uint8)}


def test_bytes_of_powers_of_two(family):
    given = mxfp8()
    assert given["a_scale"][0, 0] == 0
    exact, error = product(
        Dtype("mxfp8e4m3", "mxfp8e4m3", "fp32", "bf16", "full"), given["a"], given["b"], given, hardware=False
    )
    found = getattr(family, MXFP8)(**given).double()
    assert bool(((found - exact).abs() <= error + exact.abs() * 2**-8).all())
    # The first block alone, whose scale is 2**-127.
    alone = {**given, "a": given["a"][:1, :32], "b": given["b"][:32], "a_scale": given["a_scale"][:1, :1]}
    smallest = getattr(family, MXFP8)(**{**alone, "b_scale": given["b_scale"][:1]})
    assert torch.equal(smallest, (alone["a"].double() @ alone["b"].double()).bfloat16()) and bool(smallest.any())


def test_byte_255_is_nan(family):
    given = mxfp8()
    given["a_scale"][1, -1] = 255
    found = getattr(family, MXFP8)(**given)
    assert bool(found[1].isnan().all()) and not bool(found[[0, 2]].isnan().any())


def test_scales_of_nvfp4_have_no_sign(family):
    """The matrix unit reads none: what a conversion would multiply by is no number in a scaled product."""
    a = torch.full((2, 16), 0x22, dtype=torch.uint8)
    scales = torch.tensor([[1.0, 2.0], [1.0, -2.0]]).to(torch.float8_e4m3fn)
    given = {"a": a, "b": a[:1].T, "a_scale": scales, "b_scale": scales[:1].T}
    assert getattr(family, NVFP4).which(**given)[0] == NVFP4 + SCALED
    found = getattr(family, NVFP4)(**given)
    assert float(found[0, 0]) == 16 * (1 + 4) and bool(found[1].isnan().all())
    given["a_scale"] = torch.tensor([[1.0, 0.0], [1.0, -0.0]]).to(torch.float8_e4m3fn)
    assert getattr(family, NVFP4)(**given)[:, 0].tolist() == [16.0, 16.0]


@pytest.mark.parametrize(
    ("capability", "able"), [((8, 0), False), ((9, 0), False), ((10, 0), True), ((10, 3), True), ((12, 0), True)]
)
def test_devices_without_such_a_matrix_unit_are_refused(family, monkeypatch, capability, able):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "this GPU")
    properties = SimpleNamespace(major=capability[0], minor=capability[1], shared_memory_per_block_optin=232448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    call = __import__(f"{family.__name__}.{MXFP8}{SCALED}", fromlist=["CALL"]).CALL
    with FakeTensorMode() as mode:
        state = call.state({name: mode.from_tensor(x).to("cuda:0") for name, x in mxfp8().items()})
    assert call.reason(state) == (None if able else "a scaled product needs sm100 or sm120, and this is this GPU")
