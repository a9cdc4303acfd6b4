"""Epilogue formulas: a small arithmetic language, parsed against a whitelist and spelled for each reader.

A formula is data. It is parsed with Python's `ast`, every node is checked, and the checked tree is only ever walked:
by `to_triton` for the kernel, by `to_text` for docstrings, by `generator.verify.reference` for the float64 reference.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

#: The name of the running value.
X = "x"


@dataclass(frozen=True)
class Function:
    """A function of the formula language: how many arguments it takes and how a kernel writes it."""

    arity: int
    triton: str
    #: A macro of templates/math.j2 that must stand in the file.
    helper: str | None = None
    #: Stays in integers when every argument is one.
    integer: bool = False


FUNCTIONS: Mapping[str, Function] = {
    # A plain maximum compiles to max.f32, which drops NaN.
    "max": Function(2, "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)", integer=True),
    "erf": Function(1, "tl.erf({})"),
    "sigmoid": Function(1, "tl.sigmoid({})"),
    "tanh": Function(1, "_tanh({})", helper="tanh"),
}

_OPERATORS: tuple[type[ast.operator], ...] = (ast.Add, ast.Sub, ast.Mult, ast.Div)


class FormulaError(ValueError):
    """A formula outside the language; `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


@cache
def parse(text: str, names: frozenset[str]) -> ast.expr:
    """Parse `text` into a checked tree over `names`; raise `FormulaError` for anything outside the language."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"not a formula: {error.msg}", error.offset or 1) from None
    except ValueError as error:
        raise FormulaError(f"not a formula: {error}", 1) from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if id(node) not in called or not isinstance(node, ast.Name):
            _check(node, names)
    return tree


def _check(node: ast.AST, names: frozenset[str]) -> None:
    column = getattr(node, "col_offset", 0) + 1
    match node:
        case ast.BinOp(op=op) if isinstance(op, _OPERATORS):
            return
        case ast.UnaryOp(op=ast.USub()) | ast.operator() | ast.unaryop() | ast.Load():
            return
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and math.isfinite(value):
            return
        case ast.Name(id=name) if name in names:
            return
        case ast.Name(id=name):
            raise FormulaError(f"unknown name {name!r}; a formula may use {', '.join(sorted(names))}", column)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) != FUNCTIONS[name].arity:
                raise FormulaError(f"{name} takes {FUNCTIONS[name].arity} arguments, got {len(args)}", column)
            return
        case ast.Call(func=ast.Name(id=name)):
            raise FormulaError(f"unknown function {name!r}; a formula may call {', '.join(FUNCTIONS)}", column)
    raise FormulaError(f"{type(node).__name__} is not part of the formula language", column)


def helpers(tree: ast.expr) -> tuple[str, ...]:
    """The macros of templates/math.j2 that `tree` needs, in alphabetical order."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in FUNCTIONS}
    return tuple(sorted(helper for name in names if (helper := FUNCTIONS[name].helper)))


def keeps_integers(tree: ast.expr) -> bool:
    """Whether an integer running value stays an integer: only integer constants and functions, no operand, no `/`."""
    return all(
        not isinstance(node, (ast.Name, ast.Constant, ast.Div))
        or (isinstance(node, ast.Name) and (node.id == X or (node.id in FUNCTIONS and FUNCTIONS[node.id].integer)))
        or (isinstance(node, ast.Constant) and isinstance(node.value, int))
        for node in ast.walk(tree)
    )


def to_triton(tree: ast.expr, spellings: Mapping[str, str], *, integer: bool = False) -> str:
    """Spell `tree` as an expression of a kernel, each name replaced by its spelling.

    With `integer` the constants stay integers, otherwise they are written as floats.
    """
    return ast.unparse(_Triton(spellings, integer).visit(_copy(tree)))


def to_text(tree: ast.expr, x: ast.expr) -> ast.expr:
    """`tree` with the running value replaced by the expression `x`, for a docstring's formula."""
    replaced: ast.expr = _Substitute({X: x}).visit(_copy(tree))
    return replaced


def _copy(tree: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(tree), mode="eval").body


class _Substitute(ast.NodeTransformer):
    def __init__(self, replacements: Mapping[str, ast.expr]) -> None:
        self.replacements = replacements

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.replacements.get(node.id, node)


class _Triton(ast.NodeTransformer):
    def __init__(self, spellings: Mapping[str, str], integer: bool) -> None:
        self.names = {name: ast.parse(text, mode="eval").body for name, text in spellings.items()}
        self.integer = integer

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names[node.id]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        assert isinstance(node.value, (int, float))
        return node if self.integer else ast.Constant(float(node.value))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        arguments = [ast.unparse(self.visit(argument)) for argument in node.args]
        return ast.parse(FUNCTIONS[node.func.id].triton.format(*arguments), mode="eval").body
