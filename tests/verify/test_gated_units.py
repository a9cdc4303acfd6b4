"""Gates against torch's own functions, on halves in both orders; test_planted.py exchanges them in kernels."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from generator.bench import check
from generator.bench.random_operands import make_sets
from generator.epilogue.auxiliary_outputs import AUXILIARY
from generator.epilogue.chain import Epilogue
from generator.language.built_in import OPERATIONS
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape


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
