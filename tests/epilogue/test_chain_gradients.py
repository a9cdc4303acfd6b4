"""The gradients of whole chains, computed from the derivatives of their steps, against torch's autograd."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from generator.epilogue import formula
from generator.epilogue.chain import Epilogue
from generator.epilogue.chain_gradients import gradients, reads_sum
from generator.epilogue.derivative import product
from generator.epilogue.formula import X
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX, ROWS
from generator.language.built_in import chain_of
from generator.problem import torch_functions
from generator.problem.chain_values import taken_apart
from generator.problem.reference import spread

M, N = 5, 7
SHAPES: dict[str, tuple[int, ...]] = {"": (1,), "1": (1,), ROWS: (M,), COLUMNS: (N,), HALVES: (2 * N,), MATRIX: (M, N)}


INTERLEAVED = {"operation": "swiglu", "formula": "gate * sigmoid(gate) * x", "operands": {}, "scalars": {}}
INTERLEAVED |= {"settings": {"order": "interleaved"}}


def times(g: torch.Tensor, tree: ast.expr, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """g times a derivative at `values`."""
    return formula.evaluate(product(ast.Name("g"), tree), {"g": g, **values}, torch_functions.FUNCTIONS, float)


def reduced(gradient: torch.Tensor, shape: str) -> torch.Tensor:
    """An operand's gradient from that of each element."""
    if shape == MATRIX:
        return gradient
    return gradient.sum(1) if shape == ROWS else gradient.sum(0) if shape in (COLUMNS, HALVES) else gradient.sum()[None]


def backward(
    chain: Epilogue, x: torch.Tensor, operands: dict[str, torch.Tensor], of: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The gradients of the sum (as "sum") and of each operand; `of` are those of the result and the outputs."""
    found: dict[str, torch.Tensor] = {}
    g, *others = of
    for at, gradient in enumerate(gradients(chain)):
        before = torch_functions.apply(Epilogue(chain.steps[: len(chain.steps) - 1 - at]), x, operands)
        if gradient.step.output is not None:
            # A gradient of a row or a column is one of each of its elements.
            g = g + spread(others.pop(), gradient.step.output.shape)
            continue
        halves = taken_apart(before, gradient.step.order) if gradient.step.meaning.gated else (before,)
        values = dict(zip(gradient.values, halves))
        values |= {local: spread(operands[o.name], o.shape) for local, (o, _) in gradient.operands.items()}
        for operand, tree in gradient.operands.values():
            found[operand.name] = reduced(times(g, tree, values).expand(before.shape), operand.shape)
        parts = [times(g, tree, values) for tree in gradient.values.values()]
        g = parts[0] if len(parts) == 1 else joined(parts, gradient.step.order)
    return {"sum": g, **found}


def joined(halves: list[torch.Tensor], order: str) -> torch.Tensor:
    return torch.cat(halves, 1) if order == "concatenated" else torch.stack(halves, 2).flatten(1)


@pytest.mark.parametrize(
    "operations",
    [
        ["bias", "gelu"],
        ["scale", "bias_m", "silu", "mul", "add"],
        ["bias", "save", "relu", "scale_n", "scale_m", "tanh"],
        ["add", "add", "hardswish", "add"],
        ["bias", "row_sum", "sigmoid", "col_sum", "softplus"],
        ["bias", "swiglu", "mul"],
        ["scale_n", "bias_m", "geglu_tanh", "bias", "save"],
        ["bias", INTERLEAVED],
    ],
    ids=lambda operations: "+".join(map(str, operations))[:40],
)
def test_gradients_are_those_of_autograd(operations: list[Any]) -> None:
    chain = chain_of(operations)
    random = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()

    x = drawn(M, N * chain.columns_of_b)
    operands = {operand.name: drawn(*SHAPES[operand.shape]) for operand in chain.operands}
    outputs: list[torch.Tensor] = []
    result = torch_functions.apply(chain, x, operands, outputs=outputs)
    of = [torch.randn(value.shape, generator=random, dtype=torch.float64) for value in (result, *outputs)]
    leaves = {"sum": x, **operands}
    expected = dict(zip(leaves, torch.autograd.grad([result, *outputs], list(leaves.values()), of)))
    got = backward(chain, x.detach(), {name: value.detach() for name, value in operands.items()}, of)
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-11, atol=1e-13)


def test_a_maximum_alone_has_no_gradient() -> None:
    outputs = chain_of(["save", "row_sum", "col_sum", "row_amax"]).outputs
    assert [output.writer.differentiable for output in outputs] == [True, True, True, False]


@pytest.mark.parametrize(
    ("operations", "keywords", "reads"),
    [
        *(("", "", False), ("bias add bias_m save col_sum", "bias add bias_m", False), ("scale_m", "", False)),
        *(("scale_m", "scale_m", True), ("mul bias", "bias", False), ("bias relu", "", True), ("swiglu", "", True)),
        ("row_amax", "", False),
    ],
)
def test_chains_whose_gradients_read_the_sum(operations: str, keywords: str, reads: bool) -> None:
    assert reads_sum(chain_of(operations.split()), keywords.split()) is reads


def test_rounding_between_operations_passes_gradients_on() -> None:
    chain = chain_of(["bias", "gelu", "add"]).rounded("fp32", "bf16")
    found = {gradient.step.operation: ast.unparse(gradient.values[X]) for gradient in gradients(chain)}
    assert found["bf16"] == found["add"] == found["bias"] == "1" and "erf" in found["gelu"]
    assert [gradient.step for gradient in gradients(chain)] == list(reversed(chain.steps))
