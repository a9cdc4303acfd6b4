"""Formulas from Python functions: a trace means what the function computes; all else is refused with its line."""

import math
import operator
from pathlib import Path

import numpy
import pytest
import torch
import yaml

from generator import CallError, formula
from generator.epilogue.constant_folding import NUMBERS
from generator.epilogue.formula import FUNCTIONS, evaluate, parse
from generator.language.spec import read
from generator.language.traced_formula import operation

OPERATORS = {
    "+": lambda x, y: (x + y) + (2 + x) + (y + 0.5),
    "-": lambda x, y: (x - y) - (2 - (x - (y - 1e-7))),
    "*": lambda x, y: x * y * -2.0 * (3 * (x + 1)),
    "/": lambda x, y: x / (y / 2) / (3.0 / x),
    "negative": lambda x, y: -(x - 1) - -y * -1,
    "**": lambda x, y: (-x) ** 2 - y**3 + (-3) ** 2 - (x * y) ** 8,
    "abs": lambda x, y: abs(x - y) * abs(-1e30),
    "numpy": lambda x, y: numpy.float64(0.1) * x + y * numpy.float64(1 / 3),
}


def _comparison(word):
    compare = getattr(operator, word)
    return lambda x, y: formula.where(compare(x, y), x, 3) + formula.where(compare(y, 0.5), 1, 2)


OPERATORS |= {word: _comparison(word) for word in ("lt", "le", "gt", "ge", "eq", "ne")}


def _function(name):
    function = getattr(formula, name)
    return {
        1: lambda x, y: function(x / y) - x,
        2: lambda x, y: function(x, y) - function(y, 0.75),
        3: lambda x, y: function(x < y, x * y, y) / function(x >= 0.75, x, 2),
    }[FUNCTIONS[name].arity]


@pytest.mark.parametrize("name", [*OPERATORS, *FUNCTIONS])
@pytest.mark.parametrize("values", [(0.5, 0.5), (1.75, 0.3), (0.2, 2.5)])
def test_the_text_means_what_the_function_computes(name, values):
    function = OPERATORS.get(name) or _function(name)
    tree = parse(formula(function), frozenset("xy"))
    assert evaluate(tree, dict(zip("xy", values)), NUMBERS, float) == function(*values)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.where(x > y, torch.exp(x), torch.exp2(y)) * torch.sigmoid(x),
        lambda x, y: torch.maximum(x, y) - torch.minimum(x, y) / torch.absolute(x) + torch.abs(y),
        lambda x, y: torch.log(x) + torch.sqrt(y) * torch.rsqrt(x) + torch.erf(y) - torch.tanh(x * y),
        lambda x, y: torch.nn.functional.softplus(x) * y,
    ],
)
def test_functions_of_torch_give_the_formula_of_what_they_compute(function):
    x, y = torch.rand(2, 50, dtype=torch.float64) + 0.1
    tree = parse(formula(function), frozenset("xy"))
    got = [evaluate(tree, dict(zip("xy", pair)), NUMBERS, float) for pair in zip(x.tolist(), y.tolist())]
    torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), function(x, y))


def _branches(x):
    y = x + 1
    if y > 0:
        return y
    return 0


def _doubles(x):
    for _ in range(64):
        x = x + x
    return x


@pytest.mark.parametrize(
    ("function", "line", "message"),
    [
        (_branches, 2, "write where"),
        (_doubles, 2, "at most 1000"),
        (lambda x: float(x), 0, "neither a number nor a condition"),
        (lambda x: math.exp(x), 0, "sigmoid"),
        (lambda x: max(x, 0), 0, "write where"),
        (lambda x: 0 < x < 1, 0, "write where"),
        (lambda x: x > 0, 0, "only allowed as the first argument of where"),
        (lambda x: 1 + (x > 0), 0, "only allowed as the first argument of where"),
        (lambda x: torch.maximum(x, other=x), 0, "unknown function 'max' with other"),
        (lambda x: formula.sinh(x), 0, "unknown function 'sinh'"),
        (lambda x: formula.where(x + 1, 1, 2), 0, "the first argument of where is a comparison"),
        (lambda x: formula.exp(x, x), 0, "exp takes 1 argument"),
        (lambda x: x**0.5, 0, "whole number from 2 to 8"),
        (lambda x: 2**x, 0, "whole number from 2 to 8"),
        (lambda x: x // 2, 0, "unsupported operand"),
        (lambda x: x.exp(), 0, "no attribute 'exp'"),
        (lambda x: x + True, 0, "found True"),
        (lambda x: x * "2", 0, "found '2'"),
        (lambda x: x * math.inf, 0, "not finite in fp32"),
        (lambda x: x * 1e-50, 0, "is 0 in fp32"),
        (lambda x: None, 0, "found None"),
        (lambda y: y, 0, "no parameter 'x'"),
        (lambda x, *rest: x, 0, "'*rest' has no name"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_file_and_line(function, line, message):
    code = function.__code__
    with pytest.raises(CallError) as raised:
        formula(function)
    assert str(raised.value).startswith(f"{__file__}:{code.co_firstlineno + line}: ") and message in str(raised.value)


@pytest.mark.parametrize("value", [torch.sigmoid, 3, "x + 1"])
def test_what_is_no_function_is_refused(value):
    with pytest.raises(CallError, match="expected a Python function"):
        formula(value)


def test_parameters_are_operands_by_their_shape_and_scalars_otherwise():
    def scaled(x, row: "[N]", other: ["M", "N"], one: "1", weight, cap=30.0):  # noqa: F821
        return x * row + other * one * weight + cap

    entry = operation(scaled)
    assert entry["operands"] == {"row": ["N"], "other": ["M", "N"], "one": [1]}
    assert entry["scalars"] == {"weight": None, "cap": 30.0}


def test_new_writes_the_operation_of_a_function(cli):
    Path("activations_of_mine.py").write_text(
        "import math\nfrom generator import formula\n"
        "def soft(x, cap=30.0): return cap * formula.tanh(x / cap)\n"
        "def bound(x, low=-math.inf, high=math.inf): return formula.min(high, formula.max(low, x))\n"
        "def wrong(x): return x % 2\n"
    )
    chains = "[none, bias+activations_of_mine:soft, [{activations_of_mine:bound: {low: 0}}]]"
    said = cli("new", "mine", "--epilogue", chains)
    assert (said.status, said.err) == (0, "")
    assert "bias+soft or bound(low=0)" in read(Path("mine.yaml")).summary
    ops = yaml.safe_load(Path("mine.yaml").read_text())["ops"]
    assert ops["soft"] == {"formula": "cap * tanh(x / cap)", "scalars": {"cap": 30.0}}
    assert ops["bound"]["scalars"] == {"low": -math.inf, "high": math.inf}
    for text, told in (("wrong", "activations_of_mine.py:5: wrong: TypeError"), ("gone", "no attribute 'gone'")):
        said = cli("new", "other", "--epilogue", f"activations_of_mine:{text}")
        assert said.status == 2 and told in said.err and not Path("other.yaml").exists()
    assert "No module named 'nowhere'" in cli("new", "other", "--epilogue", "nowhere:f").err


def test_a_spec_never_imports_what_it_names(cli):
    Path("planted_module.py").write_text("raise SystemExit('was executed')")
    Path("s.yaml").write_text("summary: S.\nlayout: rcr\ndtype: fp16\nepilogue: planted_module:f\n")
    said = cli("s.yaml", "--list")
    assert said.status == 2 and "was executed" not in said.err
