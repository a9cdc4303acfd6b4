"""Element types as torch dtypes, and the spacing of their numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS, ElementType
from generator.language.storage import element_of

#: Unit roundoff of fp32 under round-to-nearest: 2**-p for p significant bits.
FP32_ROUNDOFF = 2.0**-24

#: The smallest normal fp32 number: the largest error of an operation on subnormals, flushed to zero or not.
FP32_TINY = 2.0**-126

#: Operands by keyword: tensors, and numbers that a call gives.
Operands = Mapping[str, torch.Tensor | float]

#: The types that results are saturated to, each with its smallest and largest number.
SATURATED = {getattr(torch, ELEMENTS[word].torch): (element.least, element.most) for word, element in QUANTISED.items()}

#: The floating types without a negative zero, whose bits are their only NaN.
UNSIGNED_ZERO = frozenset(
    getattr(torch, element.torch) for element in ELEMENTS.values() if element.floating and not element.negative_zero
)


def torch_type(word: str) -> torch.dtype:
    """The torch dtype of an element type of the spec language."""
    dtype = getattr(torch, element_of(word).torch)
    assert isinstance(dtype, torch.dtype)
    return dtype


#: Real types that an epilogue operand may have.
OPERAND_TYPES = {"fp64": torch.float64, **{word: torch_type(word) for word in ("fp32", "bf16", "fp16", "uint8")}}


def double(x: torch.Tensor) -> torch.Tensor:
    """`x` in float64."""
    # Not every version of torch converts 8-bit types to float64 directly.
    return x.float().double() if x.element_size() == 1 else x.double()


def of_codes(element: ElementType, codes: torch.Tensor) -> torch.Tensor:
    """The float64 values of whole `codes`, the bits of elements of a narrow type."""
    values = [element.value(code) for code in range(1 << element.bits)]
    return torch.tensor(values, dtype=torch.float64, device=codes.device)[codes.long()]


def scales(word: str, x: torch.Tensor) -> torch.Tensor:
    """Scales or zero points of a type in float64: of powers of two the bytes are exponents, the last one is NaN."""
    if not ELEMENTS[word].powers:
        return double(x)
    exponents = x.view(torch.uint8).to(torch.int64)
    powers = torch.ldexp(torch.ones(x.shape, dtype=torch.float64, device=x.device), exponents - 127)
    return torch.where(exponents == 255, torch.nan, powers)


def roundoff(word: str) -> float:
    """The unit roundoff of a floating type under round-to-nearest: 2**-p for p significant bits."""
    return 2.0 ** -ELEMENTS[word].significant


def half_ulp(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half the distance between neighbours of type `dtype` at |x|: the largest error of one rounding.

    `x` is float64 of any shape; so is the result. Below the normal range the distance is that of subnormals. Where
    `x` is not finite the result is undefined.
    """
    numbers = torch.finfo(dtype)
    _, exponent = torch.frexp(x.abs())
    spacing = torch.ldexp(torch.full_like(x, numbers.eps), exponent - 1)
    return torch.where(x == 0, 0.0, spacing).clamp(min=numbers.smallest_normal * numbers.eps) / 2


def saturated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` clamped to the range of a type of SATURATED, and rounded for integers; unchanged for other types."""
    if dtype not in SATURATED:
        return x
    x = x.clamp(*SATURATED[dtype])
    return x.round() if x.is_floating_point() and not dtype.is_floating_point else x


def quantise(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Float64 `x` saturated to `dtype` and rounded to nearest even, unchanged for types that are not in SATURATED.

    NaN becomes 0 in integers.
    """
    x = saturated(x, dtype)
    if dtype not in SATURATED:
        return x
    if not dtype.is_floating_point:
        return x.nan_to_num(0.0)
    spacing = 2 * half_ulp(x.nan_to_num(0.0), dtype)
    return (x / spacing).round() * spacing


def overflow(dtype: torch.dtype) -> float:
    """The smallest number that rounds to infinity in `dtype`: half a spacing above its largest number."""
    numbers = torch.finfo(dtype)
    largest = torch.tensor(numbers.max, dtype=torch.float64)
    return float(largest + half_ulp(largest, dtype))


def has_infinity(dtype: torch.dtype) -> bool:
    """Whether the type can represent infinity: `float8_e4m3fn` cannot."""
    return dtype.is_floating_point and bool(torch.tensor(float("inf")).to(dtype).float().isinf())
