"""Extents of a call, as terms of the solver: sizes are variables, and what a configuration says is a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from generator.bounds.source import NotUnderstood
from generator.bounds.terms import Poly, poly
from generator.runtime.extents import Extent, Operation, Size


def term(line: int, extent: Extent | int, names: Mapping[str, Poly]) -> Poly:
    """The value of an extent; raises `NotUnderstood`, for differences and minima unless all in them is constant."""
    match extent:
        case int():
            return poly(extent)
        case Size(name) if name in names:
            return names[name]
        case Operation(symbol, left, right):
            a, b = term(line, left, names), term(line, right, names)
            if a.constant is not None and b.constant is not None and (b.constant or symbol not in ("//", "ceil")):
                return poly(Operation(symbol, int(a.constant), int(b.constant)).of({}))
            match symbol:
                case "+":
                    return a + b
                case "*":
                    return a * b
                case "//" | "ceil" if (b.constant or 0) > 0 and all(coefficient >= 0 for _, coefficient in a.terms):
                    # Rounded down is rounded to zero, since no size is negative.
                    return a // b if symbol == "//" else (a + b - 1) // b
    raise NotUnderstood(line, f"the extent {extent}")


def factors(extent: Extent | int) -> Iterator[Extent | int]:
    """The factors of a product, as it is written."""
    if isinstance(extent, Operation) and extent.symbol == "*":
        yield from factors(extent.left)
        yield extent.right
    else:
        yield extent
