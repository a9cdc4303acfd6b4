"""Gates against torch's own functions, on halves in both orders; and that one half for the other is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from generator.bench import check
from generator.bench.random_operands import make_sets
from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import Rendered, read
from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.epilogue.chain import Epilogue
from generator.language.built_in import OPERATIONS
from generator.language.model import Dtype, Layout
from generator.problem.chain_values import columns_of, taken_apart
from generator.problem.product import Problem, Shape
from generator.verify.case_sizes import Case, Fit
from generator.verify.execute import Interpreter, run_case
from tests.helpers import shipped
from tests.helpers.verify.rendered import changed

FOLDER = shipped.folder("gated")
TILED = "gemm_bf16_rcr_bias_{}__tiled_pointer_auto_grouped"


def chain(order: str, *before: str) -> Epilogue:
    gate = ("swiglu", OPERATIONS["swiglu"], () if order == "concatenated" else (("order", order),))
    return Epilogue.chain([*((name, {**OPERATIONS, **AUXILIARY}[name], ()) for name in before), gate])


@pytest.mark.parametrize("order", ["concatenated", "interleaved"])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_benchmark_knows_both_orders(order: str, sampled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of two halves, whole and in the rows and columns that a large one is looked at in."""
    if sampled:
        monkeypatch.setattr(check, "_WHOLE", 0)
        monkeypatch.setattr(check, "_SAMPLED", 7)
    problem = Problem(Shape(20, 24, 16), Dtype.of("fp32"), Layout.of("rcr"), chain(order, "bias", "save"))
    (one,) = make_sets(problem, "cpu", 1, 3)
    assert one.b.shape == (16, 48) and problem.flops == 2 * 20 * 48 * 16
    bias = one.epilogue["bias"]
    assert isinstance(bias, torch.Tensor) and bias.shape == (48,)
    x = one.a.double() @ one.b.double() + bias.double()
    gate, up = x.chunk(2, -1) if order == "concatenated" else (x[:, 0::2], x[:, 1::2])
    result = functional.silu(gate) * up
    expected, saved = check.expect(problem, one, torch.Generator().manual_seed(1))
    assert check.judge(problem, result.float(), expected).fault is None
    assert check.judge(problem, x.float(), saved).fault is None
    assert check.judge(problem, torch.cat((x[:, 24:], x[:, :24]), -1).float(), saved).fault is not None
    assert check.judge(problem, (functional.silu(up) * gate).float(), expected).fault is not None


def test_columns_of_a_sample_are_in_the_order_of_b() -> None:
    columns, x = torch.tensor([3, 0]), torch.arange(8)
    for order in ("concatenated", "interleaved"):
        gate, up = taken_apart(x, order)
        few = taken_apart(x[columns_of(columns, 4, order)], order)
        assert [half.tolist() for half in few] == [gate[columns].tolist(), up[columns].tolist()]
    assert columns_of(columns, 4, None) is columns


def wrong(folder: Path, name: str, old: str, new: str) -> str | None:
    """What the interpreter says of a kernel with `old` replaced, at primes below a tile."""
    family: Rendered = read(FOLDER)
    kernel = family.by_name[name]
    folder = changed(family, folder / FOLDER.name, name, old, new) if old else family.folder
    module = load_kernel(folder / f"{name}.py")
    row = min(range(len(kernel.tiles)), key=lambda row: kernel.tiles[row].m * kernel.tiles[row].n)
    fit = Fit(kernel.variant, kernel.tiles[row])
    case = Case("primes", "", fit(*fit.primes), row)
    return run_case(module.gemm, tuple(module.CONFIGS), kernel, case, Interpreter()).fault


@pytest.mark.parametrize(
    ("word", "old", "new"),
    [
        ("swiglu", "", ""),
        ("swiglu", "b_gate_ptrs + N * ldb", "b_gate_ptrs"),
        ("swiglu", "tl.dot(a, b_up, acc_up)", "tl.dot(a, b_gate, acc_up)"),
        ("swiglu", "gate * _fast_sigmoid(gate, APPROX) * x", "x * _fast_sigmoid(x, APPROX) * gate"),
        ("swiglu", "bias_ptr + N + offs_n", "bias_ptr + offs_n"),
        ("geglutanh_interleaved", "acc_gate, acc_up = acc", "acc_up, acc_gate = acc"),
        ("geglutanh_interleaved", "offs_n * 2 + 1", "offs_n * 2"),
    ],
)
def test_one_half_for_the_other_is_found(
    word: str, old: str, new: str, tmp_path: Path, interpreted: Callable[..., Any]
) -> None:
    fault = interpreted(wrong, tmp_path, TILED.format(word), old, new)
    assert (fault is None) == (old == new), fault
