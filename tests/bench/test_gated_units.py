"""Gates on both sides of a comparison: operands with 2N columns, work, what may be off, how eager torch calls them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from generator.bench import check, eager, random_operands
from generator.epilogue.chain import Epilogue
from generator.epilogue.gated_units import INTERLEAVED, ORDER
from generator.language.built_in import OPERATIONS, chain_of
from generator.problem.accumulation_bounds import tolerance
from generator.problem.product import Shape

from .test_measure import problem


@pytest.mark.parametrize("shape", [Shape(24, 40, 32), Shape(24, 40, 32, 3), Shape(24, 40, 32, batch=2)], ids=str)
def test_a_gate_has_two_columns_of_b_for_each_of_the_result(shape: Shape) -> None:
    of = replace(problem("bf16", chain_of(("bias", "swiglu", "add"))), shape=shape)
    (one,) = random_operands.make_sets(of, "cpu", 1, seed=0)
    front = (shape.batch,) if shape.batch else ()
    assert one.b.shape == (*front, 32, 80) and one.out.shape == (*front, 24, 40)
    assert {name: tuple(x.shape[-2:]) for name, x in one.epilogue.items()} == {"bias": (80,), "add": (24, 40)}
    products = shape.batch or 1
    assert of.flops == 2 * 24 * 80 * 32 * products
    assert of.bytes == 2 * (products * (24 * 32 + 32 * 80 + 2 * 24 * 40) + 80)


def test_an_error_of_one_half_counts_by_the_other() -> None:
    """Sums that are as far off as their type allows may be, whose product is small where one of them is."""
    of = replace(problem("fp8e4m3", chain_of(("swiglu",))), shape=Shape(128, 128, 512))
    (one,) = random_operands.make_sets(of, "cpu", 1, seed=0)
    (expected,) = check.expect(of, one, torch.Generator())
    product = one.a.double() @ one.b.double()
    noise = torch.randn(product.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    off = product + 0.2 * tolerance(of.dtype, 512) * math.sqrt(512) * noise
    out = (torch.nn.functional.silu(off[:, :128]) * off[:, 128:]).bfloat16()
    assert check.judge(of, out, expected).fault is None
    out[3, 5] += float(expected.parts[0].value.norm()) / 128
    fault = check.judge(of, out, expected).fault
    assert fault is not None and "one element" in fault


@pytest.mark.parametrize(("order", "halving"), [("concatenated", ["split"]), ("interleaved", ["slice", "slice"])])
def test_a_gate_is_called_as_a_user_writes_it(order: str, halving: list[str]) -> None:
    chain = Epilogue.chain([("swiglu", OPERATIONS["swiglu"], ((ORDER, order),) if order == INTERLEAVED else ())])
    graph = make_fx(lambda x: eager.apply(chain, x, {}))(torch.ones(2, 8)).graph
    called = [n.target.overloadpacket.__name__ for n in graph.nodes if hasattr(n.target, "overloadpacket")]
    assert called == [*halving, "silu", "mul"]
