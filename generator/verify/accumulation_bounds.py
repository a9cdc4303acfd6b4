"""Worst-case bounds on the error of a kernel's accumulator against the exact A @ B, from its type and K alone."""

from __future__ import annotations

import torch

from generator.language.dtypes import ELEMENTS
from generator.language.model import Dtype
from generator.verify.element_types import FP16_ROUNDOFF, FP32_ROUNDOFF

_ROUNDOFF = {"fp32": FP32_ROUNDOFF, "fp16": FP16_ROUNDOFF}

#: tf32 has 10 explicit mantissa bits; the matrix unit truncates the other bits of fp32 without rounding.
_TF32 = 2.0**-10

#: Hopper aligns the fp8 products of an instruction to the largest term of its sum and truncates all bits more than 13
#: positions below the leading one: measured in DeepSeek-V3 (arXiv 2412.19437), section 3.3.2. An instruction adds 32
#: products.
_SHORT = 2.0**-13
_INSTRUCTION = 32
#: `precision: full` promotes to fp32 at least this often along K.
_PROMOTION = 128


def accumulation_error(a: torch.Tensor, b: torch.Tensor, dtype: Dtype, *, hardware: bool) -> torch.Tensor:
    """A bound on the absolute error of a kernel's accumulator: float64 (M, N), or (B, M, N) for a batch.

    `a` (M, K) and `b` (K, N) are float64, each a matrix or a batch of them. A sum of K products in any order with unit
    roundoff u is within (K u / (1 - K u)) |A| |B| of the exact one (Higham, section 3.1); one more term accounts for
    products that are rounded themselves. Matrix units truncate where IEEE 754 rounds, so that u doubles.
    """
    magnitude = a.abs() @ b.abs()
    if not ELEMENTS[dtype.acc].floating:
        return torch.zeros_like(magnitude)
    unit = _ROUNDOFF[dtype.acc] * (2 if hardware and dtype.precision != "ieee" else 1)
    terms = a.shape[-1] + 1
    if not hardware:
        return _gamma(terms, unit) * magnitude
    # Operands of 8 bits that are converted have a matrix unit of 16.
    match dtype.precision if dtype.stored_a.multiplied_bits != 16 else None:
        case "tf32":
            return (2 * _TF32 + _TF32**2 + _gamma(terms, unit)) * magnitude
        case "tf32x3":
            # Each operand is the sum of two tf32 numbers up to 2**-20; the product of the two smaller ones is omitted.
            return (3 * _TF32**2 + _gamma(3 * terms, unit)) * magnitude
        case "full":
            return _gamma(terms, unit) * magnitude + _short_accumulator(a, b, _PROMOTION)
        case "fast":
            return _gamma(terms, unit) * magnitude + _short_accumulator(a, b, a.shape[-1])
    return _gamma(terms, unit) * magnitude


def rounding_error(terms: int, sum: str, *, hardware: bool) -> float:
    """The largest relative error of so many roundings to the type of a sum, by a matrix unit or not."""
    return _gamma(terms, _ROUNDOFF[sum] * (2 if hardware else 1))


def truncated(x: torch.Tensor) -> torch.Tensor:
    """An fp32 tensor truncated to the bits of tf32."""
    return (x.view(torch.int32) & -0x2000).view(torch.float32)


def _gamma(terms: int, unit: float) -> float:
    """Higham's gamma: the largest relative error of `terms` roundings of at most `unit` each."""
    return terms * unit / (1 - terms * unit) if terms * unit < 1 else float("inf")


def _short_accumulator(a: torch.Tensor, b: torch.Tensor, promotion: int) -> torch.Tensor:
    """The truncation error of the fp8 matrix unit: bits of each term more than 13 below the instruction's largest.

    The sum is truncated to 13 bits of its own, since it may be larger than each term.
    """
    error = a.new_zeros(*a.shape[:-1], b.shape[-1])
    partial = torch.zeros_like(error)
    for start in range(0, a.shape[-1], _INSTRUCTION):
        if start % promotion == 0:
            partial = torch.zeros_like(error)
        left, right = a[..., start : start + _INSTRUCTION], b[..., start : start + _INSTRUCTION, :]
        terms = left.abs()[..., None] * right.abs()[..., None, :, :]
        grid = _grid(torch.maximum(terms.amax(-2), partial.abs() + error))[..., None, :]
        # A product of two fp8 numbers has at most 8 bits: one of at least 2**8 steps of the grid is exact.
        lost = torch.where(terms < 256 * grid, torch.minimum(terms, grid), 0.0)
        error += lost.sum(-2) + grid[..., 0, :]
        partial = partial + left @ right
        error += _grid(partial.abs() + error)
    return error


def _grid(largest: torch.Tensor) -> torch.Tensor:
    """The unit in the 13th bit below the leading one of a number."""
    _, exponent = torch.frexp(largest)
    return torch.ldexp(torch.full_like(largest, _SHORT), exponent - 1)
