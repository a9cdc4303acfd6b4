"""Operands in larger buffers with poisoned margins, which expose reads and writes outside the operand."""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import torch

from generator.problem.element_types import UNSIGNED_ZERO

#: All bits set is NaN in every floating type with a negative zero, with a payload that arithmetic never produces.
FLOAT_POISON = 0xFF
#: The only NaN of 8 bits without a negative zero.
UNSIGNED_ZERO_POISON = 0x80
#: A byte that gives neither 0 nor -1 in any integer type.
INTEGER_POISON = 0x5A

#: Margins are whole multiples of this many bytes, so that an operand is as aligned as its buffer.
_ALIGNMENT = 256

#: The largest buffer, in bytes, that is filled with poison. Larger ones are virtual memory and mostly never touched.
LARGEST_POISONED = 1 << 28

# Python 3.11 and 3.12 do not name the flag on every platform; the value is Linux's.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class NoMemory(Exception):
    """A case needs more memory than is available."""


#: The same, also as torch says it where other processes use the GPU: it says nothing about a kernel.
SHORT_OF_MEMORY = (NoMemory, torch.OutOfMemoryError)


def shortage(error: Exception) -> str:
    """What such an error says of the memory that was asked for, without what torch says of other processes."""
    return str(error).partition(" GPU ")[0]


@dataclass
class PoisonedOperand:
    """One operand: `view` is the launcher's argument, `storage` all bytes of its buffer, `before` a copy of these.

    `before` is None for buffers without poison.
    """

    name: str
    view: torch.Tensor
    storage: torch.Tensor
    before: torch.Tensor | None

    def changed(self) -> str | None:
        """A message if an input or its margins were written to, else None; None without poison."""
        count = self._written()
        return f"{count} bytes of the input {self.name} or its margins were written" if count else None

    def margins_changed(self) -> str | None:
        """A message if memory outside the elements of an output was written to, else None; resets its elements."""
        if self.before is None:
            return None
        before = self.before.view(self.view.dtype)
        self.view.copy_(before.as_strided(self.view.shape, self.view.stride(), self.view.storage_offset()))
        count = self._written()
        return f"{count} bytes outside the elements of {self.name} were written" if count else None

    def _written(self) -> int:
        """How many bytes are other ones than before; 0 without poison."""
        return 0 if self.before is None else int((self.storage != self.before).sum())


def poison_byte(dtype: torch.dtype) -> int:
    """The byte that a buffer of `dtype` is filled with."""
    if dtype in UNSIGNED_ZERO:
        return UNSIGNED_ZERO_POISON
    return FLOAT_POISON if dtype.is_floating_point else INTEGER_POISON


def poison(view: torch.Tensor) -> None:
    """Fill every element of `view` with poison, whatever its strides."""
    bits = _bits(view)
    pattern = torch.full((view.element_size(),), poison_byte(view.dtype), dtype=torch.uint8, device=view.device)
    bits.fill_(pattern.view(bits.dtype).item())


def unwritten(view: torch.Tensor) -> torch.Tensor:
    """Whether each element of `view` still has its poison: a boolean tensor of its shape."""
    fresh = torch.empty_like(view, memory_format=torch.contiguous_format)
    poison(fresh)
    return _bits(view.contiguous()) == _bits(fresh)


def _bits(view: torch.Tensor) -> torch.Tensor:
    """The same elements as integers of their size."""
    return view.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[view.element_size()])


def place(
    name: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    *,
    offset: int = 0,
    margin: int = 0,
) -> PoisonedOperand:
    """An operand of `shape`; every byte of it and of its margins has poison, unless it is too large.

    `strides`, `offset` and `margin` (on either side) are in elements. Raises `NoMemory` if allocation fails.
    """
    width = dtype.itemsize
    extent = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1 if 0 not in shape else 0
    before = -(-margin * width // _ALIGNMENT) * _ALIGNMENT
    size = before + (offset + extent + margin) * width
    storage = _allocate(-(-size // _ALIGNMENT) * _ALIGNMENT, device)
    poisoned = storage.numel() <= LARGEST_POISONED
    if poisoned:
        storage.fill_(poison_byte(dtype))
    view = storage.view(dtype).as_strided(shape, strides, before // width + offset)
    return PoisonedOperand(name, view, storage, storage.clone() if poisoned else None)


def _allocate(size: int, device: torch.device) -> torch.Tensor:
    if device.type == "cpu" and size > LARGEST_POISONED:
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        except (OSError, ValueError, OverflowError) as error:
            raise NoMemory(f"{size >> 20} MiB of virtual memory: {error}") from None
        return torch.frombuffer(memory, dtype=torch.uint8)
    if device.type == "cuda" and size > (free := torch.cuda.mem_get_info(device)[0]):
        raise NoMemory(f"{size >> 20} MiB needed on {device}, and {free >> 20} MiB are free")
    return torch.empty(max(size, _ALIGNMENT), dtype=torch.uint8, device=device)


def fill(operand: PoisonedOperand, values: torch.Tensor) -> None:
    """Write `values` into the operand and update `before`.

    `values` has the operand's shape, or (1, rows, columns) if the whole batch shares one matrix.
    """
    operand.view[: len(values)].copy_(values)
    if operand.before is not None:
        operand.before = operand.storage.clone()
