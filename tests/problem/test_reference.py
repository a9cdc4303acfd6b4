"""The reference, of outputs beside C too, against torch's own functions, and its bound against fp32 arithmetic."""

import math

import pytest
import torch
from torch.nn import functional

from generator.epilogue import constant_folding, formula
from generator.epilogue.derivative import derivative
from generator.language.built_in import OPERATIONS, chain_of
from generator.language.model import Dtype
from generator.problem import torch_functions
from generator.problem.compare import compare
from generator.problem.error_propagation import FUNCTIONS, Bounded, sum_along
from generator.problem.reference import evaluate, finish, references
from tests.helpers import support
from tests.helpers.verify.operation_values import operands


def variant(dtype="fp32", *operations):
    return support.variant(dtype=Dtype.of(dtype), epilogue=chain_of(operations))


def test_every_function_of_the_formula_language_has_a_reference():
    assert FUNCTIONS.keys() == torch_functions.FUNCTIONS.keys() == {*formula.FUNCTIONS, *formula.SYMBOLS}


def test_a_chain_is_applied_left_to_right_and_a_second_operand_is_its_own():
    chain = variant("fp32", "add", "relu", "add", "scale")
    given = operands(chain.epilogue, 3, 4)
    a, b = torch.randn(3, 5), torch.randn(5, 4)
    x = functional.relu(a.double() @ b.double() + given["add"].double()) + given["add2"].double()
    torch.testing.assert_close(references(chain, a, b, given, hardware=False)[0].value, x * 1.7)


#: Plain fp32 arithmetic, a sigmoid as a kernel computes it.
IN_FP32 = {**torch_functions.FUNCTIONS, "sigmoid": lambda x: 1 / (1 + torch.exp(-x))}


def beside(x):
    """The value of a formula, and a gate's other one."""
    return {"x": x, "gate": x.flip(0)}


def bounded(exact, error):
    """The same with their bounds."""
    errors = beside(error)
    return {name: Bounded(value, errors[name]) for name, value in beside(exact).items()}


def in_fp32(tree, x):
    """A formula over an fp32 tensor, each step rounded to fp32."""
    return formula.evaluate(tree, beside(x), IN_FP32, lambda value: torch.tensor(value, dtype=torch.float32))


BUILT_IN = [(name, op.tree()) for name, op in OPERATIONS.items() if not op.operands and not op.bounds]
FORMULAS = [
    *BUILT_IN,
    *((f"derivative of {name}", derivative(tree, formula.X)) for name, tree in BUILT_IN),
    *(
        (name, constant_folding.bind(text, frozenset({"x"})))
        for name, text in (
            ("division", "x / (1 + x * x)"),
            ("cancelling", "(x + 1000) - 1000"),
            ("minus", "max(-x, 0.1 - x) / 3"),
            ("bounds", "min(max(x, -0.3), 0.7) + abs(x - 1)"),
            ("exponentials", "exp(x / 3) - exp2(x / 2)"),
            ("logarithm", "log(0.5 + abs(x)) * 3"),
            ("logarithm of a small number", "log(x * x)"),
            ("roots", "sqrt(abs(x)) - rsqrt(abs(x) + 0.1)"),
            ("root of a small number", "sqrt(abs(x * x * x))"),
            ("choice", "where(x * x > 0.5, 3 * x, x - 2)"),
            ("choice of an undefined one", "where(x > 0.1, log(x), x)"),
            ("several choices", "where(x <= 0, where(x != -1, x, 5), where(x >= 1, 1, x * 2))"),
            ("rounding", "fp16(x * 1.1) + bf16(x / 7) + fp32(x)"),
            ("power", "(x / 9 + 1) ** 7"),
            ("softplus", "softplus(x) + softplus(-3 * x)"),
            ("overflow", "log(exp(x * x)) - exp(-x * x * x)"),
        )
    ),
]


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(("name", "tree"), FORMULAS)
def test_the_bound_holds_for_fp32_arithmetic_on_an_inexact_accumulator(name, tree, spread):
    random = torch.Generator().manual_seed(1)
    exact = torch.randn(20000, generator=random, dtype=torch.float64) * spread
    error = exact.abs() * 1e-6
    computed = (exact + error * (2 * torch.rand(20000, generator=random, dtype=torch.float64) - 1)).float()
    error = torch.maximum(error, (computed.double() - exact).abs())
    expected = evaluate(tree, bounded(exact, error))
    got = in_fp32(tree, computed)
    assert compare(got, expected).fault is None
    assert float((expected.error.isfinite()).double().mean()) > (0.99 if name != "overflow" else 0.1)


@pytest.mark.parametrize(("name", "tree"), FORMULAS)
def test_the_benchmark_s_formula_in_torch_is_the_reference_s(name, tree):
    random = torch.Generator().manual_seed(2)
    # Whole numbers among them: comparisons at their borders.
    x = torch.cat([torch.randn(300, generator=random, dtype=torch.float64), torch.arange(-50.0, 50.0).double()])
    found = formula.evaluate(tree, beside(x), torch_functions.FUNCTIONS, float)
    expected = evaluate(tree, bounded(x, torch.zeros_like(x))).value
    # What passes the range of fp32 is infinite in the reference alone.
    known = expected.isfinite()
    torch.testing.assert_close(found[known], expected[known], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "tree"), BUILT_IN)
