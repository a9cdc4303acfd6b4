"""Check a timed result: compare its error against float64 with the tolerance of its types on random operands."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import torch

from generator.bench.random_operands import Operands
from generator.epilogue.chain import Output
from generator.epilogue.operations import ELEMENT, ROWS
from generator.language.elements import ELEMENTS
from generator.plan.contract_call import Argument
from generator.plan.extents import N
from generator.problem.accumulation_bounds import tolerance
from generator.problem.chain_values import columns_of
from generator.problem.compare import Fault
from generator.problem.element_types import double, quantise, torch_type
from generator.problem.error_propagation import Bounded
from generator.problem.grouping import parts
from generator.problem.product import Problem
from generator.problem.quantised_values import dequantised, quantised_roundoff
from generator.problem.reference import auxiliary_value
from generator.problem.stored_values import values
from generator.problem.torch_functions import apply

#: Up to this many operations the whole product is computed in float64; above it, only random rows and columns.
_WHOLE = 4e12
_SAMPLED = 256

#: The factor on the tolerance for the worst of millions of elements.
_WORST = 8.0


#: An index of a result.
At = tuple[EllipsisType | torch.Tensor | slice | int, ...]


@dataclass(frozen=True)
class ExpectedPart:
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
    parts: tuple[ExpectedPart, ...]


@dataclass(frozen=True)
class Accuracy:
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


def expect(problem: Problem, operands: Operands, generator: torch.Generator) -> tuple[Expected, ...]:
    """The float64 results of `operands`, computed on their device: C, then the auxiliary outputs."""
    parts = _of_groups(problem, operands) if problem.shape.groups else _of_all(problem, operands, generator)
    results = _compared(problem)
    names = ["result", *(x.name for x in results[1:])]
    sizes = [x.sizes(problem.shape.extents) for x in results]
    return tuple(
        Expected(name, size, tuple(part for part in each if part is not None))
        for name, size, each in zip(names, sizes, zip(*parts, strict=True), strict=True)
    )


def _compared(problem: Problem) -> tuple[Argument, ...]:
    """The results that are compared: of a quantised one the values that elements and scales stand for."""
    call = problem.call
    if call.out_scale is None:
        return call.results
    return replace(call.out, dimensions=(*call.out.dimensions[:-1], N)), *call.beside


def values_of(problem: Problem, results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a call as they are compared."""
    quantised = problem.quantised
    if quantised is None:
        return results
    out, *beside, scales = results
    return [dequantised(out, scales, quantised), *beside]


def _of_all(problem: Problem, operands: Operands, generator: torch.Generator) -> list[list[ExpectedPart | None]]:
    """The expected parts of each result of a product or a batch: all of it, or some rows and some columns."""
    given = {"a": operands.a, "b": operands.b, **operands.keywords}
    a, b = _factors(problem, given)
    m, n, epilogue = problem.shape.m, problem.shape.n, problem.epilogue
    if problem.flops <= _WHOLE or problem.shape.batch:
        return [_parts(problem, a @ b, given)]
    rows = torch.randperm(m, generator=generator)[:_SAMPLED].to(a.device)
    columns = torch.randperm(n, generator=generator)[:_SAMPLED].to(a.device)
    some = b[:, columns_of(columns, n, epilogue.order)]
    return [
        _parts(problem, a[rows] @ b, given, rows=rows),
        _parts(problem, a @ some, given, columns=columns),
    ]


def _of_groups(problem: Problem, operands: Operands) -> list[list[ExpectedPart | None]]:
    """The expected parts of each result, one for each group that has rows, or a K."""
    call, shape = problem.call, problem.shape
    given = {"a": operands.a, "b": operands.b, **operands.stored, **operands.epilogue}
    groups = []
    for number, span, own in parts((call.a, call.b, *call.keywords), given, shape.ends, shape.total):
        if span[0] == span[1]:
            continue
        at = [(number,) if x.extents[0] == "G" else (slice(*span),) for x in _compared(problem)]
        each = _parts(problem, operator.matmul(*_factors(problem, own)), own)
        groups.append([None if x is None else replace(x, at=where) for x, where in zip(each, at, strict=True)])
    return groups


