"""Expressions in C of the numbers of a call, and of a chain's formulas in double precision."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from generator.epilogue import formula
from generator.plan.extents import OPERATIONS, Amount

#: The sizes of a call that has `count` products, as the C file names them.
SIZES: Mapping[str, str] = {"M": "s->m", "N": "s->n", "K": "s->k", "B": "s->count", "G": "s->count"}

_CALLS = {"cdiv": "parts", "least": "least", "next_power": "power"}


def expression(number: Amount | int, known: Mapping[str, int | str]) -> str:
    """A number of a call as a C expression; `known` has what each name in it is, a number or another expression."""
    if isinstance(number, int):
        return str(number)
    if not number.sides:
        return str(known[number.symbol])
    left, right = (expression(side, known) for side in number.sides)
    if left.isdecimal() and right.isdecimal():
        return str(OPERATIONS[number.symbol](int(left), int(right)))
    if number.symbol in _CALLS:
        return f"{_CALLS[number.symbol]}({left}, {right})"
    return f"({left} {'/' if number.symbol == '//' else number.symbol} {right})"


def _infix(symbol: str) -> Callable[[str, str], str]:
    return lambda x, y: f"({x} {symbol} {y})"


def _called(name: str) -> Callable[..., str]:
    return lambda *arguments: f"{name}({', '.join(arguments)})"


#: Each function and operator of the formula language, in C; those that C lacks are functions of the example.
_FORMULAS: Mapping[str, Callable[..., str]] = {
    **{symbol: _infix(symbol) for symbol in ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=")},
    "negative": lambda x: f"(-{x})",
    "**": lambda x, exponent: f"pow({x}, {exponent})",
    "where": lambda condition, x, y: f"({condition} ? {x} : {y})",
    "max": _called("fmax"),
    "min": _called("fmin"),
    "abs": _called("fabs"),
    **{name: _called(name) for name in ("exp", "exp2", "log", "sqrt", "erf", "tanh")},
    "rsqrt": lambda x: f"(1.0 / sqrt({x}))",
    "sigmoid": lambda x: f"(1.0 / (1.0 + exp(-{x})))",
    "softplus": lambda x: f"log1p(exp({x}))",
}


def why_not_in_c(tree: ast.expr) -> str | None:
    """The function of a formula that has no C expression, or None."""
    return next((name for name in sorted(formula.called(tree)) if name not in _FORMULAS), None)


def formula_text(tree: ast.expr, names: Mapping[str, str]) -> str:
    """A checked formula as an expression of doubles in C, with each name replaced by its text."""
    return formula.evaluate(tree, names, _FORMULAS, lambda value: repr(float(value)))
