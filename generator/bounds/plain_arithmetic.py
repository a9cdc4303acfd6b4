"""Arithmetic in the launcher and in decorators: sizes, entries of configurations, `triton.cdiv`, comparisons."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from generator.bounds.source import NotUnderstood
from generator.bounds.terms import Condition, Poly, at_most, below, either, equal, every, negation, poly

Names = Mapping[str, Poly]
#: `row["BLOCK_M"]` is stored under "row", then "BLOCK_M".
Tables = Mapping[str, Names]


def number_of(node: ast.expr, names: Names, tables: Tables) -> Poly:
    """The value of an integer expression; raises `NotUnderstood`."""
    found = _number(node, names, tables)
    if found is None:
        raise NotUnderstood(node.lineno, ast.unparse(node))
    return found


def condition_of(node: ast.expr, names: Names, tables: Tables) -> Condition:
    """The condition that an expression states; raises `NotUnderstood`."""
    if isinstance(node, ast.BoolOp):
        parts = [condition_of(part, names, tables) for part in node.values]
        return every(parts) if isinstance(node.op, ast.And) else either(parts)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        a, b = number_of(node.left, names, tables), number_of(node.comparators[0], names, tables)
        found = compared(node.ops[0], a, b)
        if found is not None:
            return found
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


def ceiling(a: Poly, b: Poly) -> Poly:
    """`cdiv(a, b)`, as Triton defines it."""
    return (a + b - 1) // b


def _number(node: ast.expr, names: Names, tables: Tables) -> Poly | None:
    match node:
        case ast.Constant(int(constant)) if not isinstance(constant, bool):
            return poly(constant)
        case ast.Name(name):
            return names.get(name)
        case ast.Subscript(ast.Name(table), ast.Constant(str(key))):
            return tables.get(table, {}).get(key)
        case ast.BinOp(left, operator, right):
            return combined(operator, number_of(left, names, tables), number_of(right, names, tables))
        case ast.Call(ast.Attribute(ast.Name("triton"), "cdiv"), [a, b], []):
            return ceiling(number_of(a, names, tables), number_of(b, names, tables))
    return None
