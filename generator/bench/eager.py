"""An epilogue in plain torch operations: by its formulas for the check in float64, by torch's functions for peers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from generator.epilogue import formula
from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.chain import Epilogue, Output, Step
from generator.epilogue.formula import Number
from generator.epilogue.operations import HALVES
from generator.verify.element_types import SATURATED
from generator.verify.gate_columns import columns_of, taken_apart
from generator.verify.reference import spread

Value = torch.Tensor | float


def _bound(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Value, Value], Value]:
    """A maximum or minimum that propagates NaN; a bound that is a number does not need to become a tensor."""

    def bound(x: Value, y: Value) -> Value:
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            return function(x, y)
        tensor, number = (x, y) if isinstance(x, torch.Tensor) else (y, x)
        assert not isinstance(number, torch.Tensor)
        if function is torch.maximum:
            return torch.clamp(torch.as_tensor(tensor), min=number)
        return torch.clamp(torch.as_tensor(tensor), max=number)

    return bound


def _where(condition: torch.Tensor | bool, x: Value, y: Value) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        x = torch.as_tensor(x, dtype=torch.float64)
    return torch.where(torch.as_tensor(condition), x, y)


def _on_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Value], torch.Tensor]:
    return lambda x: function(x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=torch.float64))


def _rounded(dtype: torch.dtype) -> Callable[[Value], torch.Tensor]:
    return _on_tensor(lambda x: x.to(dtype).to(x.dtype))


#: Each function and operator of the formula language, in torch.
FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "negative": operator.neg,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "where": _where,
    "max": _bound(torch.maximum),
    "min": _bound(torch.minimum),
    "abs": abs,
    "exp": _on_tensor(torch.exp),
    "exp2": _on_tensor(torch.exp2),
    "log": _on_tensor(torch.log),
    "sqrt": _on_tensor(torch.sqrt),
    "rsqrt": _on_tensor(torch.rsqrt),
    "erf": _on_tensor(torch.erf),
    "tanh": _on_tensor(torch.tanh),
    "sigmoid": _on_tensor(torch.sigmoid),
    # Not torch's softplus, which returns x above a threshold.
    "softplus": _on_tensor(lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    "fp16": _rounded(torch.float16),
    "bf16": _rounded(torch.bfloat16),
    "fp32": _rounded(torch.float32),
}


#: Operations for which torch has one function with the same parameters, instead of several calls for the formula.
NATIVE: Mapping[str, Callable[..., torch.Tensor]] = {
    "relu": functional.relu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": functional.softplus,
    "hardswish": functional.hardswish,
    "clamp": torch.clamp,
    # Gated linear units, given their two values.
    "swiglu": lambda gate, x: functional.silu(gate) * x,
    "geglu": lambda gate, x: functional.gelu(gate) * x,
    "geglu_tanh": lambda gate, x: functional.gelu(gate, approximate="tanh") * x,
    "reglu": lambda gate, x: functional.relu(gate) * x,
}


def apply(
    epilogue: Epilogue,
    product: torch.Tensor,
    operands: Mapping[str, Value],
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    n: int = 0,
    *,
    native: bool = False,
    outputs: list[Any] | None = None,
    writer: Callable[[Output, torch.Tensor], Any] | None = None,
) -> torch.Tensor:
    """Apply `epilogue` to `product` (M, N), in the dtype of `product`.

    With `rows` or `columns`, `product` and the result have only these rows, or these of `n` columns. With a gated
    linear unit `product` is (M, 2N), or has the two columns of each of `columns`. With `native`, operations use torch's
    own functions where these exist, as a user would write them. Auxiliary outputs are appended to `outputs`: each is
    what `writer` returns for the output and the running value, or `auxiliary_value` by default.
    """
    x: Value = product
    for step in epilogue.steps:
        if step.output is not None:
            if outputs is not None:
                assert isinstance(x, torch.Tensor)
                outputs.append(writer(step.output, x) if writer else auxiliary_value(step.output.writer, x))
            continue
        names: dict[str, Value] = {formula.X: x}
        if step.meaning.gated:
            assert isinstance(x, torch.Tensor)
            names = dict(zip((formula.GATE, formula.X), taken_apart(x, step.order)))
        if native and step.operation in NATIVE and not step.operands:
            x = NATIVE[step.operation](*names.values(), **_parameters(step))
            continue
        for local, operand in step.operands:
            of = columns if columns is None or operand.shape != HALVES else columns_of(columns, n, epilogue.order)
            value = operands[operand.name]
            if isinstance(value, torch.Tensor):
                value = spread(value, operand.shape, rows, of).to(product.dtype)
            names[local] = value
        x = formula.evaluate(step.tree, names, FUNCTIONS, float)
    assert isinstance(x, torch.Tensor)
    return x


def auxiliary_value(writer: AuxiliaryOutput, x: torch.Tensor) -> torch.Tensor:
    """The auxiliary output `writer` of the running value `x`. Sums are at least fp32, because fp16 may overflow."""
    if writer.reduction == "sum":
        return x.sum(writer.dimension, dtype=torch.promote_types(x.dtype, torch.float32))
    return x.abs().amax(writer.dimension) if writer.reduction else x


def _parameters(step: Step) -> dict[str, Number]:
    """The numbers of an operation's parameters, without infinite bounds."""
    given = {**step.meaning.scalars, **dict(step.settings)}
    numbers = {name: value for name, value in given.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if abs(value) <= formula.LARGEST}


def saturated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` clamped to the range of an 8-bit type, and rounded for integers; unchanged for other types."""
    if dtype not in SATURATED:
        return x
    x = x.clamp(*SATURATED[dtype])
    return x if dtype.is_floating_point or not x.is_floating_point() else x.round()
