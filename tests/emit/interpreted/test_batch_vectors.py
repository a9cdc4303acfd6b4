"""Vectors of a batch: one that all matrices share, or one for each of them, as a call gives it."""

import pytest
import torch

from tests.helpers.emit.calls import contracts, drawn, operands
from tests.helpers.emit.gradients import check
from tests.helpers.support import spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; "
    "epilogue: [bias, bias_m+scale_m+relu, scale_n+gelu+add, bias+swiglu+bias, bias+bias_m]; load: pointer; "
    "backward: kernels"
)
SIZES = {"B": 3, "M": 70, "N": 67, "K": 19}
CHAINS = ("bias", "biasm_scalem_relu", "scalen_gelu_add", "bias_swiglu_bias", "bias_biasm")


@pytest.mark.parametrize("chain", CHAINS)
def test_each_matrix_has_its_own_or_all_share_one(family, chain):
    name = f"bmm_fp32_rcr_{chain}"
    given = operands(contracts(family)[name], SIZES)
    vectors = [x for x, value in given.items() if value.dim() == 2]
    assert vectors
    product, one = getattr(family, name), getattr(family, name.replace("bmm", "gemm"))
    for shared in ([], vectors, vectors[:1]):
        call = {x: value[0] if x in shared else value for x, value in given.items()}
        expected = torch.stack([one(**{x: y if x in shared else y[at] for x, y in call.items()}) for at in range(3)])
        assert torch.equal(product(**call), expected)
        assert torch.equal(product(**{x: y.expand(3, -1) if x in shared else y for x, y in call.items()}), expected)


@pytest.mark.parametrize("chain", CHAINS)
def test_gradients_of_vectors_of_each_matrix(family, chain):
    check(family, f"bmm_fp32_rcr_{chain}", SIZES)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_gradient_of_a_shared_vector_is_the_sum_over_the_batch(family, chain):
    name = f"bmm_fp32_rcr_{chain}"
    given = operands(contracts(family)[name], SIZES)
    of = drawn((3, 70, 67), torch.float32)
    found = []
    for shared in (True, False):
        leaves = {x: (y[0] if y.dim() == 2 else y).clone().requires_grad_() for x, y in given.items()}
        call = {x: y.expand(3, -1) if y.dim() == 1 and not shared else y for x, y in leaves.items()}
        for _ in range(2):
            for leaf in leaves.values():
                leaf.grad = None
            getattr(family, name)(**call).backward(of)
        found.append({x: y.grad for x, y in leaves.items()})
    for x, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][x], rtol=1e-4, atol=1e-4, msg=x)


def test_vmap_gives_each_matrix_its_own(family):
    given = operands(contracts(family)["bmm_fp32_rcr_bias"], SIZES)
    found = torch.vmap(lambda a, bias: family.gemm_fp32_rcr_bias(a, given["b"][0], bias=bias))(
        given["a"], given["bias"]
    )
    expected = family.bmm_fp32_rcr_bias(given["a"], given["b"][:1].expand(3, -1, -1), bias=given["bias"])
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (torch.ones(2, 67), r"bias must have shape \(3, 67\), got \(2, 67\)"),
        (torch.ones(66), r"bias must have shape \(67,\), got \(66,\)"),
        (torch.ones(3, 1, 67), r"bias must have shape \(3, 67\), got \(3, 1, 67\)"),
        (torch.ones(67, 3).T, "bias must have stride 1 along dimension 1"),
        (torch.ones(134)[::2], "bias must have stride 1 along dimension 0"),
    ],
)
def test_another_vector_is_refused(family, bias, message):
    given = operands(contracts(family)["bmm_fp32_rcr_bias"], SIZES)
    with pytest.raises(ValueError, match=message):
        family.bmm_fp32_rcr_bias(given["a"], given["b"], bias=bias)
