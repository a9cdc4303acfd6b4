"""Numbers of a call as terms of the solver: sizes are variables, and what a configuration says is a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from generator.bounds.terms import Poly, poly
from generator.emit.call_value import NotUnderstood
from generator.plan.extents import OPERATIONS, Amount


def term(line: int, number: Amount | int, names: Mapping[str, Poly]) -> Poly:
    """The value of a number; raises `NotUnderstood`, for differences and minima unless all in them is constant."""
    match number:
        case bool():
            pass
        case int():
            return poly(number)
        case Amount(name, ()) if name in names:
            return names[name]
        case Amount(symbol, (left, right)):
            a, b = term(line, left, names), term(line, right, names)
            if a.constant is not None and b.constant is not None and (b.constant or symbol not in ("//", "cdiv")):
                return poly(OPERATIONS[symbol](a.constant, b.constant))
            match symbol:
                case "+":
                    return a + b
                case "*":
                    return a * b
                case "//" | "cdiv" if (b.constant or 0) > 0 and all(coefficient >= 0 for _, coefficient in a.terms):
                    # Rounded down is rounded to zero, since no size is negative.
                    return a // b if symbol == "//" else (a + b - 1) // b
    raise NotUnderstood(line, f"the number {number}")


def factors(number: Amount | int) -> Iterator[Amount | int]:
    """The factors of a product, as it is written."""
    if isinstance(number, Amount) and number.symbol == "*":
        left, right = number.sides
        yield from factors(left)
        yield right
    else:
        yield number
