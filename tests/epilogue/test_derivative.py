"""Derivatives: against torch's autograd, against finite differences, and as text; what chains make of them."""

import ast
import time

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from generator.epilogue import constant_folding, formula
from generator.epilogue.chain_gradients import gradients, reads_sum
from generator.epilogue.derivative import SLOPES, derivative
from generator.epilogue.formula import DEEPEST, GATE, LONGEST, FormulaError, X
from generator.epilogue.formula_code import to_triton
from generator.epilogue.operations import ROWS
from generator.language.built_in import chain_of
from generator.problem.torch_functions import FUNCTIONS as TORCH
from tests.helpers.support import BASE, read_text
from tests.helpers.verify.operation_values import WITNESSES, WRITTEN

NAMES = frozenset({"x", "y"})


def of(text, name="x"):
    return derivative(constant_folding.bind(text, NAMES), name)


def at(tree, values):
    """The value of a tree at `values`, which are broadcast together."""
    whole = torch.broadcast_tensors(*values.values())[0]
    return torch.as_tensor(formula.evaluate(tree, values, TORCH, float), dtype=whole.dtype).expand(whole.shape)


def step_of(word):
    """An operation with parameters, as a spec writes it."""
    (chain,) = read_text(f"{BASE}epilogue: [{WRITTEN[word]}]\n").axes["epilogue"]
    return chain.steps[0], chain


