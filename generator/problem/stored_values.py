"""The numbers that stored operands stand for, in float64 from their bytes, and their product under scales."""

from __future__ import annotations

import itertools

import torch

from generator.language.model import Dtype
from generator.language.storage import WORDS, Storage
from generator.problem.accumulation_bounds import accumulation_error, rounding_error
from generator.problem.element_types import FP32_TINY, Operands, double, half_ulp, of_codes, scales, torch_type
from generator.problem.error_propagation import Bounded

#: Roundings of a block's sum beside those of its products: to multiply it by two scales, to subtract a zero point's
#: product, and to add it to the whole sum.
_OF_BLOCK = 5


def decoded(storage: Storage, x: torch.Tensor, read: Operands) -> torch.Tensor:
    """The elements of an operand before scales: float64, with all elements along K. `read` has what belongs to it."""
    if storage.sparse:
        return _filled(double(x), read[storage.index])
    if storage.fragments:
        return of_codes(storage.element, _in_order(storage, x))
    if storage.packed == 1:
        return double(x)
    along = x.mT if storage.letter == "a" else x
    codes = torch.stack([along & 0xF, along >> 4], dim=-2).flatten(-3, -2)
    return of_codes(storage.element, codes.mT if storage.letter == "a" else codes)


def _in_order(storage: Storage, x: torch.Tensor) -> torch.Tensor:
    """The bits of the elements (K, N) of words in fragment order."""
    *front, words, columns = x.shape
    wide, pairs = x.to(torch.int64), storage.packed // 2
    codes = torch.empty(*front, words * storage.packed, columns, dtype=torch.int64, device=x.device)
    for word in range(WORDS):
        for pair, half in itertools.product(range(pairs), range(2)):
            shift = storage.bits * pair + 16 * half
            first = 2 * WORDS * pair + 2 * word + half
            codes[..., first :: storage.together, :] = wide[..., word::WORDS, :] >> shift & (1 << storage.bits) - 1
    return codes


def _filled(kept: torch.Tensor, index: object) -> torch.Tensor:
    """The elements of which two of each four along K are kept, in order, at the positions in bytes for eight of K."""
    assert isinstance(index, torch.Tensor)
    places = torch.stack([index >> shift & 3 for shift in (0, 2, 4, 6)], -2).flatten(-3, -2)
    alone = [torch.where(places == position, kept, 0.0) for position in range(4)]
    return torch.stack([x[..., ::2, :] + x[..., 1::2, :] for x in alone], -2).flatten(-3, -2)


def product(dtype: Dtype, a: torch.Tensor, b: torch.Tensor, read: Operands, *, hardware: bool) -> Bounded:
    """The exact product of operands as they are stored, and a bound on the error of a kernel's, both float64.

    `read` has what belongs to them, such as scales and zero points, by keyword. A zero point is subtracted from a
    block's sum, as zero times the sum of A's elements.
    """
    if dtype.stored_b.scaled_alone:
        return _product_of_scaled(dtype, a, b, read, hardware=hardware)
    a64, b64 = decoded(dtype.stored_a, a, read), decoded(dtype.stored_b, b, read)
    if not dtype.scaled:
        return Bounded(a64 @ b64, accumulation_error(a64, b64, dtype, hardware=hardware))
    depth = a64.shape[-1]
    total = a64.new_zeros(*a64.shape[:-1], b64.shape[-1])
    error, magnitude = total.clone(), total.clone()
    sizes = {"a": a64.shape[-2], "b": b64.shape[-1]}
    scaled = [x for x in dtype.stored if x.block is not None]
    own = [(x, name) for x in scaled for name in (x.scale, *[x.zero] * x.zeros)]
    known = {name: _expanded(x, read[name], depth, sizes[x.letter]) for x, name in own}
    for first, last in blocks(dtype, depth):
        left, right = a64[..., first:last], b64[..., first:last, :]
        block_sum, within = left @ right, left.abs() @ right.abs()
        bound = accumulation_error(left, right, dtype, hardware=hardware)
        if dtype.zeros:
            zero = known["b_zero"][..., first : first + 1, :]
            rows = left.sum(-1, keepdim=True)
            block_sum, within = block_sum - rows * zero, within + left.abs().sum(-1, keepdim=True) * zero.abs()
        for x in scaled:
            scale = known[x.scale].narrow(-1 if x.letter == "a" else -2, first, 1)
            block_sum, within, bound = block_sum * scale, within * scale.abs(), bound * scale.abs()
        if any(storage.bytewise for storage in dtype.stored):
            # Powers of two may be so small that products with them are not normal.
            bound = bound + FP32_TINY
        total, magnitude, error = total + block_sum, magnitude + within, error + bound
    return Bounded(total, error + rounding_error(depth + _OF_BLOCK, dtype.sum, hardware=hardware) * magnitude)


