"""The numbers that stored operands stand for, in float64 from their bytes, and their product under scales."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from generator.language.model import Dtype
from generator.language.storage import Storage
from generator.verify.accumulation_bounds import accumulation_error, rounding_error
from generator.verify.element_types import FP32_TINY, half_ulp, torch_type

#: Roundings of a block's sum beside those of its products: to multiply it by two scales, to subtract a zero point's
#: product, and to add it to the whole sum.
_OF_BLOCK = 5
#: The magnitudes of numbers with a sign, two bits of an exponent and one of a mantissa (OCP MX 1.0).
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decoded(storage: Storage, x: torch.Tensor, read: Mapping[str, torch.Tensor | float]) -> torch.Tensor:
    """The elements of an operand before scales: float64, with all elements along K. `read` has what belongs to it."""
    if storage.sparse:
        return _filled(x.double(), read[storage.index])
    if storage.packed == 1:
        return x.double()
    along = x.mT if storage.letter == "a" else x
    halves = torch.stack([along & 0xF, along >> 4], dim=-2).to(torch.int64)
    values = halves.reshape(*along.shape[:-2], 2 * along.shape[-2], along.shape[-1])
    values = values.mT if storage.letter == "a" else values
    if storage.word == "int4":
        values = torch.where(values >= 8, values - 16, values)
    if storage.kind == "e2m1":
        return values.new_tensor(_E2M1, dtype=torch.float64)[values & 7] * torch.where(values < 8, 1.0, -1.0).double()
    return values.double()


def scales(storage: Storage, x: torch.Tensor) -> torch.Tensor:
    """Scales or zero points in float64."""
    if storage.scale_types[0] != "e8m0":
        return x.double()
    exponents = x.view(torch.uint8).to(torch.int64)
    found = torch.ldexp(torch.ones(x.shape, dtype=torch.float64, device=x.device), exponents - 127)
    return torch.where(exponents == 255, torch.nan, found)


def positions(shape: tuple[int, ...], generator: torch.Generator | None, device: str = "cpu") -> torch.Tensor:
    """Random bytes of positions, with two pairs of ascending ones among four each."""
    pairs = torch.tensor([first | second << 2 for second in range(4) for first in range(second)], device=device)
    low, high = (pairs[torch.randint(len(pairs), shape, device=device, generator=generator)] for _ in range(2))
    return (low | high << 4).to(torch.uint8)


def _filled(kept: torch.Tensor, index: object) -> torch.Tensor:
    """The elements of which two of each four along K are kept, in order, at the positions in bytes for eight of K."""
    assert isinstance(index, torch.Tensor)
    places = torch.stack([index >> shift & 3 for shift in (0, 2, 4, 6)], -2).flatten(-3, -2)
    alone = [torch.where(places == place, kept, 0.0) for place in range(4)]
    return torch.stack([x[..., ::2, :] + x[..., 1::2, :] for x in alone], -2).flatten(-3, -2)


def product(
    dtype: Dtype, a: torch.Tensor, b: torch.Tensor, read: Mapping[str, torch.Tensor | float], *, hardware: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact product of operands as they are stored, and a bound on the error of a kernel's, both float64.

    `read` has what belongs to them, such as scales and zero points, by keyword. A zero point is subtracted from a
    block's sum, as zero times the sum of A's elements.
    """
    a64, b64 = decoded(dtype.stored_a, a, read), decoded(dtype.stored_b, b, read)
    if not dtype.scaled:
        return a64 @ b64, accumulation_error(a64, b64, dtype, hardware=hardware)
    depth = a64.shape[-1]
    total = a64.new_zeros(*a64.shape[:-1], b64.shape[-1])
    error, magnitude = total.clone(), total.clone()
    for first, last in blocks(dtype, depth):
        left, right = a64[..., first:last], b64[..., first:last, :]
        found, within = left @ right, left.abs() @ right.abs()
        bound = accumulation_error(left, right, dtype, hardware=hardware)
        if dtype.zeros:
            zero = factor(dtype.stored_b, read["b_zero"], first, b64.shape[-1])
            rows = left.sum(-1, keepdim=True)
            found, within = found - rows * zero, within + left.abs().sum(-1, keepdim=True) * zero.abs()
        for storage, extent in ((dtype.stored_a, a64.shape[-2]), (dtype.stored_b, b64.shape[-1])):
            if storage.block is not None:
                scale = factor(storage, read[storage.scale], first, extent)
                found, within, bound = found * scale, within * scale.abs(), bound * scale.abs()
        if any(storage.bytewise for storage in dtype.stored):
            # Powers of two may be so small that products with them are not normal.
            bound = bound + FP32_TINY
        total, magnitude, error = total + found, magnitude + within, error + bound
    return total, error + rounding_error(depth + _OF_BLOCK, dtype.sum, hardware=hardware) * magnitude


def product_of_decoded(
    dtype: Dtype, a: torch.Tensor, b: torch.Tensor, read: Mapping[str, torch.Tensor | float], *, hardware: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `product`, for a kernel that computes each value of B in fp32, rounds it to A's type, and multiplies these."""
    if not dtype.scaled:
        return product(dtype, a, b, read, hardware=hardware)
    left, right = decoded(dtype.stored_a, a, read), values(dtype.stored_b, b, read)
    # fp32 rounds the difference and its product with the scale, and the type of A their result.
    error = right.abs() * rounding_error(2, "fp32", hardware=False) + FP32_TINY
    error += half_ulp((right.abs() + error).nan_to_num(0.0, 0.0), torch_type(dtype.stored_b.multiplied))
    error = torch.where(right.isfinite(), error, 0.0)
    multiplied = accumulation_error(left, right.abs() + error, dtype, hardware=hardware)
    return left @ right, multiplied + left.abs() @ error


def factor(storage: Storage, x: object, first: int, extent: int) -> torch.Tensor:
    """The scales or zero points of the blocks that hold element `first` along K, for each row of A or column of B."""
    assert isinstance(x, torch.Tensor) and storage.block is not None
    block = storage.block
    at = first // block.along if block.along else 0
    line = x[..., :, at] if storage.letter == "a" else x[..., at, :]
    line = scales(storage, line).repeat_interleave(block.across or max(extent, 1), -1)[..., :extent]
    return line[..., :, None] if storage.letter == "a" else line[..., None, :]


def values(storage: Storage, x: torch.Tensor, read: Mapping[str, torch.Tensor | float]) -> torch.Tensor:
    """The numbers that an operand stands for, float64: its elements less zero points, times scales."""
    found = decoded(storage, x, read)
    if storage.block is None:
        return found
    along, across = (-1, -2) if storage.letter == "a" else (-2, -1)

    def spread(each: torch.Tensor | float) -> torch.Tensor:
        assert isinstance(each, torch.Tensor) and storage.block is not None
        each = scales(storage, each)
        for dimension, size in ((along, storage.block.along), (across, storage.block.across)):
            extent = found.shape[dimension]
            each = each.repeat_interleave(size or max(extent, 1), dimension).narrow(dimension, 0, extent)
        return each

    if storage.zeros:
        found = found - spread(read[storage.zero])
    return found * spread(read[storage.scale])


def blocks(dtype: Dtype, depth: int) -> list[tuple[int, int]]:
    """The parts of K in which no scale changes, each from its first element to behind its last."""
    steps = [storage.block.along for storage in dtype.stored if storage.block is not None and storage.block.along]
    ends = sorted({depth, *(end for step in steps for end in range(step, depth, step))})
    return [(first, last) for first, last in zip([0, *ends], ends) if last > first]
