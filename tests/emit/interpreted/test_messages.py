"""Mistakes of a first call: each message says what to pass or to call instead, with and without torch's operators."""

import importlib

import pytest
import torch

from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: [fp16, {{a: fp16, b: int4, scales: {{b: [32, 1]}}}}]; epilogue: [none, bias, scale_m]; "
    "tile: [{{m: 16, n: 16, k: 32, warps: 1}}]; package: {package}"
)
NAME = "gemm_fp16_rcr_none"
HALF = torch.float16
A, B = torch.randn(8, 32, dtype=HALF), torch.randn(16, 32, dtype=HALF).T
BIAS, ROWS = torch.randn(16, dtype=HALF), torch.randn(8, dtype=HALF)

#: Contract without its head, operands, and the end of the message.
WRONG = {
    "a positional bias": ("bias", (A, B, BIAS), {}, TypeError, "without a keyword, all others with one: bias=, out="),
    "three dimensions": ("none", (A[None], B), {}, ValueError, ": a must have two dimensions, got shape (1, 8, 32)"),
    "a vector": ("none", (A[0], B), {}, ValueError, "a must have two dimensions, got shape (32,)"),
    "a batch of weights": ("none", (A, B[None]), {}, ValueError, "b must have two dimensions, got shape (1, 32, 16)"),
    "a wider type": ("none", (A.float(), B.float()), {}, TypeError, ": a must be torch.float16, got torch.float32"),
    "one of another type": ("none", (A, B.bfloat16()), {}, TypeError, "got torch.bfloat16"),
    "integers": ("none", (A.int(), B), {}, TypeError, ": a must be torch.float16, got torch.int32"),
    "stepped columns": ("none", (torch.randn(8, 64).half()[:, ::2], B), {}, ValueError, "got strides (64, 2)"),
    "a stepped weight": ("none", (A, torch.randn(16, 64).half()[:, ::2].T), {}, ValueError, "got strides (2, 64)"),
    "a stepped bias": ("bias", (A, B), {"bias": torch.randn(32)[::2]}, ValueError, "got strides (2,)"),
    "an array": ("none", (A.numpy(), B), {}, TypeError, "a must be a torch.Tensor, got ndarray"),
    "an array of an operand": ("bias", (A, B), {"bias": BIAS.numpy()}, TypeError, "torch.Tensor, got ndarray"),
    "a column of scales": ("scalem", (A, B), {"scale_m": ROWS[:, None]}, ValueError, "shape (8,), got (8, 1)"),
    "a row of scales": ("scalem", (A, B), {"scale_m": ROWS[None]}, ValueError, "got (1, 8)"),
    "other rows": ("scalem", (A, B), {"scale_m": BIAS}, ValueError, "must have shape (8,), got (16,)"),
}


@pytest.fixture(scope="module", params=["torch", "plain"])
def family(request, render):
    return render(f"first_{request.param}", SPEC.format(package=request.param))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("grad", [True, False])
def test_a_message_says_what_to_do(family, what, grad):
    chain, given, keywords, kind, told = WRONG[what]
    with torch.set_grad_enabled(grad), pytest.raises(kind) as caught:
        getattr(family, f"gemm_fp16_rcr_{chain}")(*given, **keywords)
    assert str(caught.value).startswith(f"gemm_fp16_rcr_{chain}") and str(caught.value).endswith(told)


def test_a_dense_weight_is_not_taken_for_a_stored_one(family):
    name = "gemm_fp16xint4_fp32_fp16_b32x1_rcr_none"
    with pytest.raises(TypeError, match=f"^{name}: b must be torch.uint8 as `_pack` makes it, got torch.float16$"):
        getattr(family, name)(A, B, b_scale=torch.ones(1, 16))


def test_what_is_no_function_is_not_taken_for_one(family):
    module = f"{NAME}__tiled_pointer_auto_grouped"
    exec(f"from {family.__name__} import {module}")
    assert importlib.import_module(f"{family.__name__}.{module}").CALL
    with pytest.raises(ImportError, match="cannot import name 'nothing' from"):
        exec(f"from {family.__name__} import nothing")


def test_a_layer_names_its_own_tensors(render):
    family = render("first_layer", SPEC.format(package="torch"))
    layer = importlib.import_module(f"{family.__name__}.nn").Linear(32, 16, dtype=HALF)
    with pytest.raises(TypeError, match=r"input must be torch.float16 as weight is, got torch.float32; pass input.to"):
        layer(A.float())
    with pytest.raises(RuntimeError, match=r"^gemm_fp16_rcr_bias: b, bias require a gradient, and this contract rec"):
        layer(A)
    layer.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"^gemm_fp16_rcr_bias: a requires a gradient, and this contract records"):
        layer(A.clone().requires_grad_())
    with torch.autocast("cpu", HALF):
        assert layer(A.float()).dtype == HALF
