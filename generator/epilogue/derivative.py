"""Derivatives of epilogue formulas, as formulas of the same language.

A formula is evaluated on pairs of a value and its derivative (forward differentiation). Derivatives are simplified
while they are built: constants are collected, equal terms are added, a factor cancels an equal divisor.

Where a function has no derivative: `max(x, y)` and `min(x, y)` at a tie take that of `y`, and that of `x` if one of
them is NaN; `where` takes that of the branch taken; `abs` at 0 has 0. Rounding to fp16, bf16 and fp32 has the
derivative 1. A branch with the derivative 0 stays 0, whatever it is multiplied by: a branch that is not taken makes no
NaN.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from generator.epilogue import formula
from generator.epilogue.formula_code import SYNTAX


@dataclass(frozen=True)
class _Dual:
    """A part of a formula, and its derivative."""

    value: ast.expr
    slope: ast.expr


@dataclass(frozen=True)
class _Term:
    """A product: a coefficient, factors, and divisors."""

    coefficient: float
    factors: tuple[ast.expr, ...] = ()
    divisors: tuple[ast.expr, ...] = ()

    @property
    def key(self) -> tuple[tuple[str, ...], ...]:
        """Equal for terms that differ only in the coefficient and the order of factors."""
        return tuple(tuple(sorted(map(ast.unparse, parts))) for parts in (self.factors, self.divisors))

    def times(self, other: _Term) -> _Term:
        """The product, without factors that are divisors, too."""
        coefficient = self.coefficient * other.coefficient
        factors, divisors = self.factors + other.factors, self.divisors + other.divisors
        # Texts of trees are costly, and most terms have no divisors.
        common = (
            Counter(map(ast.unparse, factors)) & Counter(map(ast.unparse, divisors)) if divisors else Counter[str]()
        )
        return _Term(coefficient, _without(factors, common), _without(divisors, common))

    @property
    def inverse(self) -> _Term:
        return _Term(1 / self.coefficient, self.divisors, self.factors)


def _without(parts: tuple[ast.expr, ...], taken: Counter[str]) -> tuple[ast.expr, ...]:
    """The parts without as many of each text as `taken` has."""
    if not taken:
        return parts
    left, kept = taken.copy(), []
    for part in parts:
        left[ast.unparse(part)] -= 1
        if left[ast.unparse(part)] < 0:
            kept.append(part)
    return tuple(kept)


def derivative(tree: ast.expr, name: str) -> ast.expr:
    """The derivative of the folded formula `tree` (`constant_folding.bind`) by the variable `name`.

    It is a tree over the names of `tree`, which every algebra of `formula.evaluate` accepts. It may be longer and
    deeper than a formula that a user may write, because these limits are those of the parser. Raises `FormulaError`
    where a constant of the derivative is not finite in fp32, or is rounded to 0.
    """
    names = {used: _Dual(ast.Name(used), _constant(int(used == name))) for used in formula.used(tree)}
    return formula.evaluate(tree, names, _DUALS, lambda value: _Dual(ast.Constant(value), _constant(0))).slope


def product(*parts: ast.expr) -> ast.expr:
    """The simplified product of trees; a branch that is 0 stays 0, whatever the other factors are."""
    whole = _Term(1)
    for part in parts:
        terms = _terms(part)
        if not terms:
            return _constant(0)
        whole = whole.times(terms[0] if len(terms) == 1 else _Term(1, (part,)))
    for at, factor in enumerate(whole.factors):
        match factor:
            case ast.Call(func=ast.Name(id="where"), args=[condition, *branches]) if any(map(_vanishes, branches)):
                before = _written(_Term(whole.coefficient, whole.factors[:at]))
                after = _written(_Term(1, whole.factors[at + 1 :], whole.divisors))
                return _where(condition, *(product(before, branch, after) for branch in branches))
    return _written(whole)


def _sum(*parts: ast.expr) -> ast.expr:
    """The sum of trees, with equal terms added."""
    terms_of: dict[tuple[tuple[str, ...], ...], _Term] = {}
    for term in (term for part in parts for term in _terms(part)):
        same = terms_of.setdefault(term.key, _Term(0, term.factors, term.divisors))
        terms_of[term.key] = _Term(same.coefficient + term.coefficient, same.factors, same.divisors)
    # A sum that begins with a minus sign is harder to read.
    terms = sorted((term for term in terms_of.values() if term.coefficient), key=lambda term: term.coefficient < 0)
    if not terms:
        return _constant(0)
    whole = _written(terms[0])
    for term in terms[1:]:
        size = _written(_Term(abs(term.coefficient), term.factors, term.divisors))
        whole = SYNTAX["+" if term.coefficient > 0 else "-"](whole, size)
    return whole


def _terms(tree: ast.expr) -> list[_Term]:
    """A tree as a sum; empty if it is 0."""
    match tree:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _terms(left) + _terms(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _terms(left) + [term.times(_Term(-1)) for term in _terms(right)]
        case ast.UnaryOp(operand=operand):
            return [term.times(_Term(-1)) for term in _terms(operand)]
    term = _term(tree)
    return [term] if term.coefficient else []


def _term(tree: ast.expr) -> _Term:
    """A tree as a product."""
    match tree:
        case ast.Constant(value=int() | float() as value):
            return _Term(float(value))
        case ast.UnaryOp(operand=operand):
            return _term(operand).times(_Term(-1))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _term(left).times(_term(right))
        case ast.BinOp(left=left, op=ast.Div(), right=right) if (divisor := _term(right)).coefficient:
            return _term(left).times(divisor.inverse)
    return _Term(1, (tree,))


def _written(term: _Term) -> ast.expr:
    """The tree of a term: `coefficient * factor * ... / divisor / ...`, where a product of divisors may overflow."""
    factors = list(term.factors)
    if term.coefficient == -1 and factors:
        factors[0] = SYNTAX["negative"](factors[0])
    elif term.coefficient != 1 or not factors:
        factors.insert(0, _constant(term.coefficient))
    whole = factors[0]
    for factor in factors[1:]:
        whole = SYNTAX["*"](whole, factor)
    for divisor in term.divisors:
        whole = SYNTAX["/"](whole, divisor)
    return whole


def _constant(value: float) -> ast.Constant:
    formula.check_number(value, 1)
    return ast.Constant(int(value) if value == int(value) and abs(value) < 2**53 else value)


def _vanishes(tree: ast.expr) -> bool:
    """Whether `tree` is 0, or chooses among values of which one is 0."""
    match tree:
        case ast.Call(func=ast.Name(id="where"), args=[_, *branches]):
            return any(map(_vanishes, branches))
    return not _terms(tree)


def _where(condition: ast.expr, x: ast.expr, y: ast.expr) -> ast.expr:
    return x if type(x) is type(y) and ast.unparse(x) == ast.unparse(y) else SYNTAX["where"](condition, x, y)


def _times(number: float, tree: ast.expr) -> ast.expr:
    return product(_constant(number), tree)


def _quotient(x: ast.expr, y: ast.expr) -> ast.expr:
    return product(x, SYNTAX["/"](_constant(1), y))


def _divide(x: _Dual, y: _Dual) -> ast.expr:
    by_divisor = _quotient(_quotient(product(x.value, y.slope), y.value), y.value)
    return _sum(_quotient(x.slope, y.value), _times(-1, by_divisor))


def _abs(x: ast.expr) -> ast.expr:
    """The sign, which is 0 for NaN as torch's is."""
    zero, one = _constant(0), _constant(1)
    sign = SYNTAX["where"](SYNTAX["<"](x, zero), _constant(-1), one)
    return _where(SYNTAX[">"](SYNTAX["abs"](x), zero), sign, zero)


