"""An invalid call, and the changes that make it of a valid one: to one operand, or to one size in all that have it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from generator.plan.contract_call import call
from generator.plan.kernels import Kernel
from generator.problem.poisoned_operands import place
from generator.verify.case_sizes import Case, sizes_of

#: The keywords of a call, operands included.
Call = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """A call that must raise `error` with every one of `words` in the message."""

    name: str
    reason: str
    words: tuple[str, ...]
    #: Changes the keywords of a valid call, operands included, so that the call is invalid.
    spoil: Callable[[Call], None]
    error: type[Exception] = ValueError
    #: Whether `refusal()` must report it too: the contract allows the operands, but this kernel does not support them.
    sibling: bool = False
    #: The context of the call, such as another version of Triton.
    under: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    #: Whether the operands have memory. If not, they are on the device "meta", and the launcher is made to take them.
    in_memory: bool = True


def changed(name: str, change: Callable[[Any], Any] | None) -> Callable[[Call], None]:
    """Replace an operand of a call with `change` applied to it, or leave it out."""

    def spoil(call: Call) -> None:
        value = call.pop(name)
        if change is not None:
            call[name] = change(value)

    return spoil


def longer(x: torch.Tensor) -> torch.Tensor:
    """A matrix, or a batch, with one more row."""
    return torch.cat([x, x[..., :1, :]], -2)


def other_layout(x: torch.Tensor) -> torch.Tensor:
    """The same matrix, contiguous along its other dimension."""
    return x.mT.contiguous().mT if x.stride(-1) == 1 else x.contiguous()


def too_near(out: torch.Tensor) -> torch.Tensor:
    """`out` with a batch stride that is one element too small."""
    reach = sum((size - 1) * stride for size, stride in zip(out.shape[1:], out.stride()[1:]))
    return out.as_strided(out.shape, (reach, *out.stride()[1:]))


def overlapping(out: torch.Tensor) -> torch.Tensor:
    """`out` with all lines at the address of the first."""
    return out[..., :1, :].expand_as(out) if out.stride(-1) == 1 else out[..., :1].expand_as(out)


def crowded(out: torch.Tensor) -> torch.Tensor:
    """`out` with a leading dimension that is one element too small."""
    *front, m, n = out.shape
    lines = (n - 1, 1) if out.stride(-1) == 1 else (1, m - 1)
    return out.as_strided(out.shape, (*(m * n for _ in front), *lines))


def resized(
    kernel: Kernel, case: Case, dimension: str, size: int, *, only: Sequence[str] = (), **changes: Any
) -> Callable[[Call], None]:
    """Change the size of one dimension in every operand that has it; `changes` are further keywords.

    With `only` the others stay as they are.
    """
    divided = kernel.variant.products.divided
    described = call(kernel.variant)
    name = described.named(dimension.upper())
    sizes = {**sizes_of(kernel.variant, case), "T" if name == divided else name: size}

    def spoil(given: Call) -> None:
        for x in (described.a, described.b, *described.keywords, *described.results):
            if only and x.name not in only:
                continue
            if x.layout:
                given[x.name] = _empty(given[x.name], x.sizes(sizes), x.layout)
            elif x.extents not in ((), ("1",)):
                given[x.name] = given[x.name].new_ones(x.sizes(sizes))
        given.update(changes)

    return spoil


def _empty(like: torch.Tensor, shape: tuple[int, ...], layout: str) -> torch.Tensor:
    *front, rows, columns = shape
    return like.new_empty((*front, columns, rows)).mT if layout == "column" else like.new_empty(shape)


def moved(layout: str, *, offset: int = 0, stretch: int = 0, apart: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy at `offset` elements past an aligned address; the leading dimension is `stretch` past a multiple of 16.

    The batch stride is `apart` elements past a multiple of 16.
    """

    def move(x: torch.Tensor) -> torch.Tensor:
        *front, rows, columns = x.shape
        lines = (columns, rows) if layout == "column" else (rows, columns)
        leading = -(-lines[1] // 16) * 16 + stretch
        strides = (1, leading) if layout == "column" else (leading, 1)
        steps = (-(-lines[0] * leading // 16) * 16 + apart for _ in front)
        operand = place("copy", tuple(x.shape), (*steps, *strides), x.dtype, x.device, offset=offset)
        operand.view.copy_(x)
        return operand.view

    return move


def on_device(device: str, spoil: Callable[[Call], None] = lambda call: None) -> Callable[[Call], None]:
    """Move every tensor to a device, before `spoil`."""

    def both(call: Call) -> None:
        call.update({name: value.to(device) for name, value in call.items() if isinstance(value, torch.Tensor)})
        spoil(call)

    return both


def aligned(spoil: Callable[[Call], None]) -> Callable[[Call], None]:
    """After `spoil`, restore leading dimensions of a multiple of 16 elements: only the extent remains invalid."""

    def both(call: Call) -> None:
        spoil(call)
        for name, value in call.items():
            if isinstance(value, torch.Tensor) and value.dim() >= 2:
                call[name] = moved("row" if value.stride(-1) == 1 else "column")(value)

    return both
