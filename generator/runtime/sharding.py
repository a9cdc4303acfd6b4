"""How operands of the class DTensor are multiplied where they are: the rules of `torch.distributed.tensor`.

A mesh may divide the rows of C with those of A, its columns with those of B, or a batch, each with the operands that
have that size. K is divided for contracts without a chain, whose results are then parts of a sum. What is divided in
another way is redistributed by torch before the call.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from . import operators
from .launch import registering

#: The words of the dimensions of an operand or a result.
Shape: TypeAlias = Sequence[str]


class Divisible(NamedTuple):
    """An operator that a mesh may divide.

    `arguments` are the names of its arguments, of which `operands` has the shapes of tensors. A mesh may divide the
    `sizes` that all results have, and of `summed` also those that some lack: of these every device has a part of a sum.
    """

    name: str
    arguments: Sequence[str]
    operands: Mapping[str, Shape]
    results: Sequence[Shape]
    sizes: Sequence[str]
    summed: Sequence[str]


#: The operators of which torch knows no rules yet.
_waiting: list[Divisible] = []


def later(operator: Divisible) -> None:
    """Keep what `register` needs of an operator until a call has operands of the class DTensor."""
    _waiting.append(operator)


def sharded(operands: Iterable[object]) -> bool:
    """Whether an operand is a DTensor; if so, torch knows the rules of all operators from here on."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not any(isinstance(x, module.DTensor) for x in operands):
        return False
    register()
    return True


def register() -> None:
    """Tell torch the rules of all operators, if a program divides tensors."""
    with registering:
        while _waiting and "torch.distributed.tensor" in sys.modules:
            _register(_waiting.pop())


def laid_out(arguments: Sequence[Any], units: Sequence[int | None]) -> list[Any]:
    """The tensors of one device, of which those that torch gathered row-major are contiguous along `units` again."""
    moved = [*arguments]
    for index, (x, unit) in enumerate(zip(arguments, units)):
        if unit is not None and isinstance(x, Tensor) and x.dim() > 1 and x.shape[unit] > 1 and x.stride(unit) != 1:
            moved[index] = x.movedim(unit, -1).contiguous().movedim(-1, unit)
    return moved


def _register(operator: Divisible) -> None:
    """Tell torch how an operator may be divided."""
    from torch.distributed.tensor.experimental import register_sharding
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard

    shapes = [*operator.operands.values(), *operator.results]
    words = [each for shape in shapes for each in shape]
    # A size of which several elements make up a container, a block or a pair is not divided.
    whole = {name for each in words if not each.isidentifier() for name in re.findall("[A-Z]+", each)}
    # Neither is one that an operand has twice: a part of the rows would be multiplied by the same part of the columns.
    whole |= {each for shape in shapes for each in shape if [*shape].count(each) > 1}
    sizes = [x for x in operator.sizes if all(x in shape for shape in operator.results)]
    sizes = [x for x in (*sizes, *operator.summed) if x in words and x not in whole]

    def placed(shape: Shape, size: str, otherwise: Any) -> Any:
        return next((Shard(dimension) for dimension, each in enumerate(shape) if each == size), otherwise)

    def rules(*given: Any, **_: Any) -> list[tuple[list[Any], list[Any]]]:
        # What is no tensor has no placement.
        tensors = [hasattr(x, "mesh") for x in given]
        strategies = []
        for size in ("", *sizes):
            outputs = [placed(shape, size, Partial() if size else Replicate()) for shape in operator.results]
            # A vector that a batch shares lacks the first dimension.
            read = [
                placed(operator.operands.get(x, ())[-getattr(each, "ndim", 0) :], size, Replicate())
                for x, each in zip(operator.arguments, given)
            ]
            strategies.append((outputs, [each if tensor else None for each, tensor in zip(read, tensors)]))
        return strategies

    register_sharding(operators.operator(operator.name))(rules)