def _power(x: _Dual, exponent: int) -> ast.expr:
    base = x.value if exponent == 2 else SYNTAX["**"](x.value, exponent - 1)
    return product(_constant(exponent), base, x.slope)


def _sigmoid(x: ast.expr) -> ast.expr:
    """The derivative of sigmoid, without the cancellation of 1 - sigmoid(x) for large x."""
    return product(SYNTAX["sigmoid"](x), SYNTAX["sigmoid"](_times(-1, x)))


def _tanh(x: ast.expr) -> ast.expr:
    """1 - tanh(x)**2 = 4 * sigmoid(2x) * sigmoid(-2x): in fp32 the difference has no correct digit from |x| = 9 on."""
    return _times(4, _sigmoid(_times(2, x)))


def _erf(x: ast.expr) -> ast.expr:
    return _times(2 / math.sqrt(math.pi), SYNTAX["exp"](_times(-1, product(x, x))))


def _of(slope: Callable[[ast.expr], ast.expr]) -> Callable[[_Dual], ast.expr]:
    """The chain rule for a function of one argument, whose derivative is `slope`."""
    return lambda x: product(slope(x.value), x.slope)


#: The derivative of each function and operator, given its arguments; comparisons have none.
SLOPES: Mapping[str, Callable[..., ast.expr]] = {
    "+": lambda x, y: _sum(x.slope, y.slope),
    "-": lambda x, y: _sum(x.slope, _times(-1, y.slope)),
    "*": lambda x, y: _sum(product(x.slope, y.value), product(x.value, y.slope)),
    "/": _divide,
    "negative": lambda x: _times(-1, x.slope),
    "**": _power,
    "where": lambda c, x, y: _where(c.value, x.slope, y.slope),
    # A comparison with NaN does not hold.
    "max": lambda x, y: _where(SYNTAX["<="](x.value, y.value), y.slope, x.slope),
    "min": lambda x, y: _where(SYNTAX[">="](x.value, y.value), y.slope, x.slope),
    "abs": _of(_abs),
    "exp": _of(lambda x: SYNTAX["exp"](x)),
    "exp2": _of(lambda x: _times(math.log(2), SYNTAX["exp2"](x))),
    "log": _of(lambda x: _quotient(_constant(1), x)),
    "sqrt": _of(lambda x: _times(0.5, SYNTAX["rsqrt"](x))),
    "rsqrt": _of(lambda x: _times(-0.5, SYNTAX["**"](SYNTAX["rsqrt"](x), 3))),
    "erf": _of(_erf),
    "tanh": _of(_tanh),
    "sigmoid": _of(_sigmoid),
    "softplus": _of(lambda x: SYNTAX["sigmoid"](x)),
    **{rounded: lambda x: x.slope for rounded in ("fp16", "bf16", "fp32")},
    **{comparison: lambda x, y: _constant(0) for comparison in ("<", "<=", ">", ">=", "==", "!=")},
}


def _dual(symbol: str) -> Callable[..., _Dual]:
    def made(*arguments: _Dual | int) -> _Dual:
        values = [argument.value if isinstance(argument, _Dual) else argument for argument in arguments]
        return _Dual(SYNTAX[symbol](*values), SLOPES[symbol](*arguments))

    return made


_DUALS = {symbol: _dual(symbol) for symbol in SLOPES}
