"""The formula language in float64: each value has a bound on its error in fp32 arithmetic.

This is running error analysis as in Higham, Accuracy and Stability of Numerical Algorithms, section 3.3. The error of a
function's argument gives an interval; the function's change over it, which the ends of the interval give for a
monotonic function, plus the function's own rounding errors bound the error of the result. An infinite bound means that
the error is unbounded; a bound of NaN means that the result may also be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from generator.epilogue.formula import COMPARISONS, SYMBOLS
from generator.lowering.approximate_math import TANH_APPROX, coarse
from generator.problem.element_types import FP32_ROUNDOFF, FP32_TINY, overflow, torch_type

#: The largest errors of functions, in units of roundoff relative to their result; an ulp is at most two roundoffs.
#: PTX ISA, section Floating Point Instructions: `div.full.f32` 2 ulp, `ex2.approx.f32` 2**-22, `sqrt.approx.f32`
#: 2**-23, `rsqrt.approx.f32` 2**-22.9. AMD's and NumPy's are within 2 ulp too.
_DIVISION = _EXPONENTIAL = _ROOT = 4.0
#: CUDA C++ programming guide, table of single-precision functions: erff 2 ulp, logf 1 ulp.
_ERF = _LOGARITHM = 4.0
#: PTX ISA: `lg2.approx.f32`, which may implement the logarithm, has an absolute error of 2**-22 between 0.5 and 2.
_NEAR_ONE = 2.0**-22
#: tanh as 1 - 2 / (exp(2x) + 1) down to x = -1/4, where the quotient is 1.25 and the result 0.245: relative to the
#: result, rounding errors of the quotient count five times. Nearer zero a series is needed, which is more exact.
_TANH = 5.0 * (_DIVISION + _EXPONENTIAL)
#: log(1 + u) as 2 artanh(u / (2 + u)): a sum, a division, and a series of positive terms, the first one the largest.
_LOG_OF_SUM = _DIVISION + 8.0

#: Below this the approximate tanh of x is x.
_NEAR_ZERO = 2.0**-7

_OVERFLOW = overflow(torch.float32)

#: A function of each element, and of the elements of two tensors.
Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Bounded:
    """A value and a bound on a kernel's error: float64 tensors that broadcast to (M, N), or (B, M, N)."""

    value: torch.Tensor
    error: torch.Tensor


#: Whether a comparison holds, and where a kernel may find the opposite: boolean tensors.
Truth = tuple[torch.Tensor, torch.Tensor]


def read(x: Bounded) -> Bounded:
    """`x` converted to fp32: exact where fp32 can represent it, otherwise rounded once."""
    exact = (x.value.float().double() == x.value) & (x.error == 0)
    magnitude = x.value.abs() + x.error
    return Bounded(x.value, torch.where(exact, 0.0, x.error + FP32_ROUNDOFF * magnitude))


def exact(value: float, like: torch.Tensor) -> Bounded:
    """A constant of the formula as it is."""
    number = torch.tensor(float(value), dtype=torch.float64, device=like.device)
    return Bounded(number, torch.zeros_like(number))


