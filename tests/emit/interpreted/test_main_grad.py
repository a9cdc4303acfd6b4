"""Gradients of weights that are added where they are kept, as `main_grad` of Megatron-LM."""

import pytest
import torch
from torch.nn import functional

from tests.helpers.emit.calls import drawn
from tests.helpers.support import spec

SPEC = spec(
    "layout: [rcr, crr]; dtype: [bf16, {a: bf16, out: fp32}]; epilogue: [none, bias, gelu, [{accumulate: {beta: 1}}]]; "
    "backward: kernels; schedule: tiled; load: pointer; tile: [{m: 16, n: 16, k: 16, warps: 1}]; exclude: ["
    '{layout: crr, epilogue: [bias, gelu], because: "the products of backward passes add"}, '
    '{layout: crr, dtype: {a: bf16, out: fp32}, epilogue: none, because: "the products of backward passes add"}, '
    '{layout: rcr, epilogue: [[{accumulate: {beta: 1}}]], because: "the products of backward passes add"}, '
    '{layout: rcr, dtype: {a: bf16, out: fp32}, because: "layers have results of their own type"}]'
)
M, N, K = 20, 24, 40


def layer_of(family, **options):
    layer = family.nn.Linear(K, N, dtype=torch.bfloat16, accumulate_into="main_grad", **options)
    layer.weight.main_grad = drawn((N, K), torch.float32, seed=3)
    return layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_gradient_is_added_to_what_is_kept(family, dtype, bias):
    layer = layer_of(family, bias=bias)
    layer.weight.main_grad = layer.weight.main_grad.to(dtype)
    before, wanted = layer.weight.main_grad.clone(), torch.zeros(N, K, dtype=torch.float64)
    for step in range(2):
        x = drawn((2, M, K), torch.bfloat16, seed=step).requires_grad_(step == 1)
        gradient = drawn((2, M, N), torch.bfloat16, seed=step + 5)
        y = layer(x)
        torch.testing.assert_close(y, functional.linear(x, layer.weight, layer.bias))
        y.backward(gradient)
        wanted += gradient.double().flatten(0, 1).t() @ x.detach().double().flatten(0, 1)
        if step:
            torch.testing.assert_close(x.grad, gradient @ layer.weight, rtol=2e-2, atol=2e-2)
    assert layer.weight.grad is None and (not bias or layer.bias.grad is not None)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(
        layer.weight.main_grad.double(), before.double() + wanted, rtol=tolerance, atol=tolerance * 30
    )


def test_a_weight_without_it_has_a_gradient_as_ever(family):
    layer, x = layer_of(family), drawn((M, K), torch.bfloat16)
    del layer.weight.main_grad
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(layer(x), functional.linear(x, layer.weight, layer.bias))


def test_who_adds_gradients_later_is_told(family):
    layer, seen = layer_of(family), []
    layer.weight.grad_added_to_main_grad = False
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append((p.grad_added_to_main_grad, p.grad.any())))
    before = layer.weight.main_grad.clone()
    layer(drawn((M, K), torch.bfloat16)).sum().backward()
    assert seen == [(True, False)] and not torch.equal(layer.weight.main_grad, before)


def test_a_model_and_a_copy_of_it_keep_the_word(family):
    model = torch.nn.Sequential(torch.nn.Linear(K, N, dtype=torch.bfloat16))
    assert family.nn.replace_linear(model, accumulate_into="main_grad") == ["0"]
    model[0].weight.main_grad = torch.zeros(N, K)
    model(drawn((M, K), torch.bfloat16)).sum().backward()
    assert model[0].weight.main_grad.any() and model[0].weight.grad is None


@pytest.mark.parametrize(
    ("kept", "error", "words"),
    [
        (torch.zeros(K, N), ValueError, r"must be as the weight \(24, 40\), got \(40, 24\)"),
        (torch.zeros(K, N).t(), ValueError, "strides"),
        (torch.zeros(N, K, dtype=torch.float16), ValueError, "torch.bfloat16 to torch.float16: list layout crr"),
        ("here", TypeError, "must be a tensor, got str"),
    ],
)
def test_what_nothing_is_added_to_is_refused_before_the_call(family, kept, error, words):
    layer = layer_of(family)
    layer.weight.main_grad = kept
    layer._multiplied = lambda *given: pytest.fail("the product is launched")
    with pytest.raises(error, match=words):
        layer(drawn((M, K), torch.bfloat16))


def test_layers_that_do_more_and_families_without_such_a_contract_refuse(family, render):
    with pytest.raises(ValueError, match="gemm_bf16_rcr_gelu does more than"):
        layer_of(family, contract="gemm_bf16_rcr_gelu", bias=False)
    other = render("without_sums", SPEC.replace(", [{accumulate: {beta: 1}}]]", "]").partition("exclude")[0])
    with pytest.raises(ValueError, match=r"lacks a contract of layout crr with \[\{accumulate"):
        layer_of(other)
    model = torch.nn.Sequential(torch.nn.Linear(K, N, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="accumulate_into"):
        other.nn.replace_linear(model, accumulate_into="main_grad")
    assert type(model[0]) is torch.nn.Linear
