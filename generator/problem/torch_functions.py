"""The formula language and an epilogue in torch, without bounds: of float64 values, or as eager torch computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from generator.epilogue import formula
from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.chain import Epilogue, EpilogueOperand, Output, Step
from generator.epilogue.operations import HALVES
from generator.problem.chain_values import columns_of, run_chain, spread, taken_apart
from generator.problem.element_types import torch_type

Value = torch.Tensor | float


def _bound(function: Callable[..., torch.Tensor], clamp: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A maximum or minimum that propagates NaN; a bound that is a number does not need to become a tensor."""

    def bound(x: Value, y: Value) -> torch.Tensor:
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            return function(x, y)
        tensor, number = (x, y) if isinstance(x, torch.Tensor) else (y, x)
        return clamp(torch.as_tensor(tensor), number)

    return bound


def _where(condition: torch.Tensor | bool, x: Value, y: Value) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        x = torch.as_tensor(x, dtype=torch.float64)
    return torch.where(torch.as_tensor(condition), x, y)


def _on_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Value], torch.Tensor]:
    return lambda x: function(x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=torch.float64))


def _rounded(dtype: torch.dtype) -> Callable[[Value], torch.Tensor]:
    return _on_tensor(lambda x: x.to(dtype).to(x.dtype))


#: The functions that torch has by the same names.
_OF_TORCH = ("exp", "exp2", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid")
#: Each function and operator of the formula language, in torch.
FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    **formula.SYMBOLS,
    "where": _where,
    "max": _bound(torch.maximum, torch.clamp_min),
    "min": _bound(torch.minimum, torch.clamp_max),
    "abs": abs,
    **{word: _on_tensor(getattr(torch, word)) for word in _OF_TORCH},
    # Not torch's softplus, which returns x above a threshold.
    "softplus": _on_tensor(lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    **{word: _rounded(torch_type(word)) for word in ("fp16", "bf16", "fp32")},
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

    def operand(x: EpilogueOperand) -> Any:
        of = columns if columns is None or x.shape != HALVES else columns_of(columns, n, epilogue.order)
        value = operands[x.name]
        return spread(value, x.shape, rows, of).to(product.dtype) if isinstance(value, torch.Tensor) else value

    def evaluate(step: Step, names: dict[str, Any]) -> Any:
        computed = native(step, names) if native is not None else None
        return formula.evaluate(step.tree, names, FUNCTIONS, float) if computed is None else computed

    def write(output: Output, x: torch.Tensor) -> None:
        if outputs is not None:
            outputs.append(writer(output, x) if writer else auxiliary_value(output.writer, x))

    return run_chain(epilogue.steps, product, operand, evaluate, apart=taken_apart, write=write)


def auxiliary_value(writer: AuxiliaryOutput, x: torch.Tensor) -> torch.Tensor:
    """The auxiliary output `writer` of the running value `x`. Sums are at least fp32, because fp16 may overflow."""
    if writer.reduction == "sum":
        return x.sum(writer.dimension, dtype=torch.promote_types(x.dtype, torch.float32))
    return writer.lines(x).abs().amax(writer.dimension) if writer.reduction else x
