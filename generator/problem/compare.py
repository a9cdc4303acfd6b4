"""Compare a kernel's result with the reference: the error must be within the bound plus one rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from generator.epilogue.chain import Epilogue
from generator.problem.element_types import SATURATED, double, half_ulp, overflow, quantise
from generator.problem.error_propagation import Bounded

#: The index of an element: (row, column), or (matrix, row, column) for a batch.
At = tuple[int, ...]


class Fault(Exception):
    """What is wrong with a result, as a sentence."""


def results_of(epilogue: Epilogue, returned: object) -> tuple[Any, list[Any]]:
    """C of what a launcher returned, and the outputs beside it; raise `Fault` unless these are as many as they must."""
    count = len(epilogue.outputs) + (epilogue.quantisation is not None)
    if not count:
        return returned, []
    if not isinstance(returned, tuple) or len(returned) != 1 + count:
        returned_text = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
        raise Fault(f"the launcher returned {returned_text}, expected a tuple of the result and {count} outputs")
    return returned[0], list(returned[1:])


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
    if got.dtype in SATURATED:
        return _quantised(got, value, error)
    if not got.dtype.is_floating_point:
        difference = (got.double() - value).abs()
        ratio = torch.where(difference == 0, 0.0, torch.inf)
        message = "{}, expected exactly {}".format
        return verdict(difference == 0, ratio, difference, lambda at: message(int(got[at]), int(value[at])))
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
    badness = torch.where(difference.isfinite(), difference / allowed, torch.inf)

    def text(at: At) -> str:
        return f"{float(computed[at])!r}, expected {float(value[at])!r} within {float(allowed[at]):.3g}"

    return verdict(right, ratio, badness, text)


def _quantised(got: torch.Tensor, value: torch.Tensor, error: torch.Tensor) -> Verdict:
    """Quantisation is monotonic: a value with at most `error` is quantised to between the quantised ends."""
    computed = double(got)
    wanted = quantise(value, got.dtype)
    lowest, highest = (quantise(end, got.dtype) for end in ends(value, error))
    right = (lowest <= computed) & (computed <= highest) | (wanted.isnan() & computed.isnan()) | error.isnan()
    allowed = error + (half_ulp(wanted.abs().nan_to_num(0.0), got.dtype) if got.dtype.is_floating_point else 0.5)
    difference = (computed - value.clamp(*SATURATED[got.dtype])).abs()
    ratio = torch.where(right & difference.isfinite() & allowed.isfinite(), difference / allowed, 0.0)

    def text(at: At) -> str:
        return f"{float(computed[at])!r}, expected {float(wanted[at])!r}, {float(value[at])!r} quantised"

    return verdict(right, ratio, (computed - wanted).abs().nan_to_num(torch.inf), text)


def ends(value: torch.Tensor, error: torch.Tensor) -> Iterator[torch.Tensor]:
    """The least and the largest number within an error of a value."""
    for side in (-1, 1):
        end = torch.where(error.isinf(), side * torch.inf, value + side * error)
        yield torch.where(error > 0, end, value)


def verdict(right: torch.Tensor, ratio: torch.Tensor, badness: torch.Tensor, text: Callable[[At], str]) -> Verdict:
    """The verdict on elements that are right or wrong; `text` describes the worst one."""
    if bool(right.all()):
        return Verdict(None, float(ratio.max()) if right.numel() else 0.0)
    worst = tuple(map(int, torch.unravel_index(torch.where(right, -1.0, badness).argmax(), badness.shape)))
    count = f"{int((~right).sum())} of {right.numel()} elements are wrong"
    return Verdict(f"{count}; the worst is {list(worst)}: got {text(worst)}", float(ratio.max()))