def _scaled(by: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """`error` times |by|: 0 where the error is 0, even if `by` is infinite, and where `by` is NaN."""
    return torch.where((error == 0) | by.isnan(), 0.0, by.abs() * error)


def _rounded(value: torch.Tensor, error: torch.Tensor, roundoffs: float | torch.Tensor = 1.0) -> Bounded:
    """A computed value whose error is the operands' `error`, plus `roundoffs` relative roundoffs and FP32_TINY.

    A value that exceeds the range of fp32 with either sign of its error is infinite without an error; values that are
    infinite or NaN have none either.
    """
    own = FP32_ROUNDOFF * roundoffs * (value.abs() + error)
    error = torch.where(value.isfinite() | error.isnan(), error + own + FP32_TINY, 0.0)
    past, perhaps = (value.abs() + side * error >= _OVERFLOW for side in (-1, 1))
    error = torch.where(perhaps & value.isfinite(), math.inf, error)
    return Bounded(torch.where(past, value.sign() * math.inf, value), torch.where(past, 0.0, error))


def _multiply(x: Bounded, y: Bounded) -> Bounded:
    both = torch.where(x.error == 0, 0.0, _scaled(x.error, y.error))
    error = _scaled(x.value, y.error) + _scaled(y.value, x.error) + both
    # If one factor is infinite and the other may be 0 after rounding, the product may be NaN.
    doubtful = (x.value.isinf() & _vanishes(y)) | (y.value.isinf() & _vanishes(x))
    return _rounded(x.value * y.value, torch.where(doubtful, math.nan, error))


def _vanishes(x: Bounded) -> torch.Tensor:
    return (x.error > 0) & (x.value.abs() <= x.error)


def _divide(x: Bounded, y: Bounded) -> Bounded:
    value = x.value / y.value
    # |x'/y' - x/y| = |(x' - x) - (x/y)(y' - y)| / |y'|; a divisor that may be 0 gives no bound.
    # A subnormal divisor may be flushed to 0.
    flushed = (y.value.abs() < FP32_TINY) & (y.value != 0)
    nearest = torch.where(flushed, 0.0, (y.value.abs() - y.error).clamp(min=0))
    error = (x.error + _scaled(value, y.error)) / nearest
    return _rounded(value, torch.where((x.error == 0) & (y.error == 0) & ~flushed, 0.0, error), _DIVISION)


def _either(function: Binary) -> Callable[[Bounded, Bounded], Bounded]:
    def choose(x: Bounded, y: Bounded) -> Bounded:
        # |max(x', y') - max(x, y)| is at most the larger of the two errors, without rounding. If the values differ by
        # more than the sum of their errors, the choice is certain.
        value = function(x.value, y.value)
        apart = (x.value - y.value).abs() > x.error + y.error
        taken = torch.where(value == x.value, x.error, y.error)
        return Bounded(value, torch.where(apart, taken, torch.maximum(x.error, y.error)))

    return choose


def _compare(function: Binary) -> Callable[[Bounded, Bounded], Truth]:
    def compare(x: Bounded, y: Bounded) -> Truth:
        # Subnormals may be flushed to 0.
        flushed = (x.value != y.value) & (x.value.abs() < FP32_TINY) & (y.value.abs() < FP32_TINY)
        reach = x.error + y.error
        apart = (x.value - y.value).abs()
        return (function(x.value, y.value), flushed | ((reach > 0) & ~(apart > reach)) | reach.isnan())

    return compare


def _where(condition: Truth, x: Bounded, y: Bounded) -> Bounded:
    holds, doubtful = condition
    value, error = torch.where(holds, x.value, y.value), torch.where(holds, x.error, y.error)
    other = torch.where(holds, y.value, x.value)
    # The error if the kernel takes the other branch; NaN and infinity there give no bound.
    apart = torch.where(other == value, 0.0, (other - value).abs()) + torch.where(holds, y.error, x.error)
    return Bounded(value, torch.where(doubtful, torch.maximum(error, apart), error))


def _rising(function: Unary, roundoffs: float) -> Callable[[Bounded], Bounded]:
    """A monotonic function, defined from 0 on."""

    def bounded(x: Bounded) -> Bounded:
        value = function(x.value)
        # A subnormal may be read as 0.
        reach = x.error + torch.where(x.value.abs() < FP32_TINY, x.value.abs(), 0.0)
        ends = [function(torch.clamp(x.value + side * reach, min=0.0)) for side in (-1, 1)]
        error = torch.where(reach == 0, 0.0, torch.maximum((ends[0] - value).abs(), (ends[1] - value).abs()))
        # A negative argument gives NaN.
        error = torch.where((x.error > 0) & (x.value - x.error < 0) & ~x.value.isinf(), math.nan, error)
        return _rounded(value, error, roundoffs)

    return bounded


def _exp(function: Unary, scaled: float) -> Callable[[Bounded], Bounded]:
    """An exponential computed as exp2 of its argument scaled in fp32: `scaled` roundoffs for each unit of |x|."""

    def bounded(x: Bounded) -> Bounded:
        value = function(x.value)
        own = torch.where(x.value.isfinite(), _EXPONENTIAL + scaled * x.value.abs(), 0.0)
        return _rounded(value, torch.where(x.error == 0, 0.0, function(x.value + x.error) - value), own)

    return bounded


def _log(x: Bounded) -> Bounded:
    logarithm = _rising(torch.log, _LOGARITHM)(x)
    near = (x.value > 0.5 - x.error) & (x.value < 2 + x.error)
    return Bounded(logarithm.value, torch.where(near, logarithm.error + _NEAR_ONE, logarithm.error))


def _steep_at_zero(function: Unary, slope: Unary, roundoffs: float) -> Callable[[Bounded], Bounded]:
    """A function whose `slope` is the largest at 0."""
    return lambda x: _rounded(function(x.value), _scaled(slope(_nearest(x)), x.error), roundoffs)


def _nearest(x: Bounded) -> torch.Tensor:
    """The magnitude of the value within the error that is nearest to 0."""
    return (x.value.abs() - x.error).clamp(min=0)


def _slope_of_tanh(x: torch.Tensor) -> torch.Tensor:
    return 1 - torch.tanh(x) ** 2


def _sigmoid(x: Bounded) -> Bounded:
    value, nearest = torch.sigmoid(x.value), _nearest(x)
    slope = torch.sigmoid(nearest) * torch.sigmoid(-nearest)
    # 1 / (1 + exp(-x)): the error of the exponential is its own roundoffs plus two for each unit of x, since its
    # argument is scaled by log2(e) in fp32; its weight is the share of exp(-x) in the sum, which is 1 - value.
    exponential = (1 - value) * (_EXPONENTIAL + 2 * x.value.abs())
    exponential = torch.where(x.value.isfinite(), exponential, 0.0)
    return _rounded(value, _scaled(slope, x.error), exponential + 1 + _DIVISION)


def _fast_tanh(x: Bounded) -> Bounded:
    """x itself near zero, 1 - 2 / (exp(2x) + 1) elsewhere."""
    value = torch.tanh(x.value)
    magnitude, quotient, slope = x.value.abs(), 1 - value, _slope_of_tanh(_nearest(x))
    # The weight of the exponential is its share in the sum with 1, which is sigmoid(2x).
    exponential = (1 - quotient / 2) * (_EXPONENTIAL + 4 * magnitude)
    far = quotient * (torch.where(x.value.isfinite(), exponential, 0.0) + 2 + _DIVISION)
    near = torch.where(magnitude - x.error < _NEAR_ZERO, (magnitude + x.error).clamp(max=_NEAR_ZERO) ** 3 / 3, 0.0)
    own = torch.maximum(near, torch.where(magnitude + x.error < _NEAR_ZERO, 0.0, FP32_ROUNDOFF * far))
    return _rounded(value, _scaled(slope, x.error) + torch.where(x.value.isnan(), 0.0, own))


#: tanh by the hardware's instruction, whose error is larger than that of the other implementations.
_coarse_tanh = _steep_at_zero(torch.tanh, _slope_of_tanh, TANH_APPROX / FP32_ROUNDOFF)


def _softplus(x: Bounded) -> Bounded:
    # max(x, 0) + log(1 + exp(-|x|)); the roundoffs of the exponential count in the second part, as in `_sigmoid`.
    tail = torch.log1p(torch.exp(-x.value.abs()))
    value = x.value.clamp(min=0) + tail
    part = torch.where(x.value.isfinite(), tail / value * (_EXPONENTIAL + 2 * x.value.abs() + _LOG_OF_SUM), 0.0)
    # exp(-|x|) is 0 in float64 from |x| = 746 on, and much earlier in fp32.
    return _rounded(value, _scaled(torch.sigmoid(x.value + x.error), x.error), part.nan_to_num(0.0) + 1)


def _to(dtype: torch.dtype) -> Callable[[Bounded], Bounded]:
    def rounded(x: Bounded) -> Bounded:
        def to(value: torch.Tensor) -> torch.Tensor:
            # Through fp32, the type of a kernel's values: a direct conversion would round some values differently.
            return value.float().to(dtype).double()

        value = to(x.value)
        ends = (to(x.value + side * x.error) for side in (-1, 1))
        # A value that is infinite at both ends of the error is certainly infinite.
        below, above = (torch.where(end == value, 0.0, (end - value).abs()) for end in ends)
        error = torch.where(x.error == 0, 0.0, torch.maximum(below, above))
        return Bounded(value, torch.where(value.abs() < FP32_TINY, error + value.abs(), error))

    return rounded


def sum_along(x: Bounded, dimension: int) -> Bounded:
    """The sum along a dimension in any order (Higham, section 3.1), with the errors of the terms."""
    value, error = x.value, x.error.expand(x.value.shape)
    terms = value.shape[dimension] * FP32_ROUNDOFF
    magnitude = torch.where(value.isfinite(), value.abs() + error, 0.0).sum(dimension)
    total, own = value.sum(dimension), error.sum(dimension)
    own = own + terms / (1 - terms) * magnitude + value.shape[dimension] * FP32_TINY
    # A sum with infinite or NaN terms has no error.
    own = torch.where(value.isfinite().all(dimension) | ~own.isfinite(), own, 0.0)
    # Partial sums of finite terms may exceed the range of fp32 with opposite signs, which makes NaN.
    return Bounded(total, torch.where(magnitude < _OVERFLOW, own, math.nan))


#: Each function and operator of the formula language, on values with error bounds.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": lambda x, y: _rounded(x.value + y.value, x.error + y.error),
    "-": lambda x, y: _rounded(x.value - y.value, x.error + y.error),
    "*": _multiply,
    "/": _divide,
    "negative": lambda x: Bounded(-x.value, x.error),
    "**": lambda x, exponent: reduce(_multiply, [x] * exponent),
    **{symbol: _compare(SYMBOLS[symbol]) for symbol in COMPARISONS.values()},
    "where": _where,
    "max": _either(torch.maximum),
    "min": _either(torch.minimum),
    # No rounding, and the difference of two absolute values is at most that of the values.
    "abs": lambda x: Bounded(x.value.abs(), x.error),
    "exp": _exp(torch.exp, 2.0),
    "exp2": _exp(torch.exp2, 0.0),
    "log": _log,
    "sqrt": _rising(torch.sqrt, _ROOT),
    "rsqrt": _rising(torch.rsqrt, _ROOT),
    "erf": _steep_at_zero(torch.erf, lambda x: 2 / math.sqrt(math.pi) * torch.exp(-x * x), _ERF),
    "tanh": _steep_at_zero(torch.tanh, _slope_of_tanh, _TANH),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    **{word: _to(torch_type(word)) for word in ("fp16", "bf16", "fp32")},
}

#: The same on integers, whose sums fit the type that they have.
EXACT: Mapping[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "+": lambda x, y: Bounded(x.value + y.value, x.error + y.error),
    "-": lambda x, y: Bounded(x.value - y.value, x.error + y.error),
}


def functions(cheaper: bool, out: str, *, hardware: bool) -> Mapping[str, Callable[..., Any]]:
    """FUNCTIONS, with approximate math if `cheaper`, for kernels with results of type `out`."""
    # The approximate sigmoid needs no larger bound: an approximate reciprocal is as exact as the division's bound.
    if not cheaper:
        return FUNCTIONS
    return {**FUNCTIONS, "tanh": _coarse_tanh if hardware and coarse(out) else _fast_tanh}
