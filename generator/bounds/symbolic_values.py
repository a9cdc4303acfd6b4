"""What a name of the kernel stands for while the proof walks through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from generator.bounds.rewriting import replaced, replaced_in
from generator.bounds.terms import ALWAYS, Atom, Condition, Function, Poly, Variable, at_most, below, variable

#: How wide a number is: a constant takes the width of what it meets, `index` is the INDEX that the launcher chose.
Width = Literal["constant", "32", "index", "64"]
_WIDER: tuple[Width, ...] = ("constant", "32", "index", "64")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A number that the machine computes on the way to another one, and where: it must fit its width."""

    value: Poly
    shape: Shape
    index: bool
    path: tuple[Condition, ...]
    line: int


@dataclass(frozen=True)
class Number:
    """Whole numbers, one for each lane of the shape; `lane0`, `lane1` in the value count along its axes."""

    value: Poly
    shape: Shape = ()
    width: Width = "constant"
    parts: frozenset[Part] = frozenset()


@dataclass(frozen=True)
class Truth:
    """A condition for each lane of the shape."""

    condition: Condition
    shape: Shape = ()
    parts: frozenset[Part] = frozenset()


@dataclass(frozen=True)
class Pointer:
    """Addresses of an operand's elements: so many elements past its first."""

    operand: str
    offset: Poly
    shape: Shape = ()
    parts: frozenset[Part] = frozenset()


@dataclass(frozen=True)
class Block:
    """A block pointer: a window into a matrix of given extents and strides."""

    operand: str
    extents: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    offsets: tuple[Poly, ...]
    shape: Shape
    parts: frozenset[Part]
    #: Where the matrix begins, in elements past the operand's first.
    start: Poly


@dataclass(frozen=True)
class Descriptor:
    """A descriptor made on the host; `fault` says why it is not one of the operand's own shape and strides."""

    operand: str
    dimensions: int
    fault: str | None


@dataclass(frozen=True)
class Either:
    """A parameter that is a number, or a pointer to a single one where the flag is set."""

    operand: str
    flag: Condition


@dataclass(frozen=True)
class Count:
    """What an atomic add of 1 found at a counter: no two programs that raise the same one find the same."""

    operand: str
    offset: Poly
    #: Whether who sees it sees what was stored before it was raised, and the other way round.
    ordered: bool
    #: Where only some programs raise it: under which condition, and the number that the others have instead.
    under: Condition = ALWAYS
    otherwise: Poly | None = None


@dataclass(frozen=True)
class Dtype:
    """A type of whole numbers."""

    width: Width


@dataclass(frozen=True)
class Called:
    """A function of the file that finds a tile by its number: of whole numbers it returns two."""

    function: Function


@dataclass(frozen=True)
class Several:
    """A tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Opaque:
    """What the proof does not follow, such as data: no address, mask or condition may depend on it."""

    what: str
    #: Whether it may hide something that memory can be reached through.
    memory: bool = False


Value = Number | Truth | Pointer | Block | Descriptor | Either | Count | Dtype | Called | Several | Opaque


def lane(axis: int) -> Poly:
    """The place along an axis of the tensor."""
    return variable(f"lane{axis}")


@cache
def lanes(shape: Shape) -> tuple[Condition, ...]:
    """That every lane lies in the shape."""
    bounds = [(at_most(0, lane(axis)), below(lane(axis), size)) for axis, size in enumerate(shape)]
    return tuple(condition for pair in bounds for condition in pair)


def wider(*widths: Width) -> Width:
    """The width of a result of operands of these."""
    return max(widths, key=_WIDER.index)


def reaches_memory(value: Value) -> bool:
    """Whether somebody who holds the value could read or write through it."""
    if isinstance(value, Several):
        return any(map(reaches_memory, value.items))
    if isinstance(value, Opaque):
        return value.memory
    return isinstance(value, Pointer | Block | Descriptor | Either)


def moved(value: Number | Truth, axes: Mapping[int, int], shape: Shape) -> Number | Truth:
    """A tensor with its axes at other places of a larger shape."""
    by: dict[Atom, Poly] = {Variable(f"lane{old}"): lane(new) for old, new in axes.items() if old != new}

    def placed(part: Part) -> Part:
        sizes = [1] * len(shape)
        for old, size in enumerate(part.shape):
            sizes[axes[old]] = size
        return replace(part, value=replaced(part.value, by), shape=tuple(sizes) if part.shape else ())

    parts = frozenset(map(placed, value.parts))
    if isinstance(value, Truth):
        return Truth(replaced_in(value.condition, by), shape, parts)
    return Number(replaced(value.value, by), shape, value.width, parts)


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The shape of a result of operands of these, or None where they do not go together."""
    result: Shape = ()
    for shape in shapes:
        if not result or not shape:
            result = result or shape
        elif len(shape) != len(result) or any(a != b and 1 not in (a, b) for a, b in zip(shape, result)):
            return None
        else:
            result = tuple(map(max, zip(shape, result)))
    return result


#: Every lane, everywhere.
TRUE = Truth(ALWAYS)
