"""An epilogue on values of any kind, and which rows and columns of an operand belong to which elements of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

from generator.epilogue import formula
from generator.epilogue.chain import EpilogueOperand, Output, Step
from generator.epilogue.gated_units import INTERLEAVED
from generator.epilogue.operations import COLUMNS, HALVES, ROWS

Value = TypeVar("Value")


def run_chain(
    steps: Iterable[Step],
    x: Value,
    operand: Callable[[EpilogueOperand], Value],
    evaluate: Callable[[Step, dict[str, Value]], Value],
    *,
    apart: Callable[[Value, str], tuple[Value, Value]],
    write: Callable[[Output, Value], None],
) -> Value:
    """The running value behind all `steps` from `x` on.

    `operand` gives the value of an operand, `evaluate` that of a step for the values of its names, `apart` those of the
    two halves of a gated unit; `write` takes each auxiliary output.
    """
    for step in steps:
        if step.output is not None:
            write(step.output, x)
            continue
        names = {formula.X: x}
        if step.meaning.gated:
            names = dict(zip((formula.GATE, formula.X), apart(x, step.order)))
        names |= {local: operand(each) for local, each in step.operands}
        x = evaluate(step, names)
    return x


def taken_apart(x: torch.Tensor, order: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The gate's columns of `x` (..., 2N) and the other columns, (..., N) each; a single column is both."""
    if x.dim() == 0 or x.shape[-1] == 1:
        return x, x
    if order == INTERLEAVED:
        return x[..., 0::2], x[..., 1::2]
    gate, other = x.chunk(2, -1)
    return gate, other


def columns_of(columns: torch.Tensor, n: int, order: str | None) -> torch.Tensor:
    """The indices of the columns of b from which `columns` of a result with `n` columns are computed.

    `order` is the order of gated columns; None means that b has as many columns as the result.
    """
    if order is None:
        return columns
    if order == INTERLEAVED:
        return torch.stack((2 * columns, 2 * columns + 1), -1).flatten()
    return torch.cat((columns, n + columns))


def spread(
    value: torch.Tensor, shape: str, rows: torch.Tensor | None = None, columns: torch.Tensor | None = None
) -> torch.Tensor:
    """An operand of `shape`, reshaped to broadcast to (M, N), or to the given `rows` and `columns` of it."""
    if shape == ROWS:
        value = value[..., None]
    elif shape in (COLUMNS, HALVES):
        value = value[..., None, :]
    if rows is not None and value.dim() == 2 and value.shape[0] > 1:
        value = value[rows]
    if columns is not None and value.dim() == 2 and value.shape[1] > 1:
        value = value[:, columns]
    return value