@pytest.mark.parametrize("word", [word for word in WITNESSES if "interleaved" not in word])
def test_every_operation_has_the_derivatives_of_torch(word):
    step, chain = step_of(word)
    # The kinks, where functions of the others underflow or saturate, and where a factor of 0 meets a large one.
    points = [-3, -1, 0.1, 0.5, 1.6, 2.5, 3, 0, -0.0, 1e-300, 1e-8, 20, -20, 40, -40, 1000, -1000, 1e10, -1e10]
    random = torch.Generator().manual_seed(0)
    drawn = torch.randn(2000, generator=random, dtype=torch.float64) * 4
    grid = torch.cat([torch.tensor([*points, 1e100, -1e100], dtype=torch.float64), drawn])
    others = torch.randn(len(grid), generator=random, dtype=torch.float64)
    sums = [GATE, X] if step.meaning.gated else [X]
    first, *rest = [*sums, *(operand.name for operand in chain.operands)]
    values = {first: grid} | dict.fromkeys(rest, others)
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    operands = {o.name: leaves[o.name] if o.shape == ROWS else leaves[o.name][:, None] for o in chain.operands}
    result = WITNESSES[word](torch.stack([leaves[name] for name in sums], -1), operands)
    for variable, wanted in zip(leaves, torch.autograd.grad(result.sum(), list(leaves.values()))):
        # torch's own functions overflow in the cube of gelu_tanh.
        defined = ~wanted.isnan()
        assert bool(defined[: len(points)].all())
        got = at(derivative(step.tree, variable), values)
        torch.testing.assert_close(got[defined], wanted[defined], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("word", ["relu", "leaky_relu", "clamp(min=-1, max=2.5)", "tanh", "silu", "gelu", "sigmoid"])
def test_nan_is_treated_as_by_torch(word):
    x = torch.tensor([[torch.nan]], dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(WITNESSES[word](x, {}).sum(), x)
    got = at(derivative(step_of(word)[0].tree, X), {X: x.detach()})
    torch.testing.assert_close(got, wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        # At a tie the second argument counts.
        *(("max(x, 0)", 0, 0), ("max(0, x)", 0, 1), ("min(2 * x, x)", 0, 1), ("max(x, x)", 0, 1)),
        *(("where(x >= 0, 3 * x, 5 * x)", 0, 3), ("abs(x)", 0, 0), ("abs(x)", -2, -1)),
        ("fp16(x) + bf16(3 * x) + fp32(x)", 0.1, 5),
        # Nothing comes from a branch that is not taken.
        *(("where(x > 0, sqrt(x), 0) * exp(x)", 0, 0), ("where(x > 0, log(x), 1) / x", 0, -torch.inf)),
        *(("sqrt(max(x, 0))", -1, 0), ("log(max(x, 0)) * y", -1, 0), ("rsqrt(abs(x))", 0, 0)),
        ("sqrt(where(x > 1, where(x > 2, 0, x), 5 * x))", 3, 0),
    ],
)
def test_where_there_is_no_derivative(text, x, expected):
    values = {"x": torch.tensor([x], dtype=torch.float64), "y": torch.tensor([torch.inf], dtype=torch.float64)}
    assert at(of(text), values).item() == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        *(("x + y", "y", "1"), ("x * y", "y", "x"), ("x - y", "y", "-1"), ("x * 2 + y", "x", "2")),
        *(("x + sqrt(y)", "x", "1"), ("x / y", "x", "1 / y"), ("x / y", "y", "-x / y / y"), ("x / 4 * 8", "x", "2")),
        ("-(x * -y)", "x", "y"),
        ("(x + 1) ** 3", "x", "3 * (x + 1) ** 2"),
        ("x ** 2 / 2", "x", "x"),
        ("x * x * x", "x", "3 * x * x"),
        ("x * y + y * x", "x", "2 * y"),
        ("x * log(x) - x", "x", "log(x)"),
        ("max(x, 0)", "x", "where(x <= 0, 0, 1)"),
        ("min(x, y)", "y", "where(x >= y, 1, 0)"),
        ("max(x, 0) ** 2 * y", "x", "where(x <= 0, 0, 2 * max(x, 0) * y)"),
        ("where(x > y, x, x + y)", "x", "1"),
        ("abs(x)", "x", "where(abs(x) > 0, where(x < 0, -1, 1), 0)"),
        *(("exp(2 * x)", "x", "2 * exp(2 * x)"), ("exp2(x)", "x", "0.6931471805599453 * exp2(x)")),
        *(("sqrt(x)", "x", "0.5 * rsqrt(x)"), ("rsqrt(x)", "x", "-0.5 * rsqrt(x) ** 3")),
        ("erf(x)", "x", "1.1283791670955126 * exp(-x * x)"),
        ("y * tanh(x / y)", "x", "4 * sigmoid(2 * x / y) * sigmoid(-2 * x / y)"),
        ("x * sigmoid(x)", "x", "sigmoid(x) + x * sigmoid(x) * sigmoid(-x)"),
        ("softplus(y * x) / y", "x", "sigmoid(y * x)"),
    ],
)
def test_derivatives_are_simplified(text, name, expected):
    assert ast.unparse(of(text, name)) == expected


@pytest.mark.parametrize(("text", "least", "most"), [("tanh(x)", 4, 20), ("sigmoid(x)", 10, 80)])
def test_tails_are_exact_in_fp32(text, least, most):
    x = torch.linspace(least, most, 999, dtype=torch.float64).float()
    exact = at(of(text), {"x": x.double()})
    torch.testing.assert_close(at(of(text), {"x": x}).double(), exact, rtol=2e-5, atol=0)
    # As torch computes it, all digits are lost there.
    value = at(constant_folding.bind(text, NAMES), {"x": x})
    assert float((1 - value)[-1]) == 0


def test_a_constant_that_fp32_cannot_hold_is_told():
    with pytest.raises(FormulaError, match="not finite in fp32"):
        of("x * 1e30 * 1e30")
    with pytest.raises(FormulaError, match="is 0 in fp32"):
        of("x * 1e-30 * 1e-30")


@pytest.mark.parametrize(
    "text", ["tanh(%s)", "sigmoid(%s * x)", "(%s + x * x) ** 8", "max(%s, -(%s))", "sqrt(%s) / x", "abs(%s)"]
)
def test_the_derivative_of_the_longest_formula_is_made_and_written_in_seconds(text):
    """Derived trees are longer and deeper than formulas may be; no part of them is built a second time."""
    whole = "x"
    while (longer := text.replace("%s", whole)).count("(") < DEEPEST // 2 and len(longer) < LONGEST:
        whole = longer
    start = time.process_time()
    tree = of(whole)
    lines = to_triton(tree, {"x": "acc"}, target="slope")
    assert time.process_time() - start < 10
    assert lines[-1].startswith("slope = ") and all(len(line) < 120 for line in lines)
    assert len(ast.unparse(tree)) < 100 * len(whole)


