"""Values that depend on a condition: after a branch, which computes one, or of `tl.where`, which computes both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from generator.bounds.rewriting import divisors
from generator.bounds.sites import ExecutionPoint
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import (
    CounterValue,
    IntermediateResult,
    LaneConditions,
    LaneIntegers,
    Lanes,
    Opaque,
    Value,
    Width,
    reaches_memory,
    wider,
)
from generator.bounds.terms import ALWAYS, NEVER, choice, either, equal, every, negation, poly

#: The arguments of tl.where.
_ARGUMENTS = ("condition", "x", "y")


def merged(test: LaneConditions, a: Value, b: Value) -> Value:
    """The value of a name after a branch: `a` if `test` holds, otherwise `b`."""
    if a == b or test.condition == ALWAYS:
        return a
    if test.condition == NEVER:
        return b
    if isinstance(a, LaneConditions) and isinstance(b, LaneConditions) and a.shape == b.shape:
        taken = every([test.condition, a.condition])
        other = every([negation(test.condition), b.condition])
        return LaneConditions(either([taken, other]), a.shape, a.parts | b.parts | test.parts)
    if isinstance(a, LaneIntegers) and isinstance(b, LaneIntegers) and a.shape == b.shape:
        # A constant that depends on a condition at run time is a number of 32 bits.
        widths: set[Width] = {"32" if x.width == "constant" else x.width for x in (a, b)}
        if len(widths) == 1:
            value = choice(test.condition, a.value, b.value)
            return LaneIntegers(value, a.shape, widths.pop(), a.parts | b.parts | test.parts)
    if isinstance(a, CounterValue) and isinstance(b, LaneIntegers) and not b.shape and a.otherwise is None:
        return replace(a, under=test.condition, otherwise=b.value)
    return Opaque("a value that depends on a condition", reaches_memory(a) or reaches_memory(b))


def where(point: ExecutionPoint, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
    """The value of `tl.where` in each lane: the same as after a branch, but every lane computes both sides."""
    given = dict(zip(_ARGUMENTS, arguments)) | dict(keywords)
    if set(given) != set(_ARGUMENTS) or len(arguments) + len(keywords) != len(_ARGUMENTS):
        raise NotUnderstood(point.line, "tl.where without exactly one condition and two values")
    if any(map(reaches_memory, given.values())):
        raise NotUnderstood(point.line, "tl.where of addresses")
    test, a, b = (given[name] for name in _ARGUMENTS)
    if isinstance(test, LaneIntegers):
        test = LaneConditions(negation(equal(test.value, 0)), test.shape, test.parts)
    match test, a, b:
        case LaneConditions(), LaneIntegers(), LaneIntegers():
            # Constants become numbers of 32 bits, unless the other value is wider.
            width = wider("32", a.width, b.width)
            a, b = (replace(x, width=width, parts=x.parts | _fitting(point, x, width)) for x in (a, b))
        case LaneConditions(), LaneConditions(), LaneConditions():
            pass
        case _:
            opaque = (x for x in given.values() if isinstance(x, Opaque))
            return next(opaque, Opaque("tl.where of values of different types"))
    shape = point.common(test.shape, a.shape, b.shape)
    a, b = (replace(x, shape=shape, parts=x.parts | _divisions(point, x)) for x in (a, b))
    return merged(test, a, b)


def _fitting(point: ExecutionPoint, number: LaneIntegers, width: Width) -> frozenset[IntermediateResult]:
    """The part that states that a constant fits the width that it is converted to."""
    constant = number.width == "constant" and width in ("32", "index")
    part = IntermediateResult(number.value, number.shape, False, point.path, point.line)
    return frozenset({part} if constant else ())


def _divisions(point: ExecutionPoint, side: Lanes) -> frozenset[IntermediateResult]:
    """Parts that state that a side does not divide by zero even if it is not taken: 1 // 0 fits no width."""
    term = side.value if isinstance(side, LaneIntegers) else side.condition
    sums = (
        IntermediateResult(poly(1) // x, side.shape, False, (*point.path, *path), point.line)
        for x, path in divisors(term)
    )
    return frozenset(part for part in sums if part.value.constant is None)
