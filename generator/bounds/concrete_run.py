"""A function of a file run on whole numbers: what the search for numbers that break a proof needs, and no more."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

from generator.bounds.patterns import dotted
from generator.bounds.source import NotUnderstood
from generator.bounds.terms import Endless, truncated
from generator.emit.syntax_digest import undocumented
from generator.epilogue.formula import COMPARISONS, SYMBOLS, symbol_of

#: Turns of its loops after which a function is given up: one that is wrong may have no end.
_TURNS = 200

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: truncated,
    ast.Mod: lambda a, b: a - truncated(a, b) * b,
}


def returned(function: ast.FunctionDef, arguments: Sequence[int]) -> tuple[int, ...]:
    """What it returns; raises `Endless`, ZeroDivisionError as Python does, and `NotUnderstood`."""
    names = dict(zip((parameter.arg for parameter in function.args.args), arguments))
    value = _run(undocumented(function), names)
    if value is None:
        raise NotUnderstood(function.lineno, f"the end of {function.name}")
    return value


def _run(body: Sequence[ast.stmt], names: dict[str, int]) -> tuple[int, ...] | None:
    """Run statements; what they return, or None where they do not."""
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                names[name] = _number(value, names)
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                names |= zip(map(dotted, targets), [_number(value, names) for value in values])
            case ast.AugAssign(ast.Name(name), by, value):
                names[name] = _operate(statement, by, names.get(name, 0), _number(value, names))
            case ast.If(test, then, orelse):
                outcome = _run(then if _holds(test, names) else orelse, names)
                if outcome is not None:
                    return outcome
            case ast.While(test, inner, []):
                for _ in range(_TURNS):
                    if not _holds(test, names):
                        break
                    outcome = _run(inner, names)
                    if outcome is not None:
                        return outcome
                else:
                    raise Endless
            case ast.Return(ast.Tuple(values)):
                return tuple(_number(value, names) for value in values)
            case _:
                raise NotUnderstood(statement.lineno, ast.unparse(statement).partition("\n")[0])
    return None


def _number(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int(constant)):
            return constant
        case ast.Name(name) if name in names:
            return names[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(operand, names)
        case ast.BinOp(left, by, right):
            return _operate(node, by, _number(left, names), _number(right, names))
        case ast.Call(ast.Name("min"), [a, b], []):
            return min(_number(a, names), _number(b, names))
        case ast.IfExp(test, a, b):
            return _number(a if _holds(test, names) else b, names)
        case ast.Call(function, [test, a, b], []) if dotted(function) == "tl.where":
            # Both are computed, so that neither may divide by zero.
            both = _number(a, names), _number(b, names)
            return both[0] if _holds(test, names) else both[1]
    raise NotUnderstood(node.lineno, ast.unparse(node))


def _operate(node: ast.expr | ast.stmt, by: ast.operator, a: int, b: int) -> int:
    if type(by) not in _OPERATORS:
        raise NotUnderstood(node.lineno, ast.unparse(node))
    return _OPERATORS[type(by)](a, b)


def _holds(node: ast.expr, names: Mapping[str, int]) -> bool:
    match node:
        case ast.Compare(left, [by], [right]) if type(by) in COMPARISONS:
            return bool(SYMBOLS[symbol_of(by)](_number(left, names), _number(right, names)))
    return _number(node, names) != 0
