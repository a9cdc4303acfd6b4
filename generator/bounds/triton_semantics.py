"""The Triton functions that addresses and masks may use, defined as in Triton 3.7."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from generator.bounds.choices import where
from generator.bounds.plain_arithmetic import combined
from generator.bounds.sites import ExecutionPoint
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import (
    BlockPointer,
    IntegerType,
    IntermediateResult,
    LaneConditions,
    LaneIntegers,
    Opaque,
    Pointer,
    Several,
    Shape,
    Value,
    lane,
    reaches_memory,
    wider,
)
from generator.bounds.terms import ALWAYS, NEVER, Poly, least, poly, variable

Keywords = Mapping[str, Value]
Function = Callable[[ExecutionPoint, Sequence[Value], Keywords], Value]

#: The program id, from 0 to below the size of the grid.
PID = "pid"
#: The number among the programs that share a tile, along the grid's second axis, and its expression in a kernel.
PART = "part"
SECOND_AXIS = "tl.program_id(1)"
#: The number of tiles, used where possible: a product of the grid's sides is hard for the solver.
TILES = "tiles"
DTYPES: Mapping[str, IntegerType] = {"int32": IntegerType("32"), "int64": IntegerType("64")}


def operate(point: ExecutionPoint, operator: ast.operator, a: Value, b: Value) -> Value:
    """`a operator b`: a number for two numbers, an address for an address plus a number, otherwise opaque."""
    if isinstance(a, Pointer | LaneIntegers) and isinstance(b, Pointer | LaneIntegers):
        shape = point.common(a.shape, b.shape)
        if isinstance(a, LaneIntegers) and isinstance(b, LaneIntegers):
            return _numbers(point, operator, shape, a, b)
        if isinstance(a, LaneIntegers):
            a, b = b, a
        if isinstance(a, Pointer) and isinstance(b, LaneIntegers) and isinstance(operator, ast.Add):
            return Pointer(a.operand, a.offset + b.value, shape, a.parts | b.parts)
    strange = next((x.what for x in (a, b) if isinstance(x, Opaque)), type(operator).__name__)
    if reaches_memory(a) or reaches_memory(b):
        raise NotUnderstood(point.line, f"an address made of {strange}")
    return Opaque(strange)


def _numbers(point: ExecutionPoint, operator: ast.operator, shape: Shape, a: LaneIntegers, b: LaneIntegers) -> Value:
    value = combined(operator, a.value, b.value)
    if value is None:
        return Opaque(f"{type(operator).__name__} of numbers")
    width, parts = wider(a.width, b.width), a.parts | b.parts
    # A quotient or a remainder is not wider than the dividend.
    if width in ("32", "index") and isinstance(operator, ast.Add | ast.Sub | ast.Mult):
        parts |= {IntermediateResult(value, shape, width == "index", point.path, point.line)}
    return LaneIntegers(value, shape, width, parts)


def _number(point: ExecutionPoint, value: Value, what: str) -> LaneIntegers:
    if isinstance(value, LaneIntegers):
        return value
    raise NotUnderstood(point.line, f"{what}, {value.what if isinstance(value, Opaque) else type(value).__name__}")


def _constant(point: ExecutionPoint, value: Value, what: str) -> int:
    number = _number(point, value, what).value.constant
    if number is None:
        raise NotUnderstood(point.line, f"{what} is not a compile-time constant")
    return number


def _items(point: ExecutionPoint, value: Value, what: str) -> list[LaneIntegers]:
    if not isinstance(value, Several):
        raise NotUnderstood(point.line, f"{what} is not a tuple")
    return [_number(point, item, what) for item in value.items]


def program_id(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """The program id along the grid's first axis; raises `NotUnderstood` for another axis."""
    if _constant(point, arguments[0], "the axis of the grid") != 0:
        raise NotUnderstood(point.line, "a second axis of the grid")
    return LaneIntegers(variable(PID), width="32")


