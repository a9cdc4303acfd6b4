"""Compare a kernel's result with the reference: the error must be within the bound plus one rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from generator.verify.element_types import SATURATED, half_ulp, overflow, quantise
from generator.verify.error_propagation import Bounded


@dataclass(frozen=True)
class Verdict:
    """`fault` says what is wrong, or is None; `ratio` is the largest error divided by the allowed one."""

    fault: str | None
    ratio: float


def compare(got: torch.Tensor, expected: Bounded) -> Verdict:
    """Whether each element of `got`, (M, N) or (B, M, N), equals the reference up to its error bound and one rounding.

    Integers must be equal. Saturated integers and fp8 must be between the two ends of the bound, quantised. Where the
    reference is NaN or infinite, the result must be the same, with the same sign. A result may be infinite for a
    finite reference only if the reference plus its bound exceeds the type's range.
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
    # A bound of NaN or infinity means that no bound is known, as for a division by a number that may be 0.
    within = (difference <= allowed) | ~allowed.isfinite() | may_overflow
    # Comparisons with NaN are false: equality alone decides where the reference is not finite.
    beyond = torch.where(value.isnan(), computed.isnan(), (computed == value) | may_overflow | (difference <= allowed))
    # A bound of NaN means that the formula is undefined somewhere within the error: any result is accepted.
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
    """Quantisation is monotonic: a value with at most `error` is quantised to between the quantised ends."""
    # Some versions of torch cannot convert fp8 to float64 in one step.
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
    """The index of the largest element: (row, column), or (matrix, row, column) for a batch."""
    return tuple(map(int, torch.unravel_index(badness.argmax(), badness.shape)))
