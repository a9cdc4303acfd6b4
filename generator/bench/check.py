"""Check a timed result: compare its error against float64 with the tolerance of its types on random operands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import torch

from generator.bench import eager
from generator.bench.problem import Problem
from generator.bench.random_operands import Operands
from generator.epilogue.chain import Output
from generator.epilogue.operations import ROWS
from generator.language.dtypes import ELEMENTS
from generator.language.model import Dtype
from generator.verify.case_sizes import spans
from generator.verify.element_types import SATURATED, quantise, torch_type
from generator.verify.error_propagation import Bounded
from generator.verify.execute import Fault
from generator.verify.gate_columns import columns_of
from generator.verify.reference import auxiliary_value, part_of
from generator.verify.stored_values import values

#: Up to this many operations the whole product is computed in float64; above it, only random rows and columns.
_WHOLE = 4e12
_SAMPLED = 256

#: Unit roundoff, 2**-p for p significant bits.
_ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int32": 0.0}
#: 8-bit results are compared after quantisation: only the few values near a rounding boundary differ, by one spacing.
_ROUNDOFF |= {"fp8e4m3": 2.0**-6, "fp8e5m2": 2.0**-6, "int8": 2.0**-7}
#: The relative error of a product before it is summed: tf32 has 11 significant bits per operand, three tf32 products
#: have about 22; the fp8 matrix unit of NVIDIA's sm90 sums with 14 bits (DeepSeek-V3, section 3.3.2).
_PRODUCT = {"tf32": 2.0**-10, "tf32x3": 2.0**-20, "full": 2.0**-13, "fast": 2.0**-13}
#: The tolerance in standard deviations of the error, and the factor on it for the worst of millions of elements.
_FACTOR = 4.0
_WORST = 8.0


#: An index of a result.
At = tuple[EllipsisType | torch.Tensor | slice | int, ...]


@dataclass(frozen=True)
class Part:
    """The expected float64 values of one result, or of the rows or columns of it that `at` selects.

    The error of the whole part is relative to `norm`, the error of one element to its value plus `scale`. `own` is the
    absolute error that computing the result from the running value may add.
    """

    at: At
    value: torch.Tensor
    norm: float
    scale: torch.Tensor | float
    own: torch.Tensor | float = 0.0


@dataclass(frozen=True)
class Expected:
    """One result of an operand set, C or an auxiliary output, in parts that are checked separately."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Verdict:
    """The error of the result `name` against float64.

    `error` is |out - reference| / |reference| in the Frobenius norm. `worst` is the largest error of one element,
    divided by the element of the reference plus the root mean square of the accumulator, or of the results of a gated
    linear unit. The errors of the terms of a sum are random and add up in squares even if the terms cancel: the norm of
    the terms replaces that of the sum if it is larger.
    """

    name: str
    error: float
    worst: float
    tolerance: float

    @property
    def fault(self) -> str | None:
        """What is wrong, or None."""
        if not self.error <= self.tolerance:
            return f"wrong {self.name}: relative error {self.error:.3g}, at most {self.tolerance:.3g} is right"
        if not self.worst <= _WORST * self.tolerance:
            most = _WORST * self.tolerance
            return f"wrong {self.name}: one element is off by {self.worst:.3g}, at most {most:.3g} is right"
        return None


def tolerance(dtype: Dtype, k: int) -> float:
    """The largest relative error, in the Frobenius norm, of a right product of standard normal operands.

    It is the sum of the errors of rounding the output, rounding the products, and summing. The error of a sum grows as
    sqrt(K) if it is rounded (Higham, Accuracy and Stability of Numerical Algorithms, section 2.8), and as the number of
    additions if it is truncated, as in matrix units: here at most K / 4. Exact types allow no error.
    """
    if not ELEMENTS[dtype.sum].floating:
        return _FACTOR * _ROUNDOFF[dtype.out]
    steps = math.sqrt(k) if dtype.precision == "ieee" else max(math.sqrt(k), k / 4)
    if dtype.acc == "fp16":
        steps = max(1.0, math.sqrt(k))
    products = _PRODUCT.get(dtype.precision or "", 0.0)
    if dtype.precision == "fast":
        products *= math.sqrt(k / 32)
    rounded = _ROUNDOFF[dtype.out]
    if dtype.stored_b.converted and dtype.scaled:
        # A kernel may round the values of B to A's type before it multiplies them (`decoded`).
        rounded = max(rounded, _ROUNDOFF[dtype.a])
    return _FACTOR * (rounded + products + steps * _ROUNDOFF[dtype.sum])


def expect(problem: Problem, operands: Operands, generator: torch.Generator) -> tuple[Expected, ...]:
    """The float64 results of `operands`, computed on their device: C, then the auxiliary outputs."""
    parts = _of_groups(problem, operands) if problem.shape.groups else _of_all(problem, operands, generator)
    results = problem.call.results
    names = ["result", *(x.name for x in results[1:])]
    sizes = [x.sizes(problem.shape.extents) for x in results]
    return tuple(
        Expected(name, size, tuple(part for part in found if part is not None))
        for name, size, found in zip(names, sizes, zip(*parts, strict=True), strict=True)
    )


def _of_all(problem: Problem, operands: Operands, generator: torch.Generator) -> list[list[Part | None]]:
    """The expected parts of each result of a product or a batch: all of it, or some rows and some columns."""
    a, b = _factors(problem, operands)
    m, n, epilogue = problem.shape.m, problem.shape.n, problem.epilogue
    if problem.flops <= _WHOLE or problem.shape.batch:
        return [_parts(problem, a @ b, operands)]
    rows = torch.randperm(m, generator=generator)[:_SAMPLED].to(a.device)
    columns = torch.randperm(n, generator=generator)[:_SAMPLED].to(a.device)
    some = b[:, columns_of(columns, n, epilogue.order)]
    return [
        _parts(problem, a[rows] @ b, operands, rows=rows),
        _parts(problem, a @ some, operands, columns=columns),
    ]


