"""Random values of operands, plain or stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from generator.language.model import Dtype
from generator.language.storage import Storage

#: The values of a tensor of a shape and a type.
Recipe = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


class Draw:
    """Draws values by `generator` on its device, as they are in use; None draws none, for the device "meta"."""

    def __init__(self, generator: torch.Generator | None, device: str = "cpu") -> None:
        self.generator, self.device = generator, device

    def stored(self, dtype: Dtype, spread: float = 1.0) -> dict[str, Recipe]:
        """How A, B and what belongs to them, such as scales, are made, by keyword.

        The product has the magnitude that it has of two operands of standard deviation `spread`, except that integers
        without scales have their whole range.
        """
        if dtype.plain:
            return {x.letter: self.elements(x, spread) for x in dtype.stored}
        recipes, own, rest = dict[str, Recipe](), dict[str, float](), spread * spread
        scaled = [x for x in dtype.stored if x.block is not None]
        for x in reversed(dtype.stored):
            magnitude = (spread if scaled or x.sparse else rest) if x.bits == 16 or x.sparse else _magnitude_of(x)
            recipes[x.letter] = self.elements(x, magnitude)
            if x.sparse:
                recipes[x.index] = lambda shape, dtype: self.positions(shape)
            own[x.letter], rest = spread / magnitude, rest / magnitude
        for x in scaled:
            recipes[x.scale] = partial(self.scales, x, rest if len(scaled) == 1 else own[x.letter])
            if x.zeros:
                recipes[x.zero] = partial(self.zero_points, x)
        return recipes

    def elements(self, storage: Storage, deviation: float) -> Recipe:
        """How the elements of an operand are made: floating ones by their deviation, others of any bits."""
        return self.plain if is_of_bits(storage) else partial(self.plain, deviation=deviation)

    def plain(self, shape: tuple[int, ...], dtype: torch.dtype, deviation: float = 1.0) -> torch.Tensor:
        """Normal values of a standard deviation; of an integer type uniform ones over its range (`range_of`)."""
        if not dtype.is_floating_point:
            return self.whole(shape, dtype, *range_of(dtype))
        wide = torch.float32 if dtype.itemsize == 1 else dtype
        values = torch.randn(shape, dtype=wide, device=self.device, generator=self.generator)
        return values.mul_(deviation).to(dtype)

    def whole(self, shape: tuple[int, ...], dtype: torch.dtype, least: int, most: int) -> torch.Tensor:
        """Uniform integers from `least` to `most`."""
        return torch.randint(least, most + 1, shape, dtype=dtype, device=self.device, generator=self.generator)

    def scales(self, storage: Storage, magnitude: float, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Scales between half and one and a half times `magnitude`."""
        return ((torch.rand(shape, device=self.device, generator=self.generator) + 0.5) * magnitude).to(dtype)

    def zero_points(self, storage: Storage, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Whole numbers that an element may have."""
        return self.whole(shape, dtype, 0, 2**storage.bits - 1)

    def positions(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Bytes of positions, with two pairs of ascending ones among four each."""
        pairs = [first | second << 2 for second in range(4) for first in range(second)]
        low, high = (self.whole(shape, torch.int64, 0, len(pairs) - 1) for _ in range(2))
        known = torch.tensor(pairs, device=self.device)
        return (known[low] | known[high] << 4).to(torch.uint8)


def range_of(dtype: torch.dtype) -> tuple[int, int]:
    """The integers that operands have: those of the type; in 32 bits those of which sums fit, and fp32 has not all."""
    fits = min(torch.iinfo(dtype).max, 2**28 - 1)
    return max(torch.iinfo(dtype).min, -fits - 1), fits


def is_of_bits(storage: Storage) -> bool:
    """Whether an operand's elements are integers, or packed, so that any bits are some of them."""
    return not storage.sparse and not (storage.element.floating and storage.packed == 1)


def _magnitude_of(storage: Storage) -> float:
    """The root mean square of the elements of an operand of less than 16 bits, as `Draw.elements` draws them."""
    if not is_of_bits(storage):
        return 1.0
    signed = storage.word == "int4" or storage.element.floating or storage.bits == 8
    return math.hypot(2.0**storage.bits / math.sqrt(12), 0.0 if signed else 2.0 ** (storage.bits - 1))