def test_the_bound_is_small_against_the_rounding_of_16_bits(name, tree):
    x = torch.randn(20000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = evaluate(tree, bounded(x, torch.zeros_like(x)))
    assert bool((expected.error <= 1e-5 * expected.value.abs() + 2e-6).all())


@pytest.mark.parametrize("operation", [name for name, _ in BUILT_IN])
def test_what_is_nan_stays_nan_and_an_exact_infinity_is_no_excuse(operation):
    x = torch.tensor([[float("nan"), float("inf"), 1.0]], dtype=torch.float64)
    if OPERATIONS[operation].gated:
        x = torch.cat((x, x), -1)
    expected = finish(variant("fp32", operation), Bounded(x, torch.zeros_like(x)), {})
    assert bool(expected.value[0, 0].isnan())
    assert bool(expected.error.isfinite().all())
    wrong = expected.value.float()
    wrong[0, 0] = 0.0
    assert compare(wrong, expected).fault is not None


def test_operands_are_read_as_fp32():
    third = torch.tensor([1 / 3], dtype=torch.float64)
    x = Bounded(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    expected = finish(variant("fp32", "bias"), x, {"bias": third})
    assert compare(third.float()[None], expected).fault is None
    assert compare(third.half().float()[None], expected).fault is not None


def test_a_comparison_in_doubt_allows_what_either_branch_gives():
    tree = constant_folding.bind("where(x > 1, 100, 0.5 * x)", frozenset({"x"}))
    x = torch.tensor([0.9, 1.0, 1.0 + 2e-7, 1.1], dtype=torch.float64)
    exact = evaluate(tree, {"x": Bounded(x, torch.zeros_like(x))})
    assert exact.error.max() < 1e-6
    doubtful = evaluate(tree, {"x": Bounded(x, torch.full_like(x, 1e-6))})
    assert doubtful.value.tolist() == exact.value.tolist()
    assert (doubtful.error > 99).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "x", "kind"),
    [
        ("log(x)", 0.0, "-inf"),
        ("log(x)", -1.0, "nan"),
        ("sqrt(x)", -1.0, "nan"),
        ("rsqrt(x)", 0.0, "inf"),
        ("exp(x)", 89.0, "inf"),
        ("1 / x", 0.0, "inf"),
        ("x ** 8", 1e5, "inf"),
        ("log(exp(x))", 1000.0, "inf"),
        ("x * exp(x)", float("inf"), "inf"),
        ("x - x", float("inf"), "nan"),
        ("max(x, 0) + min(x, 0)", float("nan"), "nan"),
        ("fp16(x)", 70000.0, "inf"),
    ],
)
def test_what_is_infinite_or_nan_is_so_exactly(text, x, kind):
    exact = torch.tensor([x], dtype=torch.float64)
    found = evaluate(constant_folding.bind(text, frozenset({"x"})), {"x": Bounded(exact, torch.zeros_like(exact))})
    assert str(float(found.value)) == kind and float(found.error) == 0.0
    for wrong in ({"inf", "-inf", "nan"} - {kind}) | {"1.0"}:
        assert compare(torch.tensor([float(wrong)]), found).fault is not None


def test_an_infinity_times_what_fp32_may_have_as_0_may_be_nan():
    gate, x = (torch.tensor([[value]], dtype=torch.float64) for value in (-200.0, torch.inf))
    found = evaluate(OPERATIONS["swiglu"].tree(), {"gate": Bounded(gate, 0 * gate), "x": Bounded(x, 0 * gate)})
    assert compare(torch.tensor([[torch.nan]]), found).fault is None
    assert compare(torch.tensor([[0]], dtype=torch.int8), found).fault is None
    # Of numbers that are no zeros the product is infinite.
    found = evaluate(OPERATIONS["swiglu"].tree(), {"gate": Bounded(gate / 10, 0 * gate), "x": Bounded(x, 0 * gate)})
    assert compare(torch.tensor([[torch.nan]]), found).fault is not None


def test_integers_are_exact_until_an_operation_needs_fp32():
    a, b = torch.full((2, 2000), 127, dtype=torch.int8), torch.full((2000, 2), 127, dtype=torch.int8)
    (exact,) = references(variant("int8", "relu"), a, b, {}, hardware=True)
    assert float(exact.value[0, 0]) == 2000 * 127 * 127
    assert not bool(exact.error.any())
    (rounded,) = references(variant("int8", "relu", "scale"), a, b, {"scale": 1.0}, hardware=True)
    assert bool((rounded.error > 0).all())


def test_what_outputs_are_of_the_chain():
    a, b = torch.tensor([[1.0, 2.0], [3.0, -7.0]]), torch.eye(2)
    v = variant("fp32", "save", "relu", "save", "row_sum", "col_sum", "accumulate", "row_amax")
    c = torch.full((2, 2), -2.0, dtype=torch.float64)
    found = references(v, a, b, {"beta": 4.0, "c": c}, hardware=False)
    expected = [[[-7.0, -6.0], [-5.0, -8.0]], a.tolist(), [[1, 2], [3, 0]], [3, 3], [4, 2], [7, 8]]
    assert [x.value.tolist() for x in found] == expected


def test_a_maximum_of_absolute_values_is_nan_where_one_is():
    a = torch.tensor([[math.nan, 1.0], [-math.inf, 1.0], [-0.0, 0.0]])
    *_, largest = references(variant("fp32", "row_amax"), a, torch.eye(2), {}, hardware=False)
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
