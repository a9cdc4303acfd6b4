"""The formula language: what is arithmetic is spelled, and nothing else is accepted."""

from __future__ import annotations

import ast

import pytest

from generator import formula
from generator.epilogue import OPERATIONS

NAMES = frozenset({"x", "bias"})


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("__import__('os')", 1, "unknown function '__import__'; a formula may call max, erf, sigmoid, tanh"),
        ("x.real", 1, "Attribute is not part of the formula language"),
        ("x[0]", 1, "Subscript is not part of the formula language"),
        ("(lambda: x)()", 1, "Call is not part of the formula language"),
        ("lambda: x", 1, "Lambda is not part of the formula language"),
        ("[x for x in x]", 1, "ListComp is not part of the formula language"),
        ("x if x else 0", 1, "IfExp is not part of the formula language"),
        ("x ** 2", 1, "BinOp is not part of the formula language"),
        ("x // 2", 1, "BinOp is not part of the formula language"),
        ("x < 0", 1, "Compare is not part of the formula language"),
        ("x and 0", 1, "BoolOp is not part of the formula language"),
        ("not x", 1, "UnaryOp is not part of the formula language"),
        ("(x := 1)", 2, "NamedExpr is not part of the formula language"),
        ("f'{x}'", 1, "JoinedStr is not part of the formula language"),
        ("x + 'a'", 5, "Constant is not part of the formula language"),
        ("x + True", 5, "Constant is not part of the formula language"),
        ("x + 1j", 5, "Constant is not part of the formula language"),
        ("x * 1e999", 5, "Constant is not part of the formula language"),
        ("x + y", 5, "unknown name 'y'; a formula may use bias, x"),
        ("max(x)", 1, "max takes 2 arguments, got 1"),
        ("tanh(x, x)", 1, "tanh takes 1 arguments, got 2"),
    ],
)
def test_what_is_not_a_formula(text: str, column: int, message: str) -> None:
    with pytest.raises(formula.FormulaError) as caught:
        formula.parse(text, NAMES)
    assert (caught.value.column, str(caught.value)) == (column, message)


@pytest.mark.parametrize(
    "text", ["", "x +", "x; x", "x = 1", "import os", "x\nx", "max(*x)", "max(x, y=x)", "max", "x\0"]
)
def test_what_is_not_even_an_expression(text: str) -> None:
    with pytest.raises(formula.FormulaError):
        formula.parse(text, NAMES)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("x + bias", "acc + bias[None, :]"),
        ("max(x, 0)", "tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
        ("-x * (1 + tanh(x))", "-acc * (1.0 + _tanh(acc))"),
        ("x * sigmoid(2 * (x + bias))", "acc * tl.sigmoid(2.0 * (acc + bias[None, :]))"),
    ],
)
def test_spelling_in_a_kernel(text: str, spelled: str) -> None:
    tree = formula.parse(text, NAMES)
    assert formula.to_triton(tree, {"x": "acc", "bias": "bias[None, :]"}) == spelled


def test_integers_stay_integers_where_they_can() -> None:
    tree = formula.parse("max(x, 0)", NAMES)
    assert formula.to_triton(tree, {"x": "acc"}, integer=True).startswith("tl.maximum(acc, 0, ")


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("max(x, 0)", True),
        ("x + 1", True),
        ("x + bias", False),
        ("x / 2", False),
        ("x * 0.5", False),
        ("tanh(x)", False),
    ],
)
def test_keeps_integers(text: str, keeps: bool) -> None:
    assert formula.keeps_integers(formula.parse(text, NAMES)) is keeps


def test_spelling_leaves_the_tree_as_it_was() -> None:
    tree = formula.parse("x + bias", NAMES)
    before = ast.dump(tree)
    formula.to_triton(tree, {"x": "acc", "bias": "b"})
    formula.to_text(tree, ast.parse("A @ B", mode="eval").body)
    assert ast.dump(tree) == before


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_uses_x_and_each_of_its_operands(name: str) -> None:
    operation = OPERATIONS[name]
    used = {node.id for node in ast.walk(operation.tree) if isinstance(node, ast.Name)} - formula.FUNCTIONS.keys()
    assert used == {"x", *operation.operands}