def cdiv(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """A quotient rounded up: `(a + (b - 1)) // b`."""
    a, b = arguments
    above = operate(point, ast.Add(), a, operate(point, ast.Sub(), b, LaneIntegers(poly(1))))
    return operate(point, ast.FloorDiv(), above, b)


def minimum(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """The minimum of two numbers."""
    a, b = arguments
    if not isinstance(a, LaneIntegers) or not isinstance(b, LaneIntegers):
        return Opaque("the minimum of values that are not followed")
    shape = point.common(a.shape, b.shape)
    return LaneIntegers(least(a.value, b.value), shape, wider(a.width, b.width), a.parts | b.parts)


def maximum(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """The maximum of two numbers: their sum minus their minimum."""
    least_of = minimum(point, arguments, keywords)
    a, b = arguments
    if not isinstance(a, LaneIntegers) or not isinstance(b, LaneIntegers) or not isinstance(least_of, LaneIntegers):
        return least_of
    return replace(least_of, value=a.value + b.value - least_of.value)


def arange(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """Consecutive numbers, one for each lane."""
    start, end = (_constant(point, argument, "a bound of tl.arange") for argument in arguments)
    return LaneIntegers(lane(0) + start, (end - start,), "32")


def full(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """A constant tensor; only a boolean one, which can be a mask, is followed."""
    shape, value, *_ = arguments
    if not isinstance(value, LaneConditions):
        return Opaque("a constant tensor")
    sizes = [_constant(point, size, "a size") for size in _items(point, shape, "a shape")]
    return LaneConditions(value.condition, tuple(sizes))


def cast(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """A number converted to another width."""
    x, dtype, *_ = arguments
    if isinstance(x, LaneIntegers) and isinstance(dtype, IntegerType):
        narrowed = IntermediateResult(x.value, x.shape, False, point.path, point.line)
        parts = x.parts | {narrowed} if (x.width, dtype.width) == ("64", "32") else x.parts
        return LaneIntegers(x.value, x.shape, dtype.width, parts)
    return Opaque("a converted value")


def swizzle2d(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """`tl.swizzle2d`, with the variable names of Triton's definition."""
    step = partial(operate, point)
    i, j, size_i, size_j, size_g = arguments
    ij = step(ast.Add(), step(ast.Mult(), i, size_j), j)
    size_gj = step(ast.Mult(), size_g, size_j)
    group = step(ast.FloorDiv(), ij, size_gj)
    off_i = step(ast.Mult(), group, size_g)
    size_g = minimum(point, [step(ast.Sub(), size_i, off_i), size_g], {})
    ij = step(ast.Mod(), ij, size_gj)
    return Several((step(ast.Add(), off_i, step(ast.Mod(), ij, size_g)), step(ast.FloorDiv(), ij, size_g)))


def make_block_ptr(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """A block pointer into an operand."""
    names = ("base", "shape", "strides", "offsets", "block_shape", "order")
    given = dict(zip(names, arguments)) | dict(keywords)
    base = given.get("base")
    if not isinstance(base, Pointer) or base.shape or set(given) != set(names):
        raise NotUnderstood(point.line, "a block pointer whose base is not an operand")
    extents, strides, offsets, sizes = (_items(point, given[name], name) for name in names[1:5])
    if not len(extents) == len(strides) == len(offsets) == len(sizes):
        raise NotUnderstood(point.line, "a block pointer whose tuples differ in length")
    return BlockPointer(
        operand=base.operand,
        extents=_values(extents),
        strides=_values(strides),
        offsets=_values(offsets),
        shape=tuple(_constant(point, size, "a size of the block") for size in sizes),
        # The block pointer's address arithmetic has 64 bits.
        parts=base.parts.union(*(number.parts for number in (*extents, *strides, *offsets))),
        start=base.offset,
    )


def advance(point: ExecutionPoint, arguments: Sequence[Value], keywords: Keywords) -> Value:
    """A block pointer, moved."""
    block, by = arguments
    if not isinstance(block, BlockPointer):
        raise NotUnderstood(point.line, "tl.advance of a value that is not a block pointer")
    return moved_block(point, block, by, poly(1))


def moved(point: ExecutionPoint, first: Pointer | LaneIntegers, by: LaneIntegers, times: Poly) -> Value:
    """A pointer or a number to which the same number is added `times` times."""
    parts = first.parts | by.parts
    if isinstance(first, Pointer):
        return Pointer(first.operand, first.offset + by.value * times, first.shape, parts)
    value = first.value + by.value * times
    part = IntermediateResult(value, first.shape, first.width == "index", point.path, point.line)
    return LaneIntegers(value, first.shape, first.width, parts | {part})


def moved_block(point: ExecutionPoint, block: BlockPointer, by: Value, times: Poly) -> BlockPointer:
    """A block pointer moved `times` times by the same distances."""
    distances = _items(point, by, "a distance")
    if len(distances) != len(block.offsets) or any(distance.shape for distance in distances):
        raise NotUnderstood(point.line, f"{len(distances)} distances for {len(block.offsets)} dimensions")
    offsets = tuple(offset + distance.value * times for offset, distance in zip(block.offsets, distances))
    computed = {IntermediateResult(offset, (), False, point.path, point.line) for offset in offsets}
    parts = block.parts.union(computed, *(distance.parts for distance in distances))
    return replace(block, offsets=offsets, parts=parts)


def _values(numbers: Sequence[LaneIntegers]) -> tuple[Poly, ...]:
    return tuple(number.value for number in numbers)


def constant(value: object) -> Value:
    """A constant of the source."""
    if isinstance(value, bool):
        return LaneConditions(ALWAYS if value else NEVER)
    return LaneIntegers(poly(value)) if isinstance(value, int) else Opaque(f"the constant {value!r}")


FUNCTIONS: Mapping[str, Function] = {
    "tl.program_id": program_id,
    "tl.cdiv": cdiv,
    "tl.minimum": minimum,
    "min": minimum,
    "tl.maximum": maximum,
    "max": maximum,
    "tl.arange": arange,
    "tl.full": full,
    "tl.where": where,
    "tl.cast": cast,
    "tl.swizzle2d": swizzle2d,
    "tl.make_block_ptr": make_block_ptr,
    "tl.advance": advance,
}
