"""Tensors that have shape, strides, device and alignment but no memory, by which a call is worked out."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from . import private

#: Strides and an offset, in elements.
Placing: TypeAlias = tuple[tuple[int, ...], int]

# Whether torch has what they are made of; else tensors have memory.
_KNOWN = None not in (private.DispatchMode, private.make_wrapper, private.without_functions)


def tensor(
    dtype: torch.dtype, device: torch.device, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> Tensor:
    """A tensor that begins `offset` elements behind an aligned address."""
    if _KNOWN:
        return torch.empty(0, dtype=dtype, device=device).as_strided(shape, strides, offset)
    reach = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides) if size)
    return torch.empty(reach, dtype=dtype, device=device).as_strided(shape, strides, offset)


def placings(extents: tuple[int, ...], unit: int | None, size: int, name: str) -> list[Placing]:
    """Strides and offset, in elements of `size` bytes: for aligned rows, for a contiguous operand, and for all others.

    Two of the others differ in what Triton specialises on, in whether a descriptor can address them, or, for A and B,
    in whether their rows are whole lines of the L2.
    """
    if len(extents) < 2:
        ones = (1,) * len(extents)
        return [(ones, 0), (ones, 0), (ones, 1)]
    *front, rows, columns = extents
    multiplied = name in ("a", "b")
    aligned: list[Placing] = []
    others: dict[tuple[object, ...], Placing] = {}
    for inner in (-1, -2) if unit is None else (unit - len(extents),):
        width, height = (max(columns, 1), rows) if inner == -1 else (max(rows, 1), columns)

        def strides(lead: int, apart: int, inner: int = inner) -> tuple[int, ...]:
            return (*([apart] if front else []), *((lead, 1) if inner == -1 else (1, lead)))

        line = -(-width // 128) * 128
        aligned.append((strides(line, line * height), 0))
        for lead, offset in itertools.product(range(width, width + 256), (0, 1)):
            least = lead * height
            for apart in (least, -(-least // 16) * 16, least | 1, *([0] if multiplied else [])) if front else (0,):
                numbers = (lead, apart) if front else (lead,)
                known = [(number == 1, number % 16 == 0) for number in numbers]
                addressed = not offset and all(number * size % 16 == 0 for number in numbers)
                lines = multiplied and (lead * size % 128 == 0, apart == 0)
                others.setdefault((inner, offset, *known, addressed, lines), (strides(lead, apart), offset))
    return [aligned[0], *others.values()]


def placings_of_scales(extents: tuple[int, ...]) -> list[Placing]:
    """As `placings`: scales that are contiguous along either dimension, with strides of whole lines or their own."""
    *front, rows, columns = extents
    lines = [-(-size // 16) * 16 for size in (rows, columns)]

    def strides(*inner: int) -> tuple[int, ...]:
        return (*(max(inner) * max(rows, columns) for _ in front), *inner)

    placed = [strides(lines[1], 1), strides(max(columns, 1), 1), strides(1, lines[0]), strides(1, max(rows, 1))]
    return [(each, 0) for each in placed]


class StandIn(Tensor):
    """A tensor without memory: `meta`, as if it were on `device`."""

    # A kernel's `plan` accepts no other subclass.
    stand_in: bool = True
    __torch_function__ = private.without_functions

    meta: Tensor

    @staticmethod
    def __new__(cls: type[StandIn], meta: Tensor, device: torch.device | None) -> StandIn:  # noqa: PYI034
        made: StandIn = private.make_wrapper(
            cls, meta.shape, meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=device
        )
        made.meta = meta
        return made

    def data_ptr(self) -> int:
        # Under a mode of fake tensors `meta` is one, whose address torch warns about.
        return int(self.storage_offset()) * self.element_size() if self.numel() else 0

    @functools.cached_property
    def mT(self) -> Tensor:  # type: ignore[override]
        # Each kernel that is asked whether it accepts the operand transposes it.
        return super().mT

    T = property(lambda self: self.mT)  # pyright: ignore[reportAssignmentType]

    def view(self, dtype: torch.dtype) -> StandIn:  # type: ignore[override]
        # Kernels view nothing in another shape.
        return StandIn(self.meta.view(dtype), self.device)

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{function} needs memory, which a stand-in does not have")


def mode() -> contextlib.AbstractContextManager[object]:
    """Within it, new tensors have no memory."""
    return _mode()() if _KNOWN else contextlib.nullcontext()


@functools.cache
def _mode() -> Any:
    class Memoryless(private.DispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Otherwise torch imports its compiler, which takes seconds.
            return False

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            first, options = arguments[0], dict(options or {})
            device = options.get("device", getattr(first, "device", None))
            if "device" in options:
                options["device"] = "meta"
            elif isinstance(first, StandIn):
                first = first.meta
            made = function(first, *arguments[1:], **options)
            return StandIn(made, device) if isinstance(made, Tensor) else made

    return Memoryless
