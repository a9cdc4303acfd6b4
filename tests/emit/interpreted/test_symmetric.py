"""Functions of symmetric results: gradients, operators, and what is refused."""

import pytest
import torch
from torch.nn import functional

from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import results
from tests.helpers.support import render_spec, spec

SPEC = spec(
    "layout: rcr; dtype: fp32; batch: [none, strided]; result: symmetric; "
    "epilogue: [none, add, scale+add+gelu, save]; tile: [{m: 32, n: 64, k: 32, warps: 4}]; backward: kernels"
)


def upper(x):
    """The symmetric matrix of what is on and above the diagonal."""
    return x.triu() + x.triu(1).mT


CHAINS = {
    "none": lambda c: (c,),
    "add": lambda c, add: (c + upper(add),),
    "scale_add_gelu": lambda c, scale, add: (functional.gelu(c * scale + upper(add)),),
    "save": lambda c: (c, c),
}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("chain", CHAINS)
def test_gradients_are_those_of_what_is_computed(family, chain, batch):
    torch.manual_seed(0)
    function = getattr(family, f"{'bmm' if batch else 'gemm'}_fp32_rcr_{chain}_resultsymmetric")
    a, b = (torch.randn(*batch, 70, 33, requires_grad=True) for _ in range(2))
    every = {"scale": torch.tensor([0.3], requires_grad=True), "add": torch.randn(*batch, 70, 70, requires_grad=True)}
    given = {name: x for name, x in every.items() if name in chain}
    found, wanted = results(function(a, b.mT, **given)), CHAINS[chain](upper(a @ b.mT), **given)
    for x, y in zip(found, wanted, strict=True):
        assert torch.equal(x, x.mT)
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
    incoming = [torch.randn(*batch, 70, 70) for _ in found]
    own, exact = (torch.autograd.grad(xs, [a, b, *given.values()], incoming) for xs in (found, wanted))
    torch.testing.assert_close(own, exact, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_a_gram_matrix_is_that_of_torch(family):
    torch.manual_seed(1)
    x, incoming = torch.randn(40, 24, requires_grad=True), torch.randn(40, 40)
    function = family.gemm_fp32_rcr_none_resultsymmetric
    (own,) = torch.autograd.grad(function(x, x.T), x, incoming)
    (exact,) = torch.autograd.grad(x @ x.T, x, incoming)
    torch.testing.assert_close(own, exact, rtol=1e-3, atol=1e-3)


def test_m_and_n_must_be_equal(family, tmp_path):
    spec = "summary: Alone.\nlayout: rcr\ndtype: fp32\nresult: symmetric\npackage: files\nload: pointer\n"
    (path,) = render_spec(tmp_path, "alone", spec).glob("gemm_*.py")
    for call in (family.gemm_fp32_rcr_none_resultsymmetric, load_kernel(path).gemm):
        for device, number in (("cpu", 39), ("cpu", 41), ("meta", 41)):
            x, y = torch.randn(40, 8, device=device), torch.randn(number, 8, device=device)
            assert call(x, x.T).shape == (40, 40)
            told = f"M is 40 in a and {number} in b: they must be equal; C is symmetric, so N is M"
            with pytest.raises(ValueError, match=told):
                call(x, y.T)
