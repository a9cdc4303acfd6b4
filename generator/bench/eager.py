"""An epilogue in plain torch operations: in float64 for the check, in the output's type for the peer."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

import torch

from generator import formula
from generator.epilogue import COLUMNS, ROWS, Epilogue

Value = torch.Tensor | float


def _maximum(x: Value, y: Value) -> Value:
    """The larger of two values, NaN where one is."""
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return torch.maximum(x, y)
    if isinstance(x, torch.Tensor):
        return torch.clamp(x, min=y)
    return torch.clamp(y, min=x) if isinstance(y, torch.Tensor) else max(x, y)


def _on_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Value], Value]:
    return lambda x: function(torch.as_tensor(x))


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "max": _maximum,
    "erf": _on_tensor(torch.erf),
    "sigmoid": _on_tensor(torch.sigmoid),
    "tanh": _on_tensor(torch.tanh),
}


def evaluate(tree: ast.expr, names: Mapping[str, Value]) -> Value:
    """The value of a checked formula over `names`; raise KeyError for a function that torch is not told of here."""
    match tree:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=value):
            assert isinstance(value, (int, float))
            return value
        case ast.UnaryOp(operand=operand):
            return -evaluate(operand, names)
        case ast.BinOp(left=left, op=op, right=right):
            x, y = evaluate(left, names), evaluate(right, names)
            match op:
                case ast.Add():
                    return x + y
                case ast.Sub():
                    return x - y
                case ast.Mult():
                    return x * y
            return x / y
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return FUNCTIONS[function](*(evaluate(argument, names) for argument in arguments))
    raise TypeError(f"not a node of the formula language: {ast.dump(tree)}")


def apply(
    epilogue: Epilogue,
    product: torch.Tensor,
    operands: Mapping[str, Value],
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
) -> torch.Tensor:
    """`epilogue` on `product` (M, N), in its dtype; with `rows` or `columns` the product is those alone."""
    x: Value = product
    for step in epilogue.steps:
        names: dict[str, Value] = {formula.X: x}
        for local, operand in step.operands:
            names[local] = _part(operands[operand.name], operand.shape, product.dtype, rows, columns)
        x = evaluate(step.tree, names)
    assert isinstance(x, torch.Tensor)
    return x


def _part(
    value: Value, shape: str, dtype: torch.dtype, rows: torch.Tensor | None, columns: torch.Tensor | None
) -> Value:
    """An operand in the product's type, broadcast to (M, N), or to the rows and columns given."""
    if not isinstance(value, torch.Tensor):
        return value
    if shape == ROWS:
        value = value[:, None]
    elif shape == COLUMNS:
        value = value[None, :]
    if rows is not None and value.dim() == 2 and value.shape[0] > 1:
        value = value[rows]
    if columns is not None and value.dim() == 2 and value.shape[1] > 1:
        value = value[:, columns]
    return value.to(dtype)
