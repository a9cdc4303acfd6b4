"""Whether a timed result is right: its error against float64, held against what its types allow on random operands."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from generator.bench import eager
from generator.bench.operands import Operands
from generator.bench.problem import Problem
from generator.model import Dtype
from generator.verify.elements import SATURATED, quantise, torch_type
from generator.verify.halves import columns_of
from generator.vocabulary import ELEMENTS

#: Up to this many operations the whole product is computed in float64; beyond, random rows and columns of it.
_WHOLE = 4e12
_SAMPLED = 256

#: Unit roundoff, 2**-p for p significant bits.
_ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int32": 0.0}
#: Narrow results are expected as they are quantised: what is off are the few that lie near a boundary, a spacing each.
_ROUNDOFF |= {"fp8e4m3": 2.0**-6, "fp8e5m2": 2.0**-6, "int8": 2.0**-7}
#: What a product may be off by before it is summed: tf32 keeps 11 bits of each operand, three tf32 products about 22;
#: the fp8 matrix unit of NVIDIA's sm90 sums 14 bits at a time (DeepSeek-V3, section 3.3.2).
_PRODUCT = {"tf32": 2.0**-10, "tf32x3": 2.0**-20, "full": 2.0**-13, "fast": 2.0**-13}
#: The error of a sum in units of the tolerance: several deviations, for the worst of millions is looked at too.
_FACTOR = 4.0
_WORST = 8.0


@dataclass(frozen=True)
class Expected:
    """The float64 result of one set, or of random rows and columns of it."""

    rows: torch.Tensor | None
    columns: torch.Tensor | None
    of_rows: torch.Tensor
    of_columns: torch.Tensor | None


@dataclass(frozen=True)
class Verdict:
    """How far a result is from float64.

    `error` is |out - reference| / |reference| in the Frobenius norm, `worst` the largest single error over the
    reference's element plus the root mean square of the accumulator, or of a gate's results.
    """

    error: float
    worst: float
    tolerance: float

    @property
    def fault(self) -> str | None:
        """What is wrong, None where nothing is."""
        if not self.error <= self.tolerance:
            return f"wrong result: relative error {self.error:.3g}, at most {self.tolerance:.3g} is right"
        if not self.worst <= _WORST * self.tolerance:
            return (
                f"wrong result: one element is off by {self.worst:.3g}, at most {_WORST * self.tolerance:.3g} is right"
            )
        return None


def tolerance(dtype: Dtype, k: int) -> float:
    """The relative error, in the Frobenius norm, that a right product of standard normal operands stays under.

    Rounding the output, rounding the products, and the sum: random roundings grow as sqrt(K) (Higham, Accuracy and
    Stability of Numerical Algorithms, section 2.8), truncated ones, which matrix units make, as their number, here a
    fourth of K at the most. Exact types allow nothing.
    """
    if not ELEMENTS[dtype.acc].floating:
        return _FACTOR * _ROUNDOFF[dtype.out]
    steps = math.sqrt(k) if dtype.precision == "ieee" else max(math.sqrt(k), k / 4)
    if dtype.acc == "fp16":
        steps = max(1.0, math.sqrt(k))
    products = _PRODUCT.get(dtype.precision or "", 0.0)
    if dtype.precision == "fast":
        products *= math.sqrt(k / 32)
    return _FACTOR * (_ROUNDOFF[dtype.out] + products + steps * _ROUNDOFF[dtype.acc])


def expect(problem: Problem, operands: Operands, generator: torch.Generator) -> Expected:
    """The float64 result of `operands`, computed where they are."""
    a, b = _double(operands.a), _double(operands.b)
    if problem.flops <= _WHOLE or problem.shape.batch:
        whole = eager.apply(problem.epilogue, a @ b, operands.epilogue)
        return Expected(None, None, _stored(problem, whole), None)
    rows = torch.randperm(problem.shape.m, generator=generator)[:_SAMPLED].to(a.device)
    columns = torch.randperm(problem.shape.n, generator=generator)[:_SAMPLED].to(a.device)
    of_rows = eager.apply(problem.epilogue, a[rows] @ b, operands.epilogue, rows=rows)
    n, epilogue = problem.shape.n, problem.epilogue
    some = b[:, columns_of(columns, n, epilogue.order)]
    of_columns = eager.apply(epilogue, a @ some, operands.epilogue, columns=columns, n=n)
    return Expected(rows, columns, _stored(problem, of_rows), _stored(problem, of_columns))


def _stored(problem: Problem, value: torch.Tensor) -> torch.Tensor:
    """What is expected in memory: narrow results are saturated, which no tolerance of theirs has room for."""
    dtype = torch_type(problem.dtype.out)
    return quantise(value, dtype) if dtype in SATURATED else value


def _double(x: torch.Tensor) -> torch.Tensor:
    # 8-bit types convert to float64 by way of fp32 on every version of torch.
    return x.float().double() if x.element_size() == 1 else x.double()


def judge(problem: Problem, out: torch.Tensor, expected: Expected) -> Verdict:
    """The error of `out` (M, N); an element that is NaN, as one that was never written is, is infinitely wrong."""
    allowed = tolerance(problem.dtype, problem.shape.k)
    if out.dtype.is_floating_point and bool(torch.isnan(out).any()):
        return Verdict(math.inf, math.inf, allowed)
    scale = _scale(problem)
    parts = [(out if expected.rows is None else out[expected.rows], expected.of_rows)]
    if expected.of_columns is not None:
        parts.append((out[:, expected.columns], expected.of_columns))
    errors, worst = [0.0], [0.0]
    for got, reference in parts:
        difference = (_double(got) - reference).abs_()
        norm = float(reference.norm())
        if problem.epilogue.order is not None:
            # A gate multiplies two sums, so that the error of one counts by the other.
            scale = max(scale, norm / math.sqrt(reference.numel()))
        errors.append(float(difference.norm()) / norm if norm else float(difference.norm()))
        worst.append(float((difference / (reference.abs() + scale)).max()))
    return Verdict(max(errors), max(worst), allowed)


def _scale(problem: Problem) -> float:
    """The root mean square of A @ B: sqrt(K) of the operands' own, 1 for normal ones, 2**b / sqrt(12) for integers."""
    bits = 0 if ELEMENTS[problem.dtype.a].floating else ELEMENTS[problem.dtype.a].bits
    deviation = 2.0**bits / math.sqrt(12) if bits else 1.0
    return math.sqrt(problem.shape.k) * deviation * deviation
