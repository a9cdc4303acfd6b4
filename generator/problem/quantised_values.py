"""A result that is quantised under scales of blocks: what its scales and its elements may be, by the rule alone.

The rule is monotonic: a larger magnitude has no smaller scale, and under one scale a larger value no smaller element.
So a bound on the error of the value before it bounds both: a scale is between those of the ends of the bound, and an
element between the elements of the ends under the scale that the kernel has stored. A value is then off by half a step
of the type times that scale, beside the error of the product itself.
"""

from __future__ import annotations

import torch

from generator.language.quantised_results import QuantisedResult
from generator.problem.compare import Verdict, ends, verdict
from generator.problem.element_types import FP32_ROUNDOFF, FP32_TINY, double, of_codes, quantise, torch_type
from generator.problem.element_types import scales as read_scales
from generator.problem.error_propagation import Bounded

#: The most rounding errors, relative to a quotient, in a scale or in front of one.
_ROUNDED = 4 * FP32_ROUNDOFF


def decoded(x: torch.Tensor, format: QuantisedResult) -> torch.Tensor:
    """The elements of a result in float64, those of four bits a column each."""
    if format.packed == 1:
        return double(x)
    return of_codes(format.element, torch.stack((x & 15, x >> 4), -1).flatten(-2))


def dequantised(x: torch.Tensor, scales: torch.Tensor, format: QuantisedResult) -> torch.Tensor:
    """The values that elements and scales stand for."""
    elements = decoded(x, format)
    return elements * read_scales(format.scale, scales).repeat_interleave(format.block, -1)[..., : elements.shape[-1]]


def quantised_roundoff(format: QuantisedResult | None) -> float:
    """How far values may be off, relative to the norm of a result: a step of its type; none where it has no scales."""
    if format is None:
        return 0.0
    # Integers have equal steps, of which the largest magnitude of a block has as many as the type's largest number.
    steps = 2.0**format.element.significant if format.element.floating else format.most / 4
    return (2 if format.powers else 1) / steps


def largest(x: Bounded, format: QuantisedResult) -> Bounded:
    """The largest magnitude of each block of columns, with a bound on its error."""
    rest = -x.value.shape[-1] % format.block
    both = (torch.nn.functional.pad(each, (0, rest)) for each in (x.value.abs(), x.error.expand(x.value.shape)))
    return Bounded(
        *(each.reshape(*each.shape[:-1], each.shape[-1] // format.block, format.block).amax(-1) for each in both)
    )


def compare_scales(got: torch.Tensor, x: Bounded, format: QuantisedResult) -> Verdict:
    """Whether each scale is one that the rule finds for some value within the bound of `x`, the value before it."""
    computed, magnitude = read_scales(format.scale, got), largest(x, format)
    low = _scale((magnitude.value - magnitude.error).clamp(min=0) * (1 - _ROUNDED), format)
    high = _scale((magnitude.value + magnitude.error) * (1 + _ROUNDED), format)
    # Where no number is large enough, formats have NaN.
    over = computed.isnan() & ~(high < torch.inf) if format.format else torch.zeros_like(computed, dtype=torch.bool)
    slack = 0.0 if format.powers or format.format else _ROUNDED
    within = (low * (1 - slack) <= computed) & (computed <= high * (1 + slack))
    right = torch.where(magnitude.value.isnan(), computed.isnan(), within | over) | magnitude.error.isnan()
    wanted = _scale(magnitude.value, format)

    def text(at: tuple[int, ...]) -> str:
        return f"{float(computed[at])!r}, expected {float(wanted[at])!r} from {float(low[at])!r} to {float(high[at])!r}"

    ratio = torch.where(right, 0.0, torch.inf)
    return verdict(right, ratio, (computed - wanted).abs().nan_to_num(torch.inf), text)


def compare_elements(got: torch.Tensor, scales: torch.Tensor, x: Bounded, format: QuantisedResult) -> Verdict:
    """Whether each element is the value `x`, within its bound, over the scale of its block, saturated and rounded."""
    computed = decoded(got, format)
    scale = read_scales(format.scale, scales).repeat_interleave(format.block, -1)[..., : computed.shape[-1]]
    value, error = x.value.expand(computed.shape), x.error.expand(computed.shape)
    quotient, off = value / scale, error / scale + _ROUNDED * (value / scale).abs()
    wanted = _rounded(quotient, format)
    low, high = (_rounded(end, format) for end in ends(quotient, off))
    same = (wanted.isnan() & computed.isnan()) | (wanted == computed)
    right = (low <= computed) & (computed <= high) | same | error.isnan() | off.isnan() & error.isinf()

    def text(at: tuple[int, ...]) -> str:
        quotient = f"{float(value[at])!r} over the scale {float(scale[at])!r}"
        return f"{float(computed[at])!r}, expected {float(wanted[at])!r}, {quotient}"

    step = (_rounded(quotient.abs() * (1 + 2.0**-format.element.significant) + 1e-3, format) - wanted.abs()).abs()
    allowed = off + step.nan_to_num(0.0) + 0.5
    difference = (computed - quotient).abs()
    ratio = torch.where(right & difference.isfinite() & allowed.isfinite(), (difference / allowed).clamp(max=1), 0.0)
    return verdict(right, ratio, (computed - wanted).abs().nan_to_num(torch.inf), text)


def _scale(magnitude: torch.Tensor, format: QuantisedResult) -> torch.Tensor:
    """The scale of blocks by their largest magnitudes; infinity where no number is large enough."""
    most, limit = float(format.most), float(format.limit)
    if format.rule == "e8m0":
        return _power(magnitude / limit).clamp(min=2.0**-127)
    if format.rule == "fp8e4m3":
        wanted = quantise((magnitude / most).clamp(min=FP32_TINY), torch.float8_e4m3fn)
        needed = (magnitude / limit).clamp(min=FP32_TINY)
        # The next number has the next bits; behind the largest one is NaN.
        bits = wanted.float().to(torch.float8_e4m3fn).view(torch.uint8) + 1
        next_one = double(bits.view(torch.float8_e4m3fn)).nan_to_num(torch.inf)
        return torch.where(wanted < needed, next_one, wanted)
    scale = (magnitude / most).clamp(min=FP32_TINY)
    return _power(scale.float().double()) if format.rule == "pow2" else scale


def _power(x: torch.Tensor) -> torch.Tensor:
    """The least power of two that is not below x."""
    mantissa, exponent = torch.frexp(x)
    power = torch.ldexp(torch.ones_like(x), exponent - (mantissa == 0.5).int())
    return torch.where(x.isfinite() & (x > 0), power, x)


def _rounded(x: torch.Tensor, format: QuantisedResult) -> torch.Tensor:
    """Float64 quotients saturated to the type of elements and rounded to nearest even."""
    if format.packed == 1:
        return quantise(x, torch_type(format.kind))
    m = x.abs().clamp(max=format.most)
    spacing = torch.where(m < 2, 0.5, torch.where(m < 4, 1.0, 2.0))
    return ((m / spacing).round() * spacing * x.sign()).nan_to_num(0.0)
