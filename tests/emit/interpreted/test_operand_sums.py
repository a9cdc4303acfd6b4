"""Sums of A's rows and of B's columns along K, which the loop over K makes beside the product."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from generator.commands.command_line import main
from generator.emit.loading import load_kernel
from tests.helpers.emit.calls import contracts, operands

Family = Callable[[str, str], ModuleType]

SPEC = """\
summary: Sums of operands.
layout: [rcr, crr]
dtype: [fp32, bf16]
batch: [none, strided]
epilogue: [[{a_sum: {}}, {b_sum: {}}], [bias, silu, {a_sum: left}, row_sum]]
load: pointer
tile: [{m: 16, n: 32, k: 16, warps: 1}]
"""


@pytest.fixture(scope="module", params=["tiled", "persistent"])
def family(request: pytest.FixtureRequest, render: Family) -> ModuleType:
    return render(f"operand_sums_{request.param}", f"{SPEC}schedule: {request.param}\n")


@pytest.mark.parametrize("sizes", [{}, {"M": 1, "N": 1, "K": 1}, {"K": 0}, {"M": 0}, {"N": 0}])
def test_the_sums_of_rows_and_columns(family: ModuleType, sizes: dict[str, int]) -> None:
    for name, variant in contracts(family).items():
        given = operands(variant, {"B": 3, "M": 50, "N": 70, "K": 33} | sizes)
        _, first, second = getattr(family, name)(**given)
        torch.testing.assert_close(first, given["a"].float().sum(-1), rtol=1e-5, atol=1e-5)
        if "asum_bsum" in name:
            torch.testing.assert_close(second, given["b"].float().sum(-2), rtol=1e-5, atol=1e-5)


def test_a_weights_gradient_has_that_of_the_bias_beside_it(family: ModuleType) -> None:
    """dW = dY^T X, and the bias's gradient is the sum of each row of dY^T, in fp32."""
    dy, x = torch.randn(40, 24), torch.randn(40, 19)
    dw, db, _ = family.gemm_fp32_crr_asum_bsum(dy.T, x)
    layer = torch.nn.Linear(19, 24)
    layer(x).backward(dy)
    torch.testing.assert_close(dw, layer.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(db, layer.bias.grad, rtol=1e-4, atol=1e-4)


def test_a_row_with_nan_is_alone(family: ModuleType) -> None:
    a, b = torch.ones(40, 16), torch.ones(16, 33)
    a[17, 3], b[2, 32] = torch.nan, torch.inf
    _, rows, columns = family.gemm_fp32_crr_asum_bsum(a.T.contiguous().T, b)
    assert rows.isnan().nonzero().tolist() == [[17]] and columns.isinf().nonzero().tolist() == [[32]]


def test_the_result_has_its_gradient_and_the_sums_have_none(render: Family) -> None:
    text = SPEC.replace("[rcr, crr]", "rcr").replace("[fp32, bf16]", "fp32")
    family = render("sums_and_gradients", f"{text}backward: kernels\n")
    name = "gemm_fp32_rcr_bias_silu_asum_1left_rowsum"
    given = {x: y.requires_grad_() for x, y in operands(contracts(family)[name]).items()}
    out, left, rows = getattr(family, name)(**given)
    assert out.requires_grad and rows.requires_grad and not left.requires_grad
    plain = render("sums_beside", f"{text.replace('row_sum', 'amax')}backward: kernels\n")
    for each in ("gemm_fp32_rcr_bias_silu_asum_1left_amax", "gemm_fp32_rcr_asum_bsum"):
        a, b, *more = (y.detach().requires_grad_() for y in operands(contracts(plain)[each]).values())
        result = getattr(plain, each)(a, b, **({"bias": more[0]} if more else {}))[0]
        result.sum().backward()
        x, y = (z.detach().clone().requires_grad_() for z in (a, b))
        expected = x @ y if not more else torch.nn.functional.silu(x @ y + more[0].detach())
        expected.sum().backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close((a.grad, b.grad), (x.grad, y.grad), rtol=1e-4, atol=1e-4)


def test_a_file_that_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "apart.yaml").write_text(f"{SPEC.replace('[rcr, crr]', 'rcr')}package: files\n")
    assert main([str(tmp_path / "apart.yaml"), "--out", str(tmp_path)]) == 0
    (path,) = (tmp_path / "apart").glob("bmm_fp32*bsum*.py")
    for m, n in ((40, 70), (40, 0), (0, 70)):
        a, b = torch.randn(3, m, 16), torch.randn(3, n, 16).mT
        _, rows, columns = load_kernel(path).gemm(a, b)
        torch.testing.assert_close((rows, columns), (a.sum(-1), b.sum(-2)))