def product_of_decoded(dtype: Dtype, a: torch.Tensor, b: torch.Tensor, read: Operands, *, hardware: bool) -> Bounded:
    """As `product`, for a kernel that computes each value of B in fp32, rounds it to A's type, and multiplies these."""
    if not dtype.scaled:
        return product(dtype, a, b, read, hardware=hardware)
    left, right = decoded(dtype.stored_a, a, read), values(dtype.stored_b, b, read)
    # fp32 rounds the difference and its product with the scale, and the type of A their result.
    error = right.abs() * rounding_error(2, "fp32", hardware=False) + FP32_TINY
    return _product_of_rounded(dtype, left, right, error, hardware=hardware)


def _product_of_scaled(dtype: Dtype, a: torch.Tensor, b: torch.Tensor, read: Operands, *, hardware: bool) -> Bounded:
    """As `product`, for a kernel that rounds scales to A's type, and the products of elements and these."""
    left, right = decoded(dtype.stored_a, a, read), values(dtype.stored_b, b, read)
    scale = _expanded(dtype.stored_b, read[dtype.stored_b.scale], *right.shape[-2:])
    rounded = half_ulp(scale.abs().nan_to_num(0.0, 0.0), torch_type(dtype.stored_b.multiplied))
    error = decoded(dtype.stored_b, b, read).abs() * rounded
    return _product_of_rounded(dtype, left, right, error, hardware=hardware)


def _product_of_rounded(
    dtype: Dtype, left: torch.Tensor, right: torch.Tensor, error: torch.Tensor, *, hardware: bool
) -> Bounded:
    """The product of numbers, and a bound on its error where those of B have one before they are rounded."""
    error = error + half_ulp((right.abs() + error).nan_to_num(0.0, 0.0), torch_type(dtype.stored_b.multiplied))
    error = torch.where(right.isfinite(), error, 0.0)
    multiplied = accumulation_error(left, right.abs() + error, dtype, hardware=hardware)
    return Bounded(left @ right, multiplied + left.abs() @ error)


def _expanded(storage: Storage, x: torch.Tensor | float, depth: int, extent: int) -> torch.Tensor:
    """The scale or zero point of each element of an operand, of `depth` along K and `extent` rows or columns."""
    assert isinstance(x, torch.Tensor) and storage.block is not None
    x = scales(storage.scale_types[0], x)
    along, across = (-1, -2) if storage.letter == "a" else (-2, -1)
    for dimension, block, size in ((along, storage.block.along, depth), (across, storage.block.across, extent)):
        x = x.repeat_interleave(block or max(size, 1), dimension).narrow(dimension, 0, size)
    return x


def values(storage: Storage, x: torch.Tensor, read: Operands) -> torch.Tensor:
    """The numbers that an operand stands for, float64: its elements less zero points, times scales."""
    elements = decoded(storage, x, read)
    if storage.block is None:
        return elements
    sizes = elements.shape[:-3:-1] if storage.letter == "a" else elements.shape[-2:]
    if storage.zeros:
        elements = elements - _expanded(storage, read[storage.zero], *sizes)
    return elements * _expanded(storage, read[storage.scale], *sizes)


def blocks(dtype: Dtype, depth: int) -> list[tuple[int, int]]:
    """The parts of K in which no scale changes, each from its first element to behind its last."""
    steps = [storage.block.along for storage in dtype.stored if storage.block is not None and storage.block.along]
    ends = sorted({depth, *(end for step in steps for end in range(step, depth, step))})
    return [(first, last) for first, last in zip([0, *ends], ends) if last > first]