def test_every_function_and_operator_has_a_derivative():
    assert SLOPES.keys() == {*formula.FUNCTIONS, *formula.SYMBOLS}


_LEAVES = ("x", "x", "x", "y", "2", "7", "0.5", "0.03")
_SMOOTH = ("exp", "exp2", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid", "softplus", "abs")


@st.composite
def formulas(draw, depth=3):
    """A formula over `x` and `y` with every function and operator except rounding, which has no finite differences."""
    kind = draw(st.sampled_from(["leaf", "call", "sign", "power", "operator", "bound", "where"])) if depth else "leaf"
    if kind == "leaf":
        return draw(st.sampled_from(_LEAVES))
    inner = formulas(depth - 1)
    first = draw(inner)
    match kind:
        case "call":
            return f"{draw(st.sampled_from(_SMOOTH))}({first})"
        case "sign":
            return f"-({first})"
        case "power":
            return f"({first}) ** {draw(st.integers(2, 8))}"
        case "operator":
            return f"({first} {draw(st.sampled_from('+-*/'))} {draw(inner)})"
        case "bound":
            return f"{draw(st.sampled_from(['max', 'min']))}({first}, {draw(inner)})"
    return f"where({first} < {draw(inner)}, {draw(inner)}, {draw(inner)})"


_POINTS = st.floats(-3, 3).filter(lambda value: abs(value) > 0.05)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(formulas(), _POINTS, _POINTS)
def test_derivatives_are_finite_differences(text, x, y):
    try:
        tree = constant_folding.bind(text, NAMES)
        slope = derivative(tree, "x")
    except FormulaError:
        assume(False)
    step = 1e-5
    xs = torch.tensor([x - step, x, x + step], dtype=torch.float64)
    values = {"x": xs, "y": torch.full_like(xs, y)}
    low, middle, high = at(tree, values).tolist()
    central = (high - low) / (2 * step)
    # At a kink the two sides differ; a large value or curvature leaves the difference few digits.
    assume(abs(middle) < 1e5 and abs(high - 2 * middle + low) <= 1e-4 * step * max(1.0, abs(central)))
    # Beside the point, because at a tie of max or min the derivative is that of the second argument.
    before, _, after = at(slope, values).tolist()
    assert [before, after] == pytest.approx([central] * 2, rel=1e-3, abs=1e-3)


def test_a_maximum_alone_has_no_gradient():
    outputs = chain_of(["save", "row_sum", "col_sum", "row_amax"]).outputs
    assert [output.writer.differentiable for output in outputs] == [True, True, True, False]


@pytest.mark.parametrize(
    ("operations", "keywords", "reads"),
    [
        *(("", "", False), ("bias add bias_m save col_sum", "bias add bias_m", False), ("scale_m", "", False)),
        *(("scale_m", "scale_m", True), ("mul bias", "bias", False), ("bias relu", "", True), ("swiglu", "", True)),
        ("row_amax", "", False),
    ],
)
def test_chains_whose_gradients_read_the_sum(operations, keywords, reads):
    assert reads_sum(chain_of(operations.split()), keywords.split()) is reads


def test_rounding_between_operations_passes_gradients_on():
    chain = chain_of(["bias", "gelu", "add"]).rounded("fp32", "bf16")
    found = {gradient.step.operation: ast.unparse(gradient.values[X]) for gradient in gradients(chain)}
    assert found["bf16"] == found["add"] == found["bias"] == "1" and "erf" in found["gelu"]
    assert [gradient.step for gradient in gradients(chain)] == list(reversed(chain.steps))
