"""What a kernel should compute, in float64 from the meaning of its spec, and how far rounding may take it from there.

Every value travels with a bound on the error that a correct kernel may have made by then: running error analysis as in
Higham, Accuracy and Stability of Numerical Algorithms, section 3.3, carried through the formula node by node.
The store's own rounding is not in the bound; `compare` adds it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from generator import formula
from generator.epilogue import COLUMNS, ROWS, Step
from generator.model import Variant
from generator.verify.elements import FP32_ROUNDOFF, FP32_TINY
from generator.verify.product import accumulation_error
from generator.vocabulary import ELEMENTS

#: What the epilogue's functions may be off by, in units of roundoff relative to their result. Hardware divides to 2 ulp
#: (PTX `div.full.f32`) and exponentiates to 2 ulp (`ex2.approx.f32`); an ulp is at most two roundoffs.
_DIVISION = 4.0
_EXPONENTIAL = 4.0
#: CUDA C++ programming guide, table of single-precision functions: erff 2 ulp.
_ERF = 4.0
#: tanh as 1 - 2 / (exp(2x) + 1) down to x = -1/4, where the quotient is 1.25 and the result 0.245: the roundings of the
#: quotient count five times. Nearer zero a series is needed, and is better than this.
_TANH = 5.0 * (_DIVISION + _EXPONENTIAL)


@dataclass(frozen=True)
class Bounded:
    """A value and what a kernel's may differ from it: float64 tensors that broadcast to (M, N), or (B, M, N)."""

    value: torch.Tensor
    error: torch.Tensor


def reference(
    variant: Variant,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Mapping[str, torch.Tensor | float],
    *,
    hardware: bool,
) -> Bounded:
    """The (M, N) result of `variant` on `a` (M, K), `b` (K, N) and the epilogue's operands, before the store rounds it.

    Of a batch all matrices have its dimension in front.

    `hardware` tells whether a matrix unit multiplies (tf32, a short fp8 accumulator, truncated sums) or the
    interpreter, which has none of these.
    """
    a64, b64 = a.double(), b.double()
    product = a64 @ b64
    error = accumulation_error(a64, b64, variant.dtype, hardware=hardware)
    # What is infinite or NaN is so exactly.
    return finish(variant, Bounded(product, torch.where(product.isfinite(), error, 0.0)), operands)


def finish(variant: Variant, x: Bounded, operands: Mapping[str, torch.Tensor | float]) -> Bounded:
    """The epilogue of `variant` on the accumulator `x`: fp32 arithmetic, integers kept while every step keeps them."""
    integer = not ELEMENTS[variant.dtype.acc].floating
    for step in variant.epilogue.steps:
        if integer and not formula.keeps_integers(step.tree):
            x, integer = _read(x), False
        x = _apply(step, x, operands)
    return _read(x) if integer and ELEMENTS[variant.dtype.out].floating else x


def _apply(step: Step, x: Bounded, operands: Mapping[str, torch.Tensor | float]) -> Bounded:
    names = {formula.X: x}
    for local, operand in step.operands:
        value = torch.as_tensor(operands[operand.name], dtype=torch.float64, device=x.value.device)
        if operand.shape == ROWS:
            value = value[:, None]
        elif operand.shape == COLUMNS:
            value = value[None, :]
        names[local] = _read(Bounded(value, torch.zeros_like(value)))
    return evaluate(step.tree, names)


def _read(x: Bounded) -> Bounded:
    """`x` read as fp32: exact where fp32 holds it, otherwise off by one rounding."""
    exact = (x.value.float().double() == x.value) & (x.error == 0)
    magnitude = x.value.abs() + x.error
    return Bounded(x.value, torch.where(exact, 0.0, x.error + FP32_ROUNDOFF * magnitude))


def evaluate(tree: ast.expr, names: Mapping[str, Bounded]) -> Bounded:
    """The value of a checked formula over `names`, with the error that fp32 arithmetic may have made."""
    match tree:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=value):
            assert isinstance(value, (int, float))
            constant = torch.tensor(float(value), dtype=torch.float64, device=names[formula.X].value.device)
            return _read(Bounded(constant, torch.zeros_like(constant)))
        case ast.UnaryOp(operand=operand):
            x = evaluate(operand, names)
            return Bounded(-x.value, x.error)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](evaluate(left, names), evaluate(right, names))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return FUNCTIONS[function](*(evaluate(argument, names) for argument in arguments))
    raise TypeError(f"not a node of the formula language: {ast.dump(tree)}")


def _rounded(value: torch.Tensor, error: torch.Tensor, roundoffs: float | torch.Tensor = 1.0) -> Bounded:
    """A computed value: the operands' `error` and `roundoffs` units of its own, relative and at the bottom of fp32."""
    own = FP32_ROUNDOFF * roundoffs * (value.abs() + error)
    return Bounded(value, torch.where(value.isfinite(), error + own + FP32_TINY, 0.0))


def _add(x: Bounded, y: Bounded) -> Bounded:
    return _rounded(x.value + y.value, x.error + y.error)


def _subtract(x: Bounded, y: Bounded) -> Bounded:
    return _rounded(x.value - y.value, x.error + y.error)


def _multiply(x: Bounded, y: Bounded) -> Bounded:
    error = x.value.abs() * y.error + y.value.abs() * x.error + x.error * y.error
    return _rounded(x.value * y.value, error)


def _divide(x: Bounded, y: Bounded) -> Bounded:
    value = x.value / y.value
    # |x'/y' - x/y| = |(x' - x) - (x/y)(y' - y)| / |y'|; a divisor that may be 0 bounds nothing.
    nearest = (y.value.abs() - y.error).clamp(min=0)
    return _rounded(value, (x.error + value.abs() * y.error) / nearest, _DIVISION)


def _max(x: Bounded, y: Bounded) -> Bounded:
    # |max(x', y') - max(x, y)| is at most the larger of the two differences, and nothing is rounded.
    return Bounded(torch.maximum(x.value, y.value), torch.maximum(x.error, y.error))


def _erf(x: Bounded) -> Bounded:
    nearest = (x.value.abs() - x.error).clamp(min=0)
    slope = 2 / math.sqrt(math.pi) * torch.exp(-nearest * nearest)
    return _rounded(torch.erf(x.value), slope * x.error, _ERF)


def _sigmoid(x: Bounded) -> Bounded:
    value = torch.sigmoid(x.value)
    nearest = (x.value.abs() - x.error).clamp(min=0)
    slope = torch.sigmoid(nearest) * torch.sigmoid(-nearest)
    # 1 / (1 + exp(-x)): the exponential is off by its own roundoffs and, as its argument is scaled by log2(e) in fp32
    # first, by two more for each unit of x; all of it weighs as exp(-x) does in the sum, which is 1 - value.
    exponential = (1 - value) * (_EXPONENTIAL + 2 * x.value.abs())
    exponential = torch.where(x.value.isfinite(), exponential, 0.0)
    return _rounded(value, slope * x.error, exponential + 1 + _DIVISION)


def _tanh(x: Bounded) -> Bounded:
    nearest = torch.tanh((x.value.abs() - x.error).clamp(min=0))
    slope = 1 - nearest * nearest
    return _rounded(torch.tanh(x.value), slope * x.error, _TANH)


_OPERATORS: Mapping[type[ast.operator], Callable[[Bounded, Bounded], Bounded]] = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
}

#: One entry a function of the formula language.
FUNCTIONS: Mapping[str, Callable[..., Bounded]] = {
    "max": _max,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
}