def _of_groups(problem: Problem, operands: Operands) -> list[list[Part | None]]:
    """The expected parts of each result, one for each group that has rows, or a K."""
    call, shape = problem.call, problem.shape
    known = {x.name: x for x in (call.a, call.b, *call.stored, *call.operands)}
    found = []
    for number, span in enumerate(spans(shape.ends, shape.total)):
        if span[0] == span[1]:
            continue

        def own(
            values: Mapping[str, torch.Tensor | float], number: int = number, span: tuple[int, int] = span
        ) -> dict[str, Any]:
            return {name: part_of(known[name], x, number, span) for name, x in values.items()}

        part = Operands(
            **own({"a": operands.a, "b": operands.b}),
            epilogue=own(operands.epilogue),
            out=operands.out,
            stored=own(operands.stored),
        )
        a, b = _factors(problem, part)
        at = [(number,) if x.extents[0] == "G" else (slice(*span),) for x in call.results]
        parts = _parts(problem, a @ b, part)
        found.append([None if each is None else replace(each, at=where) for each, where in zip(parts, at, strict=True)])
    return found


def _factors(problem: Problem, operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers that A and B stand for, in float64."""
    if problem.dtype.plain:
        return _double(operands.a), _double(operands.b)
    storages = zip(problem.dtype.stored, (operands.a, operands.b), strict=True)
    a, b = (values(storage, x, operands.stored) for storage, x in storages)
    return a, b


def _parts(
    problem: Problem,
    product: torch.Tensor,
    operands: Operands,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
) -> list[Part | None]:
    """The expected part of each result; `product` has only the given `rows` or `columns`."""
    at: At = (...,)
    if rows is not None:
        at = (rows,)
    elif columns is not None:
        at = (..., columns)
    integer = not ELEMENTS[problem.dtype.sum].floating

    def matrix(x: torch.Tensor, at: At = at) -> Part:
        value = _stored(problem, x)
        return Part(at, value, float(value.norm()), _scale(problem, value))

    def part(output: Output, x: torch.Tensor) -> Part | None:
        writer = output.writer
        if output.gated and columns is not None:
            return matrix(x, (..., columns_of(columns, problem.shape.n, problem.epilogue.order)))
        if not writer.reduction:
            return matrix(x)
        # A sum over a column needs all rows, and a sum over a row all columns.
        if (columns if writer.shape == ROWS else rows) is not None:
            return None
        exact = auxiliary_value(writer, Bounded(x, x.new_zeros(())), problem.dtype.out, integer=integer)
        norm, scale = float(exact.value.norm()), _scale(problem, x)
        if writer.reduction != "sum":
            return Part(at, exact.value, norm, scale, exact.error)
        each = x.norm(dim=writer.dimension) + math.sqrt(x.shape[writer.dimension]) * scale
        return Part(at, exact.value, max(norm, float(x.norm())), each, exact.error)

    outputs: list[Part | None] = []
    n = problem.shape.n
    result = eager.apply(problem.epilogue, product, operands.epilogue, rows, columns, n, outputs=outputs, writer=part)
    return [matrix(result), *outputs]


def _stored(problem: Problem, value: torch.Tensor) -> torch.Tensor:
    """The expected value in memory: 8-bit results are saturated, because their tolerance does not cover saturation."""
    dtype = torch_type(problem.dtype.out)
    return quantise(value, dtype) if dtype in SATURATED else value


def _double(x: torch.Tensor) -> torch.Tensor:
    # Not every version of torch converts 8-bit types to float64 directly.
    return x.float().double() if x.element_size() == 1 else x.double()


def judge(problem: Problem, out: torch.Tensor, expected: Expected) -> Verdict:
    """The error of one result. An element that is NaN, for example because it was never written, has an infinite error.

    Raises `Fault` for a result of another shape.
    """
    if tuple(out.shape) != expected.shape:
        raise Fault(f"{expected.name} is {tuple(out.shape)}, expected {expected.shape}")
    allowed = tolerance(problem.dtype, problem.shape.k)
    if out.dtype.is_floating_point and bool(torch.isnan(out).any()):
        return Verdict(expected.name, math.inf, math.inf, allowed)
    errors, worst = [0.0], [0.0]
    for part in expected.parts:
        difference = ((_double(out[part.at]) - part.value).abs_() - part.own).clamp_(min=0)
        errors.append(float(difference.norm()) / (part.norm or 1.0))
        worst.append(float((difference / (part.value.abs() + part.scale)).max()))
    return Verdict(expected.name, max(errors), max(worst), allowed)


def _scale(problem: Problem, x: torch.Tensor) -> float:
    """The scale of the errors of the elements of `x`: the root mean square of A @ B.

    It is sqrt(K) times the root mean squares of the operands: 1 for normal and scaled ones, 2**b / sqrt(12) for b-bit
    integers, and less where half of the elements are 0. A gated linear unit multiplies two sums, so the error of one is
    multiplied by the other: then the scale is at least the root mean square of `x`.
    """
    scale = math.sqrt(problem.shape.k)
    for storage in problem.dtype.stored:
        if not storage.element.floating and storage.block is None:
            scale *= 2.0**storage.bits / math.sqrt(12)
        scale /= math.sqrt(2.0) if storage.sparse else 1.0
    return scale if problem.epilogue.order is None else max(scale, float(x.norm()) / math.sqrt(x.numel()))
