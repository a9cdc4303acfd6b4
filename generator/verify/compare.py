"""Compare a kernel's result with the reference: within the bound and one rounding, or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from generator.verify.element_types import SATURATED, half_ulp, overflow, quantise
from generator.verify.error_propagation import Bounded


@dataclass(frozen=True)
class Verdict:
    """`fault` says what is wrong, None where nothing is; `ratio` is the worst error as a part of what is allowed."""

    fault: str | None
    ratio: float


def compare(got: torch.Tensor, expected: Bounded) -> Verdict:
    """Whether each element of `got`, (M, N) or (B, M, N), is the reference rounded once, up to its error bound.

    Integers must be equal, unless they are saturated: those, and fp8, lie between what the ends of the bound are
    quantised to. Where the reference is NaN or infinite the result must be so too, with the sign; a finite
    reference may come out infinite only where the bound reaches past the type's range.
    """
    value, error = expected.value.expand(got.shape), expected.error.expand(got.shape)
    if got.numel() == 0:
        return Verdict(None, 0.0)
    if got.dtype in SATURATED:
        return _quantised(got, value, error)
    if not got.dtype.is_floating_point:
        return _exact(got, value)
    computed = got.double()
    allowed = error + half_ulp(value.abs() + error, got.dtype)
    difference = (computed - value).abs()
    finite = value.isfinite() & (value.abs() < overflow(got.dtype))
    may_overflow = computed.isinf() & (computed.sign() == value.sign()) & (value.abs() + error >= overflow(got.dtype))
    # A bound that is NaN or infinite stands for operands that bound nothing, a division by what may be 0.
    within = (difference <= allowed) | ~allowed.isfinite() | may_overflow
    # Comparisons with NaN are false: equality alone decides where the reference is not finite.
    beyond = torch.where(value.isnan(), computed.isnan(), (computed == value) | may_overflow | (difference <= allowed))
    # A bound that is NaN stands for a formula that is not defined everywhere near: anything is right.
    right = torch.where(finite, within & computed.isnan().logical_not(), beyond) | error.isnan()
    ratio = torch.where(finite & computed.isfinite() & allowed.isfinite(), difference / allowed, 0.0)
    if bool(right.all()):
        return Verdict(None, float(ratio.max()))
    worst = _worst(torch.where(right, -1.0, torch.where(difference.isfinite(), difference / allowed, torch.inf)))
    return Verdict(
        f"{int((~right).sum())} of {right.numel()} elements are wrong; the worst is {list(worst)}: got "
        f"{float(computed[worst])!r}, expected {float(value[worst])!r} within {float(allowed[worst]):.3g}",
        float(ratio.max()),
    )


def _quantised(got: torch.Tensor, value: torch.Tensor, error: torch.Tensor) -> Verdict:
    """Quantising only rises: what is off by `error` at the most comes out between the quantised ends."""
    # Not every version of torch takes fp8 to float64 in one step.
    computed = got.float().double()
    wanted = quantise(value, got.dtype)
    ends = (torch.where(error.isinf(), side * torch.inf, value + side * error) for side in (-1, 1))
    lowest, highest = (quantise(torch.where(error > 0, end, value), got.dtype) for end in ends)
    right = (lowest <= computed) & (computed <= highest) | (wanted.isnan() & computed.isnan()) | error.isnan()
    if got.dtype.is_floating_point:
        half = half_ulp(wanted.abs().nan_to_num(0.0), got.dtype)
    else:
        half = torch.full_like(wanted, 0.5)
    allowed = error + half
    difference = (computed - value.clamp(*SATURATED[got.dtype])).abs()
    ratio = torch.where(right & difference.isfinite() & allowed.isfinite(), difference / allowed, 0.0)
    if bool(right.all()):
        return Verdict(None, float(ratio.max()))
    worst = _worst(torch.where(right, -1.0, (computed - wanted).abs().nan_to_num(torch.inf)))
    return Verdict(
        f"{int((~right).sum())} of {right.numel()} elements are wrong; the worst is {list(worst)}: got "
        f"{float(computed[worst])!r}, expected {float(wanted[worst])!r}, {float(value[worst])!r} quantised",
        float(ratio.max()),
    )


def _exact(got: torch.Tensor, value: torch.Tensor) -> Verdict:
    difference = (got.double() - value).abs()
    if not bool(difference.any()):
        return Verdict(None, 0.0)
    worst = _worst(difference)
    return Verdict(
        f"{int((difference != 0).sum())} of {got.numel()} elements are wrong; the worst is {list(worst)}: got "
        f"{int(got[worst])}, expected exactly {int(value[worst])}",
        float("inf"),
    )


def _worst(badness: torch.Tensor) -> tuple[int, ...]:
    """Where the largest element of a tensor is: row and column, behind the matrix where there are several."""
    return tuple(map(int, torch.unravel_index(badness.argmax(), badness.shape)))
