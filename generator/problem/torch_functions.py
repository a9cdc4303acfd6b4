"""The formula language and an epilogue in torch, without bounds: of float64 values, or as eager torch computes them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from generator.epilogue import formula
from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.chain import Epilogue, EpilogueOperand, Output, Step
from generator.epilogue.operations import HALVES
from generator.problem.chain_values import columns_of, run_chain, spread, taken_apart

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


def apply(
    epilogue: Epilogue,
    product: torch.Tensor,
    operands: Mapping[str, Value],
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    n: int = 0,
    *,
    outputs: list[Any] | None = None,
    writer: Callable[[Output, torch.Tensor], Any] | None = None,
    native: Callable[[Step, Mapping[str, Value]], torch.Tensor | None] | None = None,
) -> torch.Tensor:
    """Apply `epilogue` to `product` (M, N), in the dtype of `product`.

    With `rows` or `columns`, `product` and the result have only these rows, or these of `n` columns. With a gated
    linear unit `product` is (M, 2N), or has the two columns of each of `columns`. Auxiliary outputs are appended to
    `outputs`: each is what `writer` returns for the output and the running value, or `auxiliary_value` by default.
    `native` may compute a step in another way than by its formula, or return None.
    """

    def operand(x: EpilogueOperand) -> Value:
        of = columns if columns is None or x.shape != HALVES else columns_of(columns, n, epilogue.order)
        value = operands[x.name]
        return spread(value, x.shape, rows, of).to(product.dtype) if isinstance(value, torch.Tensor) else value

    def evaluate(step: Step, names: dict[str, Value]) -> Value:
        computed = native(step, names) if native is not None else None
        return formula.evaluate(step.tree, names, FUNCTIONS, float) if computed is None else computed

    def apart(x: Value, order: str) -> tuple[Value, Value]:
        assert isinstance(x, torch.Tensor)
        return taken_apart(x, order)

    def write(output: Output, x: Value) -> None:
        if outputs is not None:
            assert isinstance(x, torch.Tensor)
            outputs.append(writer(output, x) if writer else auxiliary_value(output.writer, x))

    start: Value = product
    result = run_chain(epilogue.steps, start, operand, evaluate, apart=apart, write=write)
    assert isinstance(result, torch.Tensor)
    return result


def auxiliary_value(writer: AuxiliaryOutput, x: torch.Tensor) -> torch.Tensor:
    """The auxiliary output `writer` of the running value `x`. Sums are at least fp32, because fp16 may overflow."""
    if writer.reduction == "sum":
        return x.sum(writer.dimension, dtype=torch.promote_types(x.dtype, torch.float32))
    return writer.lines(x).abs().amax(writer.dimension) if writer.reduction else x
