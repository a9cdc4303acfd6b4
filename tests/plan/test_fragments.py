"""A B in fragment order: which configurations, scales and portfolio its kernels have, and how a call describes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from generator.language.model import Dtype, Tile, Variant
from generator.lowering.shuffled import shuffle_of
from generator.plan import default_configurations, legality, portfolio
from generator.plan.contract_call import call
from generator.problem.stored_values import decoded, product
from tests.helpers.support import variant

INT4 = replace(Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]}), fragments=True)
INT8 = replace(Dtype("bf16", "int8", "fp32", "bf16", None).scaled_by({"b": [0, 1]}), fragments=True)
ZEROS = replace(Dtype("fp16", "uint4", "fp32", "fp16", None).scaled_by({"b": [64, 1]}, zeros=True), fragments=True)


def stored(dtype: Dtype = INT4, **axes: object) -> Variant:
    return variant(**({"dtype": dtype} | axes))


@pytest.mark.parametrize(("dtype", "containers"), [(INT4, "K // 8"), (INT8, "K // 4"), (ZEROS, "K // 8")])
def test_a_call_takes_words(dtype: Dtype, containers: str) -> None:
    b = call(stored(dtype)).b
    assert (b.extents[0], b.dtype) == (containers, "int32")


def test_a_step_has_whole_groups() -> None:
    reason = legality.why_no_row(stored(), Tile(64, 64, 16, warps=4))
    assert reason == "k is 16, and b stores 32 elements along K together"
    assert legality.why_no_row(stored(INT8), Tile(64, 64, 16, warps=4)) is None
    few = stored(INT4.scaled_by({"b": [16, 1]}))
    few = replace(few, dtype=replace(few.dtype, fragments=True))
    assert "16 elements along K, and a step needs a multiple of 32" in (legality.why_not(few) or "")
    for v in (stored(dtype, product=word) for dtype in (INT4, INT8, ZEROS) for word in ("direct", "exchanged")):
        assert all(legality.why_no_row(v, tile) is None for tile in default_configurations.defaults(v))


def test_k_keeps_the_order_of_memory() -> None:
    for dtype in (INT4, INT8):
        assert shuffle_of(stored(dtype, product="exchanged"), [Tile(16, 64, 128, warps=4)]) is None


@pytest.mark.parametrize(("dtype", "alone"), [(INT4, True), (INT8, False), (ZEROS, False)])
def test_elements_are_scaled_where_that_saves_a_sum(dtype: Dtype, alone: bool) -> None:
    assert dtype.stored_b.scaled_alone == alone
    assert dtype.stored_b.scales_sums == (dtype is ZEROS)
    assert not replace(dtype, fragments=False).stored_b.scaled_alone


def test_measurements_without_this_order_stand_for_it() -> None:
    contracts = list(portfolio.similar(stored()))
    assert contracts[0] == stored().contract
    assert stored(replace(INT4, fragments=False)).contract in contracts


def test_the_bound_covers_scales_of_the_elements_type() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(8, 256, generator=generator).bfloat16()
    b = torch.randint(-(2**31), 2**31, (32, 16), dtype=torch.int32, generator=generator)
    scale = torch.rand(2, 16, generator=generator) + 0.5
    exact, bound = product(INT4, a, b, {"b_scale": scale}, hardware=False)
    elements = decoded(INT4.stored_b, b, {})
    assert elements.shape == (256, 16) and elements.min() == -8 and elements.max() == 7
    rounded = elements.bfloat16() * scale.bfloat16().repeat_interleave(128, 0)
    found = a.double() @ rounded.double()
    assert bool(((found - exact).abs() <= bound).all()) and bool((found - exact).abs().max() > 0)
    # The bound is not so wide that a scale of another block would pass.
    other = a.double() @ (elements * scale.flip(0).double().repeat_interleave(128, 0))
    assert bool(((other - exact).abs() > bound).any())
