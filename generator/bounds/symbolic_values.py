"""The values of the kernel's names during symbolic execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from generator.bounds.rewriting import replaced, replaced_in
from generator.bounds.terms import ALWAYS, Atom, Condition, DefinedFunction, Poly, Variable, at_most, below, variable

#: The width of a number: a constant takes that of the other operand, `index` is that of INDEX, which the call decides.
Width = Literal["constant", "32", "index", "64"]
_WIDER: tuple[Width, ...] = ("constant", "32", "index", "64")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class IntermediateResult:
    """An intermediate result that the machine computes, and its place: it must fit its width."""

    value: Poly
    shape: Shape
    index: bool
    path: tuple[Condition, ...]
    line: int


Parts = frozenset[IntermediateResult]


@dataclass(frozen=True)
class LaneIntegers:
    """Integers, one for each lane of the shape; `lane0`, `lane1` in the value are the indices along its axes."""

    value: Poly
    shape: Shape = ()
    width: Width = "constant"
    parts: Parts = frozenset()


@dataclass(frozen=True)
class LaneConditions:
    """A condition for each lane of the shape."""

    condition: Condition
    shape: Shape = ()
    parts: Parts = frozenset()


@dataclass(frozen=True)
class Pointer:
    """Addresses of an operand's elements: `offset` elements past its first."""

    operand: str
    offset: Poly
    shape: Shape = ()
    parts: Parts = frozenset()


@dataclass(frozen=True)
class BlockPointer:
    """A block pointer: a block of a matrix with the given extents and strides."""

    operand: str
    extents: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    offsets: tuple[Poly, ...]
    shape: Shape
    parts: Parts
    #: The offset of the matrix in the operand, in elements.
    start: Poly


@dataclass(frozen=True)
class Descriptor:
    """A descriptor made on the host; `fault` says how it differs from the operand's shape and strides, or is None."""

    operand: str
    dimensions: int
    fault: str | None
    #: The sizes of its block, and whether it is of the operand turned.
    block: tuple[int, ...] = ()
    turned: bool = False


@dataclass(frozen=True)
class Either:
    """A parameter that is a number, or a pointer to a single number if the flag is set."""

    operand: str
    flag: Condition


@dataclass(frozen=True)
class CounterValue:
    """The value that an atomic add of 1 reads from a counter: it differs among the programs that increment it."""

    operand: str
    offset: Poly
    #: Whether the add has acquire and release semantics: stores before it are visible to those who read its value.
    ordered: bool
    #: If only some programs increment the counter: their condition, and the number that the others have instead.
    under: Condition = ALWAYS
    otherwise: Poly | None = None


@dataclass(frozen=True)
class IntegerType:
    """An integer type."""

    width: Width


@dataclass(frozen=True)
class Called:
    """A function of the file that computes a tile from a number: it maps integers to two integers."""

    function: DefinedFunction


@dataclass(frozen=True)
class Several:
    """A tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Opaque:
    """A value that the proof does not follow, such as data: no address, mask or condition may depend on it."""

    what: str
    #: Whether it may contain a pointer, so that memory could be accessed through it.
    memory: bool = False


def is_data(value: object) -> bool:
    """Whether the proof does not follow a value, through which no memory is accessed."""
    return isinstance(value, Opaque) and not value.memory


Lanes = LaneIntegers | LaneConditions
Address = Pointer | BlockPointer | Descriptor | Either
Value = Lanes | Address | CounterValue | IntegerType | Called | Several | Opaque


def lane(axis: int) -> Poly:
    """The index of a lane along an axis of the tensor."""
    return variable(f"lane{axis}")


@cache
def lanes(shape: Shape) -> tuple[Condition, ...]:
    """The conditions that a lane's indices are inside the shape."""
    return tuple(x for axis, size in enumerate(shape) for x in (at_most(0, lane(axis)), below(lane(axis), size)))


def wider(*widths: Width) -> Width:
    """The width of a result of operands with these widths."""
    return max(widths, key=_WIDER.index)


def reaches_memory(value: Value) -> bool:
    """Whether memory can be accessed through the value."""
    if isinstance(value, Several):
        return any(map(reaches_memory, value.items))
    if isinstance(value, Opaque):
        return value.memory
    return isinstance(value, Address)


def moved(value: Lanes, axes: Mapping[int, int], shape: Shape) -> Lanes:
    """A tensor whose axes become other axes of a shape with more dimensions; `axes` maps old axes to new ones."""
    by: dict[Atom, Poly] = {Variable(f"lane{old}"): lane(new) for old, new in axes.items() if old != new}

    def placed(part: IntermediateResult) -> IntermediateResult:
        sizes = [1] * len(shape)
        for old, size in enumerate(part.shape):
            sizes[axes[old]] = size
        return replace(part, value=replaced(part.value, by), shape=tuple(sizes) if part.shape else ())

    parts = frozenset(map(placed, value.parts))
    if isinstance(value, LaneConditions):
        return LaneConditions(replaced_in(value.condition, by), shape, parts)
    return LaneIntegers(replaced(value.value, by), shape, value.width, parts)


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The shape to which the shapes broadcast, or None if they do not."""
    result: Shape = ()
    for shape in shapes:
        if not result or not shape:
            result = result or shape
        elif len(shape) != len(result) or any(a != b and 1 not in (a, b) for a, b in zip(shape, result)):
            return None
        else:
            result = tuple(map(max, zip(shape, result)))
    return result


#: The mask that is true in every lane.
TRUE = LaneConditions(ALWAYS)
