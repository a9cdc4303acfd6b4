"""Constant folding: parameters of a formula are replaced by numbers, and constant parts are computed."""

from __future__ import annotations

import ast
import copy
import math
import struct
from collections.abc import Callable, Mapping
from functools import cache

from generator.epilogue import formula
from generator.epilogue.formula import FormulaError, Number, column_of, symbol_of


def _rounded(code: str) -> Callable[[Number], Number]:
    return lambda x: float(struct.unpack(code, struct.pack(code, x))[0])


def _bf16(x: Number) -> Number:
    """The upper half of fp32's bits, rounded to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    return float(struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0])


#: Each function and operator on numbers, none of which is NaN.
NUMBERS: Mapping[str, Callable[..., Number]] = {
    **formula.SYMBOLS,
    "where": lambda c, x, y: x if c else y,
    "max": max,
    "min": min,
    "abs": abs,
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "erf": math.erf,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x)),
    "softplus": lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))),
    "fp16": _rounded("<e"),
    "bf16": _bf16,
    "fp32": _rounded("<f"),
}


@cache
def bind(text: str, names: frozenset[str], values: tuple[tuple[str, Number], ...] = ()) -> ast.expr:
    """The tree of the formula `text` over `names`, with numbers for some of them and its constant parts computed.

    Operations without effect are removed: a factor or divisor of 1, an infinite bound. Raises `FormulaError` for text
    that is no formula, a constant that is not finite in fp32, a division by a constant 0, and a formula without `x`.
    """
    tree: ast.expr = _Fold(dict(values)).visit(copy.deepcopy(formula.parse(text, names)))
    if formula.X not in formula.used(tree):
        raise FormulaError("the formula does not depend on x", 1)
    return tree


class _Fold(ast.NodeTransformer):
    """Computes the parts that are constant with the numbers `values`."""

    def __init__(self, values: Mapping[str, Number]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.values.get(node.id)
        return node if value is None else ast.copy_location(ast.Constant(value), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.visit(node.operand)
        return _made(node, "negative", node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left, node.right = self.visit(node.left), self.visit(node.right)
        return _made(node, symbol_of(node.op), node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        node.left, node.comparators = self.visit(node.left), [self.visit(node.comparators[0])]
        return _made(node, symbol_of(node.ops[0]), node.left, *node.comparators)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        node.args = [self.visit(argument) for argument in node.args]
        return _made(node, node.func.id, *node.args)


def _made(node: ast.expr, symbol: str, *parts: ast.expr) -> ast.expr:
    """The node over folded parts, or its value if they are all constant."""
    values = [part.value if isinstance(part, ast.Constant) else None for part in parts]
    if symbol == "/" and values[1] == 0:
        raise FormulaError("divides by 0", column_of(parts[1]))
    if None not in values:
        try:
            value = NUMBERS[symbol](*values)
        except (ArithmeticError, ValueError, struct.error):
            raise FormulaError("a constant part is not a finite number", column_of(node)) from None
        formula.check_number(value, column_of(node))
        return ast.copy_location(ast.Constant(value), node)
    for at, known in enumerate(values):
        if type(known) is bool:
            return parts[1] if known else parts[2]
        # Exact in floating point, also for NaN and infinities.
        neutral = {"*": 1, "max": -math.inf, "min": math.inf}.get(symbol) if symbol != "/" or at == 0 else 1
        if known is not None and known == neutral:
            return parts[1 - at]
    return node
