"""Arithmetic in decorators, `args["M"] % args["BLOCK_M"] == 0`, and the operators of Python on terms."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from generator.bounds.source import NotUnderstood
from generator.bounds.terms import Condition, Poly, at_most, below, equal, negation, poly


def condition_of(node: ast.expr, args: Mapping[str, Poly]) -> Condition:
    """The condition that a comparison of numbers states, which `args` has; raises `NotUnderstood`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        condition = compared(node.ops[0], _number(node.left, args), _number(node.comparators[0], args))
        if condition is not None:
            return condition
    raise NotUnderstood(node.lineno, ast.unparse(node))


def compared(operator: ast.cmpop, a: Poly, b: Poly) -> Condition | None:
    """The condition that a comparison states, or None for operators that do not compare numbers."""
    match operator:
        case ast.Lt():
            return below(a, b)
        case ast.LtE():
            return at_most(a, b)
        case ast.Gt():
            return below(b, a)
        case ast.GtE():
            return at_most(b, a)
        case ast.Eq():
            return equal(a, b)
        case ast.NotEq():
            return negation(equal(a, b))
    return None


def combined(operator: ast.operator, a: Poly, b: Poly) -> Poly | None:
    """The result of an operation, or None for an unknown operator."""
    match operator:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.FloorDiv():
            return a // b
        case ast.Mod():
            return a % b
        case ast.Pow() if a.constant is not None and b.constant is not None and b.constant >= 0:
            return poly(int(a.constant**b.constant))
    return None


def _number(node: ast.expr, args: Mapping[str, Poly]) -> Poly:
    number: Poly | None = None
    match node:
        case ast.Constant(int(constant)) if not isinstance(constant, bool):
            number = poly(constant)
        case ast.Subscript(ast.Name("args"), ast.Constant(str(key))):
            number = args.get(key)
        case ast.BinOp(left, operator, right):
            number = combined(operator, _number(left, args), _number(right, args))
    if number is None:
        raise NotUnderstood(node.lineno, ast.unparse(node))
    return number
