"""How far a kernel's accumulator may be from the exact A @ B: worst-case bounds, from the accumulator and K alone."""

from __future__ import annotations

import torch

from generator.language.model import Dtype
from generator.language.vocabulary import ELEMENTS
from generator.verify.element_types import FP16_ROUNDOFF, FP32_ROUNDOFF

_ROUNDOFF = {"fp32": FP32_ROUNDOFF, "fp16": FP16_ROUNDOFF}

#: tf32 keeps 10 explicit bits, and the matrix unit drops the rest of fp32 without rounding.
_TF32 = 2.0**-10

#: Hopper's fp8 products are aligned to the largest of an instruction's sum and lose what lies below 13 bits behind its
#: leading one; DeepSeek-V3 (arXiv 2412.19437), section 3.3.2, measured it. An instruction adds 32 products.
_SHORT = 2.0**-13
_INSTRUCTION = 32
#: `precision: full` promotes to fp32 at least this often along K.
_PROMOTION = 128


def accumulation_error(a: torch.Tensor, b: torch.Tensor, dtype: Dtype, *, hardware: bool) -> torch.Tensor:
    """A bound (M, N) on the error of a kernel's accumulator for float64 `a` (M, K) and `b` (K, N), each one or a batch.

    A sum of K products in any order, each operation off by u, is within (K u / (1 - K u)) |A| |B| (Higham, section
    3.1); one term more is for products that are rounded themselves. Matrix units truncate where IEEE rounds: 2u.
    """
    magnitude = a.abs() @ b.abs()
    if not ELEMENTS[dtype.acc].floating:
        return torch.zeros_like(magnitude)
    unit = _ROUNDOFF[dtype.acc] * (2 if hardware and dtype.precision != "ieee" else 1)
    terms = a.shape[-1] + 1
    if not hardware:
        return _gamma(terms, unit) * magnitude
    match dtype.precision:
        case "tf32":
            return (2 * _TF32 + _TF32**2 + _gamma(terms, unit)) * magnitude
        case "tf32x3":
            # Each operand is the sum of two tf32 numbers up to 2**-20; the product of the two smaller is left out.
            return (3 * _TF32**2 + _gamma(3 * terms, unit)) * magnitude
        case "full":
            return _gamma(terms, unit) * magnitude + _short_accumulator(a, b, _PROMOTION)
        case "fast":
            return _gamma(terms, unit) * magnitude + _short_accumulator(a, b, a.shape[-1])
    return _gamma(terms, unit) * magnitude


def truncated(x: torch.Tensor) -> torch.Tensor:
    """An fp32 tensor with the bits that tf32 has."""
    return (x.view(torch.int32) & -0x2000).view(torch.float32)


def _gamma(terms: int, unit: float) -> float:
    """Higham's gamma: what `terms` roundings of `unit` each can add up to, relatively."""
    return terms * unit / (1 - terms * unit) if terms * unit < 1 else float("inf")


def _short_accumulator(a: torch.Tensor, b: torch.Tensor, promotion: int) -> torch.Tensor:
    """What the fp8 matrix unit loses: of each term of each instruction, what lies below 13 bits of the largest.

    Of the sum, what lies below 13 bits of its own: it may be larger than each term.
    """
    error = a.new_zeros(*a.shape[:-1], b.shape[-1])
    partial = torch.zeros_like(error)
    for start in range(0, a.shape[-1], _INSTRUCTION):
        if start % promotion == 0:
            partial = torch.zeros_like(error)
        left, right = a[..., start : start + _INSTRUCTION], b[..., start : start + _INSTRUCTION, :]
        terms = left.abs()[..., None] * right.abs()[..., None, :, :]
        grid = _grid(torch.maximum(terms.amax(-2), partial.abs() + error))[..., None, :]
        # A product of two fp8 numbers has at most 8 bits: one of 2**8 steps of the grid or more is kept whole.
        lost = torch.where(terms < 256 * grid, torch.minimum(terms, grid), 0.0)
        error += lost.sum(-2) + grid[..., 0, :]
        partial = partial + left @ right
        error += _grid(partial.abs() + error)
    return error


def _grid(largest: torch.Tensor) -> torch.Tensor:
    """The step of 13 bits behind the leading one of a number."""
    _, exponent = torch.frexp(largest)
    return torch.ldexp(torch.full_like(largest, _SHORT), exponent - 1)
