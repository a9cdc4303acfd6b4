"""Accesses with symbolic addresses and masks, and the intermediate results of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from generator.bounds.source import Kind, NotUnderstood
from generator.bounds.symbolic_values import (
    TRUE,
    BlockPointer,
    Descriptor,
    Either,
    LaneConditions,
    LaneIntegers,
    Opaque,
    Parts,
    Pointer,
    Several,
    Shape,
    Value,
    broadcast,
    lane,
)
from generator.bounds.terms import ALWAYS, Condition, Poly, at_most, below, every, poly


@dataclass(frozen=True)
class Site:
    """One load or store: its path, its addresses, and the lanes that are not masked off."""

    line: int
    column: int
    kind: Kind
    operand: str
    #: The conditions on a program and an iteration that execute the access.
    path: tuple[Condition, ...]
    #: The condition on a lane that is not masked off.
    mask: Condition
    offset: Poly
    shape: Shape
    parts: Parts
    #: The condition that the operand is an address at all.
    demand: Condition = ALWAYS
    #: Whether the access adds to the element.
    adds: bool = False
    #: The descriptor of the access, whose bounds the hardware checks, or None; and where its block begins.
    descriptor: Descriptor | None = None
    coordinates: tuple[Poly, ...] = ()
    #: Whether constants of the configuration leave no iteration that executes the access.
    idle: bool = False


@dataclass(frozen=True)
class ExecutionPoint:
    """The current place of the symbolic execution in the kernel."""

    line: int
    column: int
    path: tuple[Condition, ...]
    #: The numbers computed for the conditions of the path.
    parts: Parts

    def common(self, *shapes: Shape) -> Shape:
        """The shape to which shapes broadcast; raises `NotUnderstood`."""
        if (shape := broadcast(shapes)) is None:
            shapes_text = f"{', '.join(map(str, shapes[:-1]))} and {shapes[-1]}"
            raise NotUnderstood(self.line, f"shapes {shapes_text}, which do not broadcast")
        return shape

    def site(
        self, kind: Kind, operand: str, offset: Poly, shape: Shape, mask: Condition, parts: Parts, **more: Any
    ) -> Site:
        """An access here, for which `parts` were computed besides those of the path."""
        parts |= self.parts
        return Site(self.line, self.column, kind, operand, self.path, mask, offset, shape, parts, **more)


def plain(point: ExecutionPoint, kind: Kind, address: Value, mask: Value, checked: Value) -> Site:
    """A `tl.load` or `tl.store`; raises `NotUnderstood`."""
    if not isinstance(mask, LaneConditions):
        raise NotUnderstood(point.line, f"the mask, {described_value(mask)}")
    if isinstance(address, BlockPointer):
        if mask != TRUE:
            raise NotUnderstood(point.line, "a block pointer with a mask")
        return _block(point, kind, address, _dimensions(point, checked))
    demand: Condition = ALWAYS
    if isinstance(address, Either):
        demand, address = address.flag, Pointer(address.operand, poly(0))
    if not isinstance(address, Pointer):
        raise NotUnderstood(point.line, f"the address, {described_value(address)}")
    if broadcast([address.shape, mask.shape]) != address.shape:
        raise NotUnderstood(point.line, f"a mask of shape {mask.shape} over addresses of shape {address.shape}")
    parts = address.parts | mask.parts
    return point.site(kind, address.operand, address.offset, address.shape, mask.condition, parts, demand=demand)


def described(point: ExecutionPoint, kind: Kind, descriptor: Descriptor, coordinates: Value) -> Site:
    """`a_desc.load([row, k])`: the hardware skips elements outside the descriptor's shape."""
    items = coordinates.items if isinstance(coordinates, Several) else ()
    numbers = [item for item in items if isinstance(item, LaneIntegers) and not item.shape]
    if not len(numbers) == len(items) == descriptor.dimensions:
        raise NotUnderstood(point.line, f"the coordinates, {described_value(coordinates)}")
    parts = Parts().union(*(number.parts for number in numbers))
    begins = tuple(number.value for number in numbers)
    return point.site(kind, descriptor.operand, poly(0), (), ALWAYS, parts, descriptor=descriptor, coordinates=begins)


def described_value(value: Value) -> str:
    """A value of an unexpected type, in words."""
    return value.what if isinstance(value, Opaque) else f"a {type(value).__name__.lower()}"


def _block(point: ExecutionPoint, kind: Kind, block: BlockPointer, checked: list[int]) -> Site:
    """An access by a block pointer: elements outside the extents along checked dimensions are skipped."""
    offset, mask = block.start, []
    for dimension, (start, stride, extent) in enumerate(zip(block.offsets, block.strides, block.extents)):
        index = start + lane(dimension)
        offset = offset + index * stride
        if dimension in checked:
            mask += [at_most(0, index), below(index, extent)]
    if any(dimension >= len(block.shape) for dimension in checked):
        raise NotUnderstood(point.line, f"boundary_check={tuple(checked)} of a block of {len(block.shape)} dimensions")
    return point.site(kind, block.operand, offset, block.shape, every(mask), block.parts)


def _dimensions(point: ExecutionPoint, checked: Value) -> list[int]:
    items = checked.items if isinstance(checked, Several) else (checked,)
    dimensions = [item.value.constant for item in items if isinstance(item, LaneIntegers)]
    if len(dimensions) != len(items) or None in dimensions:
        raise NotUnderstood(point.line, "boundary_check is not a tuple of numbers")
    return [dimension for dimension in dimensions if dimension is not None]
