"""Code generation for formulas: the statements of a kernel, and the text in a docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from generator.epilogue import formula
from generator.epilogue.formula import COMPARISONS, FUNCTIONS, OPERATORS, FormulaFunction, Number

#: The longest expression in characters: a line of 120 minus the deepest indentation.
WIDTH = 100

_EXPONENT = re.compile(r"(?<=\d)e\+")


def _call(text: str, *arguments: ast.expr) -> ast.expr:
    """The expression `text` with each `{}` replaced by an argument."""
    return ast.parse(text.format(*map(ast.unparse, arguments)), mode="eval").body


def _binary(op: ast.operator) -> Callable[[ast.expr, ast.expr], ast.expr]:
    return lambda left, right: ast.BinOp(left, op, right)


def _compared(op: ast.cmpop) -> Callable[[ast.expr, ast.expr], ast.expr]:
    return lambda left, right: ast.Compare(left, [op], [right])


def _functions(table: Mapping[str, FormulaFunction]) -> Mapping[str, Callable[..., ast.expr]]:
    return {name: partial(_call, function.triton) for name, function in table.items()}


def _named(name: str) -> Callable[..., ast.expr]:
    return lambda *arguments: ast.Call(ast.Name(name), list(arguments), [])


#: The tree of the language itself for each of its functions and operators.
SYNTAX: Mapping[str, Callable[..., ast.expr]] = {
    **{symbol: _binary(op()) for op, symbol in OPERATORS.items()},
    "negative": lambda x: ast.UnaryOp(ast.USub(), x),
    "**": lambda x, exponent: ast.BinOp(x, ast.Pow(), ast.Constant(exponent)),
    **{symbol: _compared(op()) for op, symbol in COMPARISONS.items()},
    **{name: _named(name) for name in FUNCTIONS},
}

#: The text in a kernel for each function and operator of the language.
TRITON: Mapping[str, Callable[..., ast.expr]] = {
    **SYNTAX,
    # A function call, so that the base of a power is written once.
    "**": lambda x, exponent: ast.Call(ast.Name("_power"), [x, ast.Constant(exponent)], []),
    **_functions(FUNCTIONS),
}


def to_triton(
    tree: ast.expr,
    spellings: Mapping[str, str],
    *,
    integer: bool = False,
    functions: Mapping[str, FormulaFunction] = FUNCTIONS,
    target: str = formula.X,
) -> tuple[str, ...]:
    """The statements of a kernel that assign `tree` to `target`, with each name replaced by its text in `spellings`.

    It is one statement unless that is too long for a line; then parts of the expression get names first. With `integer`
    constants are written as integers, otherwise as floats. `functions` has the text of each function.
    """
    triton = {**TRITON, **_functions(functions)}
    names = {name: ast.parse(text, mode="eval").body for name, text in spellings.items()}

    def constant(value: Number) -> ast.expr:
        return ast.Constant(value if integer else float(value))

    whole = formula.evaluate(tree, names, triton, constant)
    if len(text := _text(whole)) <= WIDTH:
        return (f"{target} = {text}",)
    first = []
    if spellings[formula.X] != target and not isinstance(names[formula.X], ast.Name):
        first = [f"{target} = {spellings[formula.X]}"]
        names[formula.X] = ast.Name(target)
    parts = _Parts()
    algebra = {symbol: parts.within_a_line(build) for symbol, build in triton.items()}
    last = _text(formula.evaluate(tree, names, algebra, constant))
    return (*first, *parts.lines, f"{target} = {last}")


class _Parts:
    """Collects the parts of a long expression that get names of their own."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def within_a_line(self, build: Callable[..., ast.expr]) -> Callable[..., ast.expr]:
        """The result of `build`; its longest arguments get names if the whole would be longer than a line."""

        def built(*arguments: ast.expr | int) -> ast.expr:
            given = list(arguments)
            while len(ast.unparse(expression := build(*given))) > WIDTH:
                lengths = [0 if isinstance(x, int | ast.Name) else len(ast.unparse(x)) for x in given]
                if not any(lengths):
                    break
                at = lengths.index(max(lengths))
                part = given[at]
                assert isinstance(part, ast.expr)
                given[at] = self._named(part)
            return expression

        return built

    def _named(self, part: ast.expr) -> ast.expr:
        name = f"{formula.X}_{len(self.lines) + 1}"
        self.lines.append(f"{name} = {_text(part)}")
        return ast.Name(name)


def _text(node: ast.expr) -> str:
    """The text as a formatter writes it: without `+` in exponents."""
    return _EXPONENT.sub("e", ast.unparse(node))


def to_text(tree: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
    """`tree` with some of its names replaced by expressions. No part of it is shared with `tree` or within it."""
    return formula.evaluate(
        tree, {**{name: ast.Name(name) for name in formula.used(tree)}, **names}, SYNTAX, ast.Constant
    )


def called(name: str, arguments: Sequence[ast.expr], settings: Mapping[str, Number | str]) -> ast.expr:
    """`name(arguments, setting=value)`."""
    keywords = [ast.keyword(key, ast.Constant(value)) for key, value in settings.items()]
    return ast.Call(ast.Name(name), list(arguments), keywords)
