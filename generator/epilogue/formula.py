"""Epilogue formulas: a small arithmetic language over the running value `x`, parsed against a whitelist.

A formula is data and is never executed. Its characters are checked, Python's `ast` parses it, and every node is
checked. `evaluate` walks the checked tree with a table of what each function and operator means: a number
(`constant_folding`), the text of a kernel (`formula_code`), a float64 reference (`problem.reference`), an operation of
torch (`problem.torch_functions`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import add, eq, ge, gt, le, lt, mul, ne, neg, sub, truediv
from typing import Any, TypeVar

T = TypeVar("T")

Number = int | float

#: The name of the running value, and of the second value of a gated linear unit.
X, GATE = "x", "gate"

#: Limits of a formula: characters, nesting depth, and the exponent of a power.
LONGEST, DEEPEST, LARGEST_POWER = 1000, 64, 8
#: The largest number of fp32, and the smallest that is not rounded to 0.
LARGEST, SMALLEST = float(2**128 - 2**104), 2.0**-149


@dataclass(frozen=True)
class FormulaFunction:
    """A function of the formula language: its parameters, its meaning, and its text in a kernel."""

    parameters: str
    meaning: str
    triton: str
    #: The macro of templates/math.j2 that the kernel's file needs for it.
    helper: str | None = None
    #: Whether the result is an integer if every argument is one.
    integer: bool = False

    @property
    def arity(self) -> int:
        return self.parameters.count(",") + 1


_ROUNDED = "rounded to {}, then converted back to fp32"
# A plain maximum compiles to max.f32, which drops NaN.
_EXTREME = "tl.{}({{}}, {{}}, propagate_nan=tl.PropagateNan.ALL)"

FUNCTIONS: Mapping[str, FormulaFunction] = {
    "where": FormulaFunction(
        "c, x, y",
        "`x` where the comparison `c` holds, or the mask `c` is not 0, else `y`",
        "tl.where({}, {}, {})",
        integer=True,
    ),
    "max": FormulaFunction("x, y", "the larger; NaN if one of them is", _EXTREME.format("maximum"), integer=True),
    "min": FormulaFunction("x, y", "the smaller; NaN if one of them is", _EXTREME.format("minimum"), integer=True),
    "abs": FormulaFunction("x", "the absolute value", "tl.abs({})"),
    "exp": FormulaFunction("x", "e to the power of `x`", "tl.exp({})"),
    "exp2": FormulaFunction("x", "2 to the power of `x`", "tl.exp2({})"),
    "log": FormulaFunction("x", "the natural logarithm", "tl.log({})"),
    "sqrt": FormulaFunction("x", "the square root", "tl.sqrt({})"),
    "rsqrt": FormulaFunction("x", "one over the square root", "tl.rsqrt({})"),
    "erf": FormulaFunction("x", "the error function", "tl.erf({})"),
    "tanh": FormulaFunction("x", "the hyperbolic tangent", "_tanh({})", helper="tanh"),
    "sigmoid": FormulaFunction("x", "1 / (1 + exp(-`x`))", "tl.sigmoid({})"),
    "softplus": FormulaFunction(
        "x", "log(1 + exp(`x`)), without overflow and without cancellation", "_softplus({})", helper="softplus"
    ),
    "fp16": FormulaFunction("x", _ROUNDED.format("fp16"), "tl.cast(tl.cast({}, tl.float16), tl.float32)"),
    "bf16": FormulaFunction("x", _ROUNDED.format("bf16"), "tl.cast(tl.cast({}, tl.bfloat16), tl.float32)"),
    "fp32": FormulaFunction(
        "x", "conversion to fp32, which has no effect except on integers", "tl.cast({}, tl.float32)"
    ),
}

_ARITHMETIC: Mapping[str, Callable[..., Any]] = {"+": add, "-": sub, "*": mul, "/": truediv, "**": pow, "negative": neg}
_COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
#: What an algebra has besides the functions, here Python's own, on numbers and tensors. Exponents are integers.
SYMBOLS = {**_ARITHMETIC, **_COMPARED}
OPERATORS = dict(zip((ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow), _ARITHMETIC))
COMPARISONS = dict(zip((ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq), _COMPARED))


def symbol_of(op: ast.operator | ast.cmpop) -> str:
    """The key of an operator in an algebra."""
    return OPERATORS[type(op)] if isinstance(op, ast.operator) else COMPARISONS[type(op)]


_TOKEN = re.compile(
    r"(?P<number>(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)(?![\w.])|[A-Za-z_]\w*|\*\*|[<>=!]=|[-+*/,<>]|(?P<paren>[()])| +",
    re.A,
)
#: Tokens that are easily written but not in the language; each is refused as a whole.
_STRANGE = re.compile(r"//|<<|>>|->|[\d.][\w.]*|[^\s\w]=|.", re.A | re.S)


class FormulaError(ValueError):
    """A formula outside the language; `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


@cache
def parse(text: str, names: frozenset[str]) -> ast.expr:
    """Parse `text` into a checked tree over `names`; raise `FormulaError` for anything outside the language."""
    _scan(text)
    start = len(text) - len(text.lstrip(" "))
    try:
        tree = ast.parse(text[start:], mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"not a formula: {error.msg}", (error.offset or len(text) - start) + start) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise FormulaError(f"not a formula: {error or type(error).__name__}", 1) from None
    for node, depth in _nodes(tree):
        if isinstance(node, ast.expr):
            node.col_offset += start
            if depth > DEEPEST:
                raise FormulaError(f"nested more than {DEEPEST} levels deep", column_of(node))
    if _kind(tree, names) == "truth":
        raise FormulaError(
            "a formula is a number; a comparison is only allowed as the first argument of where", column_of(tree)
        )
    return tree


def column_of(node: ast.expr) -> int:
    """The column of the formula's text at which a node begins, counted from 1."""
    return node.col_offset + 1


def _scan(text: str) -> None:
    """Raise `FormulaError` for text that is too long or has characters outside the language."""
    if len(text) > LONGEST:
        raise FormulaError(f"{len(text)} characters; a formula has at most {LONGEST}", LONGEST + 1)
    if not text.strip(" "):
        raise FormulaError("not a formula: it is empty", 1)
    at = depth = 0
    while at < len(text):
        token = None if text.startswith(("//", "<<", ">>"), at) else _TOKEN.match(text, at)
        if token is None:
            strange = _STRANGE.match(text, at)
            assert strange is not None
            name = strange[0].removeprefix(".")
            instead = f"; write {name}(…) alone" if strange[0] == f".{name}" and name in FUNCTIONS else ""
            raise FormulaError(f"{strange[0]!r} is not part of the formula language{instead}", at + 1)
        mantissa = re.split("[eE]", token["number"] or "")[0]
        if re.search("[1-9]", mantissa) and float(token["number"]) == 0:
            # No float has it: the tree would have 0 in its place.
            raise FormulaError("the number is 0 in fp32", at + 1)
        depth += {"(": 1, ")": -1}.get(token["paren"], 0)
        if depth > DEEPEST:
            raise FormulaError(f"nested more than {DEEPEST} levels deep", at + 1)
        at = token.end()


def _nodes(tree: ast.AST) -> Iterator[tuple[ast.AST, int]]:
    """Every node with its depth; without recursion, since the depth is not bounded yet."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]


def _kind(node: ast.expr, names: frozenset[str]) -> str:
    """`number` or `truth`: the kind of a node, which is checked with everything below it."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            check_number(value, column_of(node))
        case ast.Name(id=name):
            if name not in names:
                reason = "is a function: give it arguments" if name in FUNCTIONS else "is unknown"
                raise FormulaError(f"{name!r} {reason}; names here: {', '.join(sorted(names))}", column_of(node))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _number(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            _number(left, names)
            if not (isinstance(right, ast.Constant) and type(right.value) is int and 2 <= right.value <= LARGEST_POWER):
                reason = f"a power is a whole number from 2 to {LARGEST_POWER}, written out"
                raise FormulaError(reason, column_of(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            _number(left, names)
            _number(right, names)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            _number(left, names)
            _number(right, names)
            return "truth"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            _call(node, name, arguments, names)
        case ast.Compare(ops=[_, _, *_]):
            raise FormulaError("a comparison has two sides", column_of(node))
        case _:
            what, instead = _foreign(node)
            raise FormulaError(f"{what} is not part of the formula language{instead}", column_of(node))
    return "number"


def _foreign(node: ast.expr) -> tuple[str, str]:
    """An expression of Python that formulas do not have, in words, and what to write instead."""
    comparisons = f"; comparisons are {' '.join(COMPARISONS.values())}"
    match node:
        case ast.IfExp():
            return "a conditional expression, 'if' and 'else',", "; write where(condition, x, y)"
        case ast.BoolOp(op=op):
            word, inner = ("and", "where(a, where(b, x, y), y)"), ("or", "where(a, x, where(b, x, y))")
            name, instead = word if isinstance(op, ast.And) else inner
            return f"{name!r}", f"; write {instead}"
        case ast.UnaryOp(op=ast.Not()):
            return "'not'", "; write the opposite comparison"
        case ast.UnaryOp(op=ast.UAdd()):
            return "a sign '+'", "; leave it out"
        case ast.Compare(ops=[ast.In() | ast.NotIn(), *_]):
            return "'in'", comparisons
        case ast.Compare():
            return "'is'", comparisons
        case ast.Constant(value=value):
            return f"{value!r}", "; write a number"
        case ast.Tuple(elts=[]):
            return "an empty pair of parentheses", ""
        case ast.Tuple():
            return "a comma outside a function's arguments", ""
        case ast.GeneratorExp():
            return "'for'", ""
        case ast.Call(keywords=[_, *_]):
            return "'**' before an argument", ""
        case ast.Call():
            return "a call of what is no function's name", f"; functions: {', '.join(FUNCTIONS)}"
        case ast.Starred():
            return "'*' before an argument", ""
        case ast.Await():
            return "'await'", ""
        case ast.Yield() | ast.YieldFrom():
            return "'yield'", ""
        case ast.NamedExpr():
            return "':='", ""
    return "this expression", ""


def _call(node: ast.Call, name: str, arguments: list[ast.expr], names: frozenset[str]) -> None:
    if name not in FUNCTIONS:
        raise FormulaError(f"unknown function {name!r}; functions: {', '.join(FUNCTIONS)}", column_of(node))
    arity = FUNCTIONS[name].arity
    if len(arguments) != arity:
        reason = f"{name} takes {arity} argument{'s' * (arity > 1)}, got {len(arguments)}"
        raise FormulaError(reason, column_of(node))
    if name == "where":
        condition, *arguments = arguments
        kind = _kind(condition, names)
        if isinstance(condition, ast.Name):
            # A mask: what is not 0 is true.
            zero = ast.copy_location(ast.Constant(0), condition)
            node.args[0] = ast.copy_location(ast.Compare(condition, [ast.NotEq()], [zero]), condition)
        elif kind != "truth":
            raise FormulaError(
                "the first argument of where is a comparison or the name of a mask", column_of(condition)
            )
    for argument in arguments:
        _number(argument, names)


def _number(node: ast.expr, names: frozenset[str]) -> None:
    if _kind(node, names) == "truth":
        raise FormulaError("a comparison is only allowed as the first argument of where", column_of(node))


def check_number(value: Number, column: int) -> None:
    """Raise `FormulaError` if `value`, rounded to fp32, is not finite, or is 0 although `value` is not."""
    if not abs(value) <= LARGEST:
        raise FormulaError("the number is not finite in fp32", column)
    if 0 < abs(value) < SMALLEST:
        raise FormulaError("the number is 0 in fp32", column)


def evaluate(
    tree: ast.expr, names: Mapping[str, T], algebra: Mapping[str, Callable[..., Any]], constant: Callable[[Number], T]
) -> T:
    """The value of a checked formula over `names` in an algebra with an entry for each of FUNCTIONS and SYMBOLS.

    The entry for powers gets the base and the exponent, an int. Each node is visited once.
    """

    def walk(node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return names[name]
            case ast.Constant(value=int() | float() as value):
                return constant(value)
            case ast.UnaryOp(operand=operand):
                return algebra["negative"](walk(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=exponent)):
                return algebra["**"](walk(left), exponent)
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return algebra[symbol_of(op)](walk(left), walk(right))
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return algebra[function](*map(walk, arguments))
        raise TypeError(f"not a node of the formula language: {ast.dump(node)}")

    result: T = walk(tree)
    return result


def reads(tree: ast.expr) -> list[ast.Name]:
    """The nodes at which `tree` reads a name, without the names of functions."""
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions]


def used(tree: ast.expr) -> list[str]:
    """The names that `tree` reads, each as often as it is read."""
    return [node.id for node in reads(tree)]


def called(tree: ast.expr) -> set[str]:
    """The functions that `tree` calls, and `**` if it has a power."""
    functions = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return functions | {"**" for node in ast.walk(tree) if isinstance(node, ast.Pow)}


def keeps_integers(tree: ast.expr, operands: Collection[str] | None = None) -> bool:
    """Whether an int32 running value stays an exact int32: no part of `tree` can overflow int32 for any `x`.

    Sums, products and negation can overflow, so they are computed in fp32; choices between `x` and integers cannot.
    With the names of `operands` in int32, sums and differences count too: they are as int32 has them.
    """
    sums = () if operands is None else (ast.Add, ast.Sub)
    return {*used(tree)} <= {X, *(operands or ())} and all(
        not isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Call))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, sums))
        or (isinstance(node, ast.Constant) and type(node.value) is int and -(2**31) <= node.value < 2**31)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and FUNCTIONS[node.func.id].integer)
        for node in ast.walk(tree)
    )
