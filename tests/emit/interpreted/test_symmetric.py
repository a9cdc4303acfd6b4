"""Functions of symmetric results: gradients, operators, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from generator.commands.command_line import main
from generator.emit.loading import load_family, load_kernel

SPEC = """\
summary: Symmetric products.
layout: rcr
dtype: fp32
batch: [none, strided]
result: symmetric
epilogue: [none, add, scale+add+gelu, save]
tile:
  - {m: 32, n: 64, k: 32, warps: 4}
backward: kernels
"""


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    (folder / "gram.yaml").write_text(SPEC)
    assert main([str(folder / "gram.yaml"), "--out", str(folder)]) == 0
    return load_family(Path(folder) / "gram")


def upper(x: torch.Tensor) -> torch.Tensor:
    """The symmetric matrix of what is on and above the diagonal."""
    return x.triu() + x.triu(1).mT


def expected(chain: str, a: torch.Tensor, b: torch.Tensor, operands: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    c = upper(a @ b)
    if chain == "add":
        return (c + upper(operands["add"]),)
    if chain == "scale_add_gelu":
        return (functional.gelu(c * operands["scale"] + upper(operands["add"])),)
    return (c, c) if chain == "save" else (c,)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("chain", ["none", "add", "scale_add_gelu", "save"])
def test_gradients_are_those_of_what_is_computed(family, chain, batch):
    torch.manual_seed(0)
    function = getattr(family, f"{'bmm' if batch else 'gemm'}_fp32_rcr_{chain}_resultsymmetric")
    a, b = (torch.randn(*batch, 70, 33, requires_grad=True) for _ in range(2))
    operands = {}
    if "add" in chain:
        operands["add"] = torch.randn(*batch, 70, 70, requires_grad=True)
    if "scale" in chain:
        operands["scale"] = torch.tensor([0.3], requires_grad=True)
    found = function(a, b.mT, **operands)
    results = found if isinstance(found, tuple) else (found,)
    wanted = expected(chain, a, b.mT, operands)
    incoming = [torch.randn(*batch, 70, 70) for _ in results]
    for x, y in zip(results, wanted, strict=True):
        assert torch.equal(x, x.mT)
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
    inputs = [a, b, *operands.values()]
    own, exact = (torch.autograd.grad(xs, inputs, incoming) for xs in (results, wanted))
    for x, y in zip(own, exact, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_a_gram_matrix_is_that_of_torch(family):
    torch.manual_seed(1)
    x, incoming = torch.randn(40, 24, requires_grad=True), torch.randn(40, 40)
    function = family.gemm_fp32_rcr_none_resultsymmetric
    (own,) = torch.autograd.grad(function(x, x.T), x, incoming)
    (exact,) = torch.autograd.grad(x @ x.T, x, incoming)
    torch.testing.assert_close(own, exact, rtol=1e-3, atol=1e-3)


def test_m_and_n_must_be_equal(family):
    function = family.gemm_fp32_rcr_none_resultsymmetric
    for number in (39, 41):
        with pytest.raises(
            ValueError,
            match=rf"gemm_fp32_rcr_none_resultsymmetric: M is 40 in a and {number} in b: .*; C is symmetric, so N is M",
        ):
            function(torch.zeros(40, 8), torch.zeros(number, 8).T)
    fake = torch.zeros(40, 8, device="meta")
    assert function(fake, fake.T).shape == (40, 40)
    with pytest.raises(ValueError, match="M is 40"):
        function(fake, torch.zeros(41, 8, device="meta").T)


def test_a_file_that_stands_alone_says_that_m_and_n_must_be_equal(tmp_path):
    spec = "summary: Alone.\nlayout: rcr\ndtype: fp32\nresult: symmetric\npackage: files\nload: pointer\n"
    (tmp_path / "alone.yaml").write_text(spec)
    assert main([str(tmp_path / "alone.yaml"), "--out", str(tmp_path)]) == 0
    (path,) = (tmp_path / "alone").glob("gemm_*.py")
    kernel = load_kernel(path)
    x = torch.randn(5, 8)
    torch.testing.assert_close(kernel.gemm(x, x.T), x @ x.T)
    with pytest.raises(ValueError, match="M is 5 in a and 4 in b: they must be equal; C is symmetric, so N is M"):
        kernel.gemm(x, x[:4].T)