def _factors(problem: Problem, given: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers that A and B stand for, in float64."""
    a, b = (values(storage, given[storage.letter], given) for storage in problem.dtype.stored)
    return a, b


def _parts(
    problem: Problem,
    product: torch.Tensor,
    operands: Mapping[str, Any],
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
) -> list[ExpectedPart | None]:
    """The expected part of each result; `product` has only the given `rows` or `columns`."""
    at: At = (...,)
    if rows is not None:
        at = (rows,)
    elif columns is not None:
        at = (..., columns)
    integer = not ELEMENTS[problem.dtype.sum].floating

    def matrix(x: torch.Tensor, at: At = at) -> ExpectedPart:
        # 8-bit results are saturated, because their tolerance does not cover saturation.
        value = x if problem.quantised is not None else quantise(x, torch_type(problem.dtype.out))
        return ExpectedPart(at, value, float(value.norm()), _scale(problem, value))

    def part(output: Output, x: torch.Tensor) -> ExpectedPart | None:
        writer = output.writer
        if output.gated and columns is not None:
            return matrix(x, (..., columns_of(columns, problem.shape.n, problem.epilogue.order)))
        if not writer.reduction:
            return matrix(x)
        # A sum over a column needs all rows, a sum over a row all columns, and a single element both.
        if (columns if writer.shape == ROWS else rows) is not None or (writer.shape == ELEMENT and columns is not None):
            return None
        exact = auxiliary_value(writer, Bounded(x, x.new_zeros(())), problem.dtype.out, integer=integer)
        norm, scale = float(exact.value.norm()), _scale(problem, x)
        if writer.reduction != "sum":
            return ExpectedPart(at, exact.value, norm, scale, exact.error)
        each = x.norm(dim=writer.dimension) + math.sqrt(x.shape[writer.dimension]) * scale
        return ExpectedPart(at, exact.value, max(norm, float(x.norm())), each, exact.error)

    outputs: list[ExpectedPart | None] = []
    n = problem.shape.n
    result = apply(problem.epilogue, product, operands, rows, columns, n, outputs=outputs, writer=part)
    return [matrix(result), *outputs]


def judge(problem: Problem, out: torch.Tensor, expected: Expected) -> Accuracy:
    """The error of one result. An element that is NaN, for example because it was never written, has an infinite error.

    Raises `Fault` for a result of another shape.
    """
    if tuple(out.shape) != expected.shape:
        raise Fault(f"{expected.name} is {tuple(out.shape)}, expected {expected.shape}")
    allowed = tolerance(problem.dtype, problem.shape.k) + quantised_roundoff(problem.quantised)
    if out.dtype.is_floating_point and bool(torch.isnan(out).any()):
        return Accuracy(expected.name, math.inf, math.inf, allowed)
    errors, worst = [0.0], [0.0]
    for part in expected.parts:
        difference = ((double(out[part.at]) - part.value).abs_() - part.own).clamp_(min=0)
        errors.append(float(difference.norm()) / (part.norm or 1.0))
        worst.append(float((difference / (part.value.abs() + part.scale)).max()))
    return Accuracy(expected.name, max(errors), max(worst), allowed)


def _scale(problem: Problem, x: torch.Tensor) -> float:
    """The scale of the errors of the elements of `x`: the root mean square of A @ B.

    It is sqrt(K) times the root mean squares of the operands: 1, but 2**b / sqrt(12) for b-bit integers that are not
    stored in another type, and less where half of the elements are 0. A gated linear unit multiplies two sums, so the
    error of one is multiplied by the other: then the scale is at least the root mean square of `x`.
    """
    scale = math.sqrt(problem.shape.k)
    for storage in problem.dtype.stored:
        if problem.dtype.plain and not storage.element.floating:
            scale *= 2.0**storage.bits / math.sqrt(12)
        scale /= math.sqrt(2.0) if storage.sparse else 1.0
    return scale if problem.epilogue.order is None else max(scale, float(x.norm()) / math.sqrt(x.numel()))
