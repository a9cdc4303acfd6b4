"""Outputs beside C: their reference and their bounds; test_planted.py plants mistakes in them."""

import math

import pytest
import torch

from generator.language.built_in import chain_of
from generator.language.model import Dtype
from generator.problem.compare import compare
from generator.problem.error_propagation import Bounded, sum_along
from generator.problem.reference import references
from tests.helpers import support


def variant(chain, dtype="fp32"):
    return support.variant(dtype=Dtype.of(dtype), epilogue=chain_of(chain))


def test_what_outputs_are_of_the_chain():
    a, b = torch.tensor([[1.0, 2.0], [3.0, -7.0]]), torch.eye(2)
    v = variant(("save", "relu", "save", "row_sum", "col_sum", "accumulate", "row_amax"))
    c = torch.full((2, 2), -2.0, dtype=torch.float64)
    found = references(v, a, b, {"beta": 4.0, "c": c}, hardware=False)
    expected = [[[-7.0, -6.0], [-5.0, -8.0]], a.tolist(), [[1, 2], [3, 0]], [3, 3], [4, 2], [7, 8]]
    assert [x.value.tolist() for x in found] == expected


def test_a_maximum_of_absolute_values_is_nan_where_one_is():
    a = torch.tensor([[math.nan, 1.0], [-math.inf, 1.0], [-0.0, 0.0]])
    *_, largest = references(variant(("row_amax",)), a, torch.eye(2), {}, hardware=False)
    assert largest.value.isnan().tolist() == [True, True, False] and largest.value[2] == 0
    wide = Bounded(torch.tensor([[math.nan, 1.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64))
    assert compare(torch.tensor([math.inf]), Bounded(wide.value.amax(-1), wide.error.amax(-1))).fault


@pytest.mark.parametrize("order", ["along", "against", "halves"])
def test_the_bound_of_a_sum_holds_in_whichever_order_it_is_made(order):
    terms = torch.randn(64, 1000, generator=torch.Generator().manual_seed(7)) * 100
    exact = sum_along(Bounded(terms.double(), torch.zeros(64, 1000, dtype=torch.float64)), -1)
    if order == "halves":
        got = terms[:, :512].sum(-1) + terms[:, 512:].sum(-1)
    else:
        got = torch.zeros(64)
        for at in range(1000) if order == "along" else reversed(range(1000)):
            got += terms[:, at]
    verdict = compare(got, exact)
    assert verdict.fault is None and 0 < verdict.ratio < 1
    # Nor does it let a term be left out.
    assert compare(got - 10, exact).fault is not None


def test_a_sum_past_fp32_bounds_nothing_and_one_of_infinities_is_exact():
    zero = torch.zeros(1, 3, dtype=torch.float64)
    past = sum_along(Bounded(torch.tensor([[3e38, 3e38, -3e38]], dtype=torch.float64), zero), -1)
    assert past.error.isnan().all()
    infinite = sum_along(Bounded(torch.tensor([[math.inf, 1.0, 2.0]], dtype=torch.float64), zero), -1)
    assert infinite.value.item() == math.inf and infinite.error.item() == 0
