"""The parameters of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .call import Call
from .launch import Operands
from .scalars import require_number


class Signature:
    """The parameters of an operator: those of a contract's call, each number also as a tensor of one element.

    `tensors` and `numbers` are the names of the operands besides `a` and `b` that a call must have, `optional` those
    that it may leave out, and `results` those of the results, of which `out` is the first.
    """

    tensors: list[str]
    numbers: list[str]
    optional: list[str]
    results: list[str]

    def __init__(self, table: Call) -> None:
        operands = table.operands[2:]
        self.tensors = [x.name for x in operands if x.shape and x.absent is None]
        self.numbers = [x.name for x in operands if not x.shape]
        self.optional = [x.name for x in operands if x.absent is not None]
        self.results = [x.name for x in table.results]

    def schema(self, name: str, *, filled: bool = False) -> str:
        """The schema of the operator that returns results, or of the one that fills them (`torch.library`)."""
        parameters = [f"Tensor {x}" for x in ("a", "b", *self.tensors)]
        parameters += self.number_parameters
        parameters += [f"Tensor? {x}" for x in self.optional]
        if filled:
            parameters += [f"Tensor({chr(ord('a') + index)}!) {x}_result" for index, x in enumerate(self.results)]
            return f"{name}_out({', '.join([*parameters, 'int? config'])}) -> ()"
        returned = ", ".join(["Tensor"] * len(self.results))
        return f"{name}({', '.join([*parameters, 'int? config'])}) -> ({returned})"

    @property
    def number_parameters(self) -> list[str]:
        """Two parameters for each number: a tensor of one element, and the number where that is None."""
        return [f"Tensor? {x}_tensor, float {x}_number" for x in self.numbers]

    @property
    def places(self) -> list[str]:
        """The operand of each of the operator's arguments; a number as such and the configuration are of none."""
        numbers = [place for x in self.numbers for place in (x, f"{x}_number")]
        return ["a", "b", *self.tensors, *numbers, *self.optional, "config"]

    def packed(self, a: Tensor, b: Tensor, operands: Operands) -> list[Any]:
        """The operator's arguments, but for results and configuration."""
        optional = (operands.get(x) for x in self.optional)
        return [a, b, *(operands[x] for x in self.tensors), *self.packed_numbers(operands), *optional]

    def packed_numbers(self, operands: Operands) -> list[Tensor | float | None]:
        """The arguments for `number_parameters`."""
        arguments: list[Tensor | float | None] = []
        for x in self.numbers:
            number = operands[x]
            arguments += (
                [number, 0.0]
                if isinstance(number, Tensor)
                else [None, number if isinstance(number, float) else require_number(x, number)]
            )
        return arguments

    def unpacked(self, arguments: Sequence[Any]) -> tuple[Operands, Sequence[Any]]:
        """The operands behind `a` and `b` that such arguments are of, by keyword, and the arguments behind them."""
        first = 2 + len(self.tensors)
        last = first + 2 * len(self.numbers)
        operands = {**dict(zip(self.tensors, arguments[2:first])), **self.unpacked_numbers(arguments[first:last])}
        operands |= {x: value for x, value in zip(self.optional, arguments[last:]) if value is not None}
        last += len(self.optional)
        return operands, arguments[last:]

    def unpacked_numbers(self, arguments: Sequence[Any]) -> Operands:
        """The numbers that the arguments for `number_parameters` are of, by keyword."""
        pairs = zip(self.numbers, arguments[::2], arguments[1::2])
        return {x: number if tensor is None else tensor for x, tensor, number in pairs}
