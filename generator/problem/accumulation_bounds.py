"""How far a kernel's accumulator may be from the exact A @ B: at worst for given operands, usually for random ones."""

from __future__ import annotations

import math

import torch

from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype
from generator.problem.element_types import roundoff

#: 8-bit results are compared after quantisation: only the few values near a rounding boundary differ, by one spacing.
_QUANTISED_FLOAT, _QUANTISED_INTEGER = 2.0**-6, 2.0**-7

#: tf32 has 10 explicit mantissa bits; the matrix unit truncates the other bits of fp32 without rounding.
_TF32 = 2.0**-10

#: Hopper aligns the fp8 products of an instruction to the largest term of its sum and truncates all bits more than 13
#: positions below the leading one: measured in DeepSeek-V3 (arXiv 2412.19437), section 3.3.2. An instruction adds 32
#: products.
_SHORT = 2.0**-13
_INSTRUCTION = 32
#: `precision: full` promotes to fp32 at least this often along K.
_PROMOTION = 128
#: The usual relative error of a product before it is summed: tf32 has 11 significant bits per operand, three tf32
#: products have about 22.
_PRODUCT = {"tf32": _TF32, "tf32x3": _TF32**2, "full": _SHORT, "fast": _SHORT}
#: The tolerance in standard deviations of the error.
_FACTOR = 4.0


def accumulation_error(a: torch.Tensor, b: torch.Tensor, dtype: Dtype, *, hardware: bool) -> torch.Tensor:
    """A bound on the absolute error of a kernel's accumulator: float64 (M, N), or (B, M, N) for a batch.

    `a` (M, K) and `b` (K, N) are float64, each a matrix or a batch of them. A sum of K products in any order with unit
    roundoff u is within (K u / (1 - K u)) |A| |B| of the exact one (Higham, section 3.1); one more term accounts for
    products that are rounded themselves. Matrix units truncate where IEEE 754 rounds, so that u doubles.
    """
    magnitude = a.abs() @ b.abs()
    if not ELEMENTS[dtype.acc].floating:
        return torch.zeros_like(magnitude)
    unit = roundoff(dtype.acc) * (2 if hardware and dtype.precision != "ieee" else 1)
    terms = a.shape[-1] + 1
    # Operands of 8 bits that are converted have a matrix unit of 16.
    match dtype.precision if hardware and dtype.stored_a.multiplied_bits != 16 else None:
        case "tf32":
            return (2 * _TF32 + _TF32**2 + _gamma(terms, unit)) * magnitude
        case "tf32x3":
            # Each operand is the sum of two tf32 numbers up to 2**-20; the product of the two smaller ones is omitted.
            return (3 * _TF32**2 + _gamma(3 * terms, unit)) * magnitude
        case "full" | "fast" as precision:
            promotion = _PROMOTION if precision == "full" else a.shape[-1]
            return _gamma(terms, unit) * magnitude + _short_accumulator(a, b, promotion)
    return _gamma(terms, unit) * magnitude


def _rounding(word: str) -> float:
    """The relative error of rounding to a type: the unit roundoff, 0 of integers that hold every sum."""
    if word in QUANTISED:
        return _QUANTISED_FLOAT if ELEMENTS[word].floating else _QUANTISED_INTEGER
    return roundoff(word) if ELEMENTS[word].floating else 0.0


def tolerance(dtype: Dtype, k: int) -> float:
    """The largest relative error, in the Frobenius norm, of a right product of standard normal operands.

    It is the sum of the errors of rounding the output, rounding the products, and summing. The error of a sum grows as
    sqrt(K) if it is rounded (Higham, Accuracy and Stability of Numerical Algorithms, section 2.8), and as the number of
    additions if it is truncated, as in matrix units: here at most K / 4. Exact types allow no error.
    """
    if not ELEMENTS[dtype.sum].floating:
        return _FACTOR * _rounding(dtype.out)
    steps = math.sqrt(k) if dtype.precision == "ieee" else max(math.sqrt(k), k / 4)
    if ELEMENTS[dtype.acc].bits == 16:
        steps = max(1.0, math.sqrt(k))
    products = _PRODUCT.get(dtype.precision or "", 0.0)
    if dtype.precision == "fast":
        products *= math.sqrt(k / _INSTRUCTION)
    rounded = _rounding(dtype.out)
    if dtype.stored_b.converted and dtype.scaled and dtype.stored_b.multiplied_bits == 16:
        # A kernel may round the values of B to A's type before it multiplies them (`decoded`).
        rounded = max(rounded, _rounding(dtype.a))
    return _FACTOR * (rounded + products + steps * _rounding(dtype.sum))


def rounding_error(terms: int, sum: str, *, hardware: bool) -> float:
    """The largest relative error of so many roundings to the type of a sum, by a matrix unit or not."""
    return _gamma(terms, roundoff(sum) * (2 if hardware else 1))


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
