"""Linear layers of a family: `nn.Linear` and `nn.replace_linear`."""

import copy
import io
import pickle

import pytest
import torch

SPEC = """\
summary: For linear layers.
layout: rcr
dtype: [fp32, bf16]
epilogue: [none, bias, bias+relu, bias+swiglu, scale]
load: pointer
backward: kernels
"""


def model(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    """Two linear layers and one within another module."""
    torch.manual_seed(0)
    inner = torch.nn.ModuleDict({"up": torch.nn.Linear(24, 24, dtype=dtype)})
    made = torch.nn.Sequential(torch.nn.Linear(33, 24, bias=False, dtype=dtype), torch.nn.ReLU())
    made.add_module("inner", torch.nn.Sequential(*inner.values()))
    made.append(torch.nn.Linear(24, 8, dtype=dtype))
    return made


def test_layers_are_replaced_and_trained_alike(family, launches):
    ours, theirs = model(), model()
    parameters = [*ours.parameters()]
    assert family.nn.replace_linear(ours) == ["0", "inner.0", "3"]
    layers = [each for each in ours.modules() if isinstance(each, torch.nn.Linear)]
    assert [type(each) for each in layers] == [family.nn.Linear] * 3
    contracts = ["gemm_fp32_rcr_none", "gemm_fp32_rcr_bias", "gemm_fp32_rcr_bias"]
    assert [each.contract for each in layers] == contracts and "contract=gemm_fp32_rcr_none" in repr(ours)
    # The parameters are the same tensors, so that an optimiser that was made before has them.
    assert all(x is y for x, y in zip(parameters, ours.parameters(), strict=True))
    x = torch.randn(2, 5, 33)
    expected, found = theirs(x), ours(x)
    torch.testing.assert_close(found, expected)
    assert launches.count("gemm_kernel") == 3
    expected.square().sum().backward()
    found.square().sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    assert family.nn.replace_linear(ours) == []


def test_layers_are_copied_and_pickled(family):
    layer = family.nn.Linear(33, 24, contract="gemm_fp32_rcr_bias_relu")
    x = torch.randn(5, 33)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
        assert type(other) is family.nn.Linear and other.contract == layer.contract
        assert other.weight is not layer.weight and torch.equal(other(x), layer(x))


def test_a_layer_computes_its_contract(family):
    x = torch.randn(2, 3, 33)
    relu = family.nn.Linear(33, 24, contract="gemm_fp32_rcr_bias_relu")
    torch.testing.assert_close(relu(x), torch.relu(torch.nn.functional.linear(x, relu.weight, relu.bias)))
    gated = family.nn.Linear(33, 24, contract="gemm_fp32_rcr_bias_swiglu")
    gate, up = torch.nn.functional.linear(x, gated.weight, gated.bias).chunk(2, -1)
    assert gated(x).shape == (2, 3, 12)
    torch.testing.assert_close(gated(x), torch.nn.functional.silu(gate) * up)
    empty = relu(torch.randn(0, 3, 33))
    assert empty.shape == (0, 3, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert relu(x).dtype == torch.bfloat16


def test_a_contract_that_does_not_fit_is_refused(family):
    for options, told in (
        (
            {"dtype": torch.float16},
            "^no contract does just what torch.nn.Linear does for a weight of torch.float16 with bias; this family",
        ),
        ({"bias": False, "contract": "gemm_fp32_rcr_bias"}, "gemm_fp32_rcr_bias does not fit .* without bias; .*_none"),
        ({"contract": "gemm_fp32_rcr_scale"}, "gemm_fp32_rcr_scale does not fit a weight of torch.float32 with bias"),
    ):
        with pytest.raises(ValueError, match=told):
            family.nn.Linear(33, 24, **options)
    with pytest.raises(ValueError, match="gemm_fp32_rcr_scale is no contract of a linear layer; those of this family"):
        family.nn.replace_linear(model(), "gemm_fp32_rcr_scale")


def test_a_model_is_compiled_and_exported(family, launches):
    torch._dynamo.reset()
    ours, theirs, x = model(), model(), torch.randn(2, 5, 33)
    family.nn.replace_linear(ours)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    found = compiled(x)
    assert launches == ["gemm_kernel"] * 3
    torch.testing.assert_close(found, theirs(x))
    found.sum().backward()
    theirs(x).sum().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    program = torch.export.export(ours, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    y = torch.randn(7, 5, 33)
    torch.testing.assert_close(program.module()(y), theirs(y))
