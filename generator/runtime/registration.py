"""The operators of this family in torch's registry, in a namespace made from the family's import path, and schemas."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .call import Call
from .launch import Operands

# The family's import path, in the letters that torch takes; a path that it would not show has its checksum behind it.
FAMILY = __name__.rsplit(".", 2)[0]
NAMESPACE = re.sub(r"\W", "_", FAMILY.replace(".", "__"), flags=re.ASCII)
if NAMESPACE[0].isdigit():
    NAMESPACE = f"_{NAMESPACE}"
if NAMESPACE.split("__") != FAMILY.split("."):
    NAMESPACE += f"__{zlib.crc32(FAMILY.encode()):08x}"


def _library() -> tuple[str, Any]:
    """A namespace that no earlier import of the family in this process has, and its library."""
    namespace = NAMESPACE
    for number in itertools.count(2):
        try:
            return namespace, torch.library.Library(namespace, "DEF")  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if "TORCH_LIBRARY" not in str(error):
                raise
        namespace = f"{NAMESPACE}__{number}"
    raise AssertionError


NAMESPACE, LIBRARY = _library()


def operator(name: str) -> Any:
    """A registered operator of this family; AttributeError if there is none of the name."""
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def register(schema: str, run: Callable[..., Any], described: Callable[..., Any]) -> None:
    """Define an operator: what it runs, and the shapes, strides and types of its results.

    `run` and `described` take the arguments of the schema; `described` gets fake tensors.
    """
    name = LIBRARY.define(schema)
    for device in ("CUDA", "CPU"):
        LIBRARY.impl(name, run, device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", described, lib=LIBRARY)


def loop_over_batch(name: str) -> None:
    """Register for torch.vmap, as of a Jacobian, that an operator runs for each of a batch, one after the other."""
    one = operator(name)

    def rule(info: Any, dimensions: Sequence[Any], *arguments: Any) -> tuple[Any, Any]:
        found = []
        for index in range(info.batch_size):
            each = zip(arguments, dimensions)
            found.append(one(*(x.select(place, index) if isinstance(place, int) else x for x, place in each)))
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(map(torch.stack, zip(*found))), (0,) * len(found[0])

    torch.library.register_vmap(f"{NAMESPACE}::{name}", rule, lib=LIBRARY)


class Signature:
    """The parameters of an operator: those of a contract's call, each number also as a tensor of one element.

    `tensors` and `numbers` are the names of the operands besides `a` and `b` that a call must have, `optional` those
    that it may leave out, and `results` those of the results, of which `out` is the first.
    """

    def __init__(self, table: Call) -> None:
        operands = table.operands[2:]
        self.tensors = [x.name for x in operands if x.shape and x.absent is None]
        self.numbers: dict[str, Any] = {x.name: x for x in operands if not x.shape}
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

    def packed_numbers(self, operands: Operands) -> list[Any]:
        """The arguments for `number_parameters`; a node of a graph stands for a tensor."""
        arguments: list[Any] = []
        for x in self.numbers:
            number = operands[x]
            if isinstance(number, (Tensor, torch.fx.Node)):
                arguments += [number, 0.0]
            else:
                arguments += [None, number if isinstance(number, float) else self.numbers[x].number(number)]
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
