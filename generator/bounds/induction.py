"""The names of a loop by induction, for an iteration that the solver may choose.

A pointer or number that every iteration moves by the same distance is at its start plus `count` times that distance.
Names that a loop changes in any other way are not followed.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from generator.bounds import triton_semantics
from generator.bounds.expressions import Expressions
from generator.bounds.patterns import assigned, dotted
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import BlockPointer, LaneIntegers, Opaque, Pointer, Several, Value, reaches_memory
from generator.bounds.terms import Poly, at_most


def outside(at: Expressions, changed: set[str], loop: ast.For) -> dict[str, Value]:
    """The names before and after any iteration of a loop: names that the loop changes are opaque."""
    names = dict(at.names)
    for name in changed:
        hidden = name in names and reaches_memory(names[name])
        names[name] = Opaque(f"{name}, which the loop of line {loop.lineno} changes", hidden)
    return names


def steps_of(at: Expressions, steps: ast.Call) -> tuple[LaneIntegers, LaneIntegers, int]:
    """Where a loop over `range` starts and stops, and its step, a constant of at least 1."""
    values = [at.value(argument) for argument in steps.args]
    numbers = [value for value in values if isinstance(value, LaneIntegers) and not value.shape]
    known = dotted(steps.func) in ("range", "tl.range", "tl.static_range") and 1 <= len(numbers) == len(values) <= 3
    if not known:
        raise NotUnderstood(steps.lineno, f"the loop over {ast.unparse(steps)}")
    zero, one = triton_semantics.constant(0), triton_semantics.constant(1)
    assert isinstance(zero, LaneIntegers) and isinstance(one, LaneIntegers)
    start, stop, step = (zero, *numbers, one)[:3] if len(numbers) == 1 else (*numbers, one, one)[:3]
    stride = step.value.constant
    if stride is None or stride < 1:
        raise NotUnderstood(steps.lineno, f"the loop over {ast.unparse(steps)}")
    return start, stop, stride


def moving(at: Expressions, name: str, body: list[ast.stmt], first: Value | None, count: Poly) -> Value | None:
    """The value of a name in iteration `count`, if every iteration adds the same distance once; otherwise None."""
    if sum(name in assigned([statement]) for statement in body) != 1 or first is None:
        return None
    # The distance is evaluated after a first iteration, and only matters if there is a second one.
    again = Expressions(dict(at.names), (*at.path, at_most(1, count)), at.decided, [])
    for statement in body:
        point = replace(again.place(statement), line=statement.lineno)
        match statement:
            case ast.AugAssign(ast.Name(x), ast.Add(), value) if x == name and isinstance(
                first, Pointer | LaneIntegers
            ):
                by = again.value(value)
                if isinstance(by, LaneIntegers) and not by.shape:
                    return triton_semantics.moved(point, first, by, count)
            case ast.Assign([ast.Name(x)], ast.Call(function, [ast.Name(y), value], [])) if x == y == name:
                by = again.value(value)
                if dotted(function) == "tl.advance" and isinstance(first, BlockPointer) and isinstance(by, Several):
                    return triton_semantics.moved_block(point, first, by, count)
    return None
