"""The gradients of a contract by torch's autograd in float64, with bounds on the error of a correct family.

The bound is derived, as that of results is (`generator.problem.error_propagation`), with unit roundoff 2^-24:

- the sum S = A @ B has the error of K products, gamma(K + 1) |A| |B|, and the rounding to the type it is kept in;
- the chain, and its derivatives times the gradients of the results, have running bounds through their own formulas;
- the gradient of an operand is a sum of M, N or M * N terms in any order, gamma(terms) times their magnitudes;
- dA = dS @ B^T is a sum of N products and dB = A^T @ dS one of M, to which |error of dS| |B^T| and so on are added;
- whatever is stored is rounded: half a unit in the last place of its type.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from generator.epilogue.chain_gradients import StepGradient, gradients
from generator.epilogue.derivative import product
from generator.epilogue.formula import GATE, X
from generator.epilogue.gated_units import CONCATENATED
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX, ROWS
from generator.language.model import Variant
from generator.plan.contract_call import call
from generator.problem.accumulation_bounds import accumulation_error
from generator.problem.chain_values import taken_apart
from generator.problem.element_types import half_ulp, torch_type
from generator.problem.error_propagation import FUNCTIONS, Bounded, sum_along
from generator.problem.reference import evaluate
from generator.problem.torch_functions import apply
from tests.helpers.emit.calls import SIZES, contracts, drawn, operands, results

Tensors = Mapping[str, torch.Tensor]

#: The running gradient in a tree.
_GRADIENT = "grad"


def _of_results(variant: Variant, found: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Gradients of the results of a call; a maximum has none."""
    constant = {output.name for output in variant.epilogue.outputs if output.writer.reduction == "amax"}
    described = call(variant).results
    return [
        None if result.name in constant else drawn(x.shape, x.dtype, seed=90 + at)
        for at, (result, x) in enumerate(zip(described, found, strict=True))
    ]


def check(family: ModuleType, name: str, sizes: Mapping[str, int] = SIZES, *, tight: bool = True) -> None:
    """Assert that the gradients of every operand of a contract are within their bounds.

    With `tight` the bounds are asserted to be finite and small beside the gradients; without it an element is left out
    if it has no bound, or no gradient that is finite.
    """
    variant = contracts(family)[name]
    given = {x: value.requires_grad_() for x, value in operands(variant, sizes).items()}
    found = results(getattr(family, name)(**given))
    of = _of_results(variant, found)
    pairs = [(x, gradient) for x, gradient in zip(found, of) if gradient is not None]
    torch.autograd.backward([x for x, _ in pairs], [gradient for _, gradient in pairs])
    expected, allowed = by_autograd(variant, given, of), bounds(variant, given, of)
    small = 2.0**-8 if variant.dtype.a == variant.dtype.out == "fp32" else 2.0**-3
    for x, value in given.items():
        assert value.grad is not None and (value.grad.shape, value.grad.dtype) == (value.shape, value.dtype), x
        assert x not in ("a", "b") or value.grad.stride() == value.stride()
        error = (value.grad.double() - expected[x]).abs()
        right = error <= allowed[x]
        if tight:
            assert not value.numel() or allowed[x].median() <= small * expected[x].abs().max().clamp(min=1), x
        else:
            right |= allowed[x].isnan() | ~expected[x].isfinite()
        assert bool(right.all()), f"{x}: {(error / allowed[x]).max()} of what is allowed"


def by_autograd(variant: Variant, given: Tensors, of: Sequence[torch.Tensor | None]) -> dict[str, torch.Tensor]:
    """The gradients of all operands in float64; `of` are those of the results, None for a maximum."""
    wide = {x: value.detach().double().requires_grad_() for x, value in given.items()}
    outputs: list[torch.Tensor] = []
    out = apply(variant.epilogue, wide["a"] @ wide["b"], wide, outputs=outputs)
    pairs = [(x, gradient.double()) for x, gradient in zip((out, *outputs), of, strict=True) if gradient is not None]
    results, gradients_of_results = map(list, zip(*pairs))
    found = torch.autograd.grad(results, [*wide.values()], gradients_of_results, materialize_grads=True)
    return dict(zip(wide, found))


def bounds(variant: Variant, given: Tensors, of: Sequence[torch.Tensor | None]) -> dict[str, torch.Tensor]:
    """A bound on the absolute error of the gradient of each operand, in float64 and of the operand's shape."""
    a, b = given["a"].detach().double(), given["b"].detach().double()
    dtype, found = torch_type(variant.dtype.a), {}
    kept = dtype if variant.epilogue.gate else torch_type(variant.dtype.out)
    total = Bounded(a @ b, accumulation_error(a, b, variant.dtype, hardware=False))
    steps = gradients(variant.chain)
    values = _values(steps, _stored(total, kept), given)
    out, *outputs = of
    g = _exact(out if out is not None else torch.zeros(()))
    for step, x in zip(steps, reversed(values)):
        if step.step.output is not None:
            gradient = outputs.pop()
            if gradient is not None:
                g = FUNCTIONS["+"](g, _exact(_broadcast(gradient, step.step.output.shape)))
            continue
        names = _names(step, x, given)
        for operand, tree in step.operands.values():
            term, like = _times(g, tree, names), given[operand.name]
            found[operand.name] = _stored(_reduced(term, g.value.shape, operand.shape, like.dim()), like.dtype)
        parts = [_times(g, tree, names) for tree in step.values.values()]
        g = parts[0] if len(parts) == 1 else _joined(parts, step.step.order)
    g = _stored(_expanded(g, total.value.shape), dtype)
    found["a"] = _stored(_product(g, _exact(b.mT), variant), dtype)
    found["b"] = _stored(_product(_exact(a.mT), g, variant), dtype)
    return {x: each.error.expand(each.value.shape).reshape(given[x].shape) for x, each in found.items()}


def _exact(x: torch.Tensor) -> Bounded:
    return Bounded(x.detach().double(), torch.zeros((), dtype=torch.float64))


def _stored(x: Bounded, dtype: torch.dtype) -> Bounded:
    """`x` in a type; what is computed in fp32 is not rounded again to be fp32."""
    return x if dtype == torch.float32 else Bounded(x.value, x.error + half_ulp(x.value.abs() + x.error, dtype))


#: A conversion within a chain has the derivative 1: the reference is the chain without it.
_TABLE: Mapping[str, Callable[..., Any]] = {
    **FUNCTIONS,
    **{word: lambda x, word=word: _stored(x, torch_type(word)) for word in ("fp16", "bf16", "fp32")},
}


def _values(steps: Sequence[StepGradient], x: Bounded, given: Tensors) -> list[Bounded]:
    """The running value before each step of a chain, the first step first."""
    found = []
    for step in reversed(steps):
        found.append(x)
        if step.step.output is None:
            x = evaluate(step.step.tree, _names(step, x, given), _TABLE)
    return found


def _names(step: StepGradient, x: Bounded, given: Tensors) -> dict[str, Bounded]:
    """What the trees of a step are over."""
    names = {X: x}
    if step.step.meaning.gated:
        halves = zip(*(taken_apart(part, step.step.order) for part in (x.value, x.error)))
        names = dict(zip((GATE, X), (Bounded(*half) for half in halves)))
    return names | {
        local: _exact(_broadcast(given[operand.name], operand.shape)) for local, (operand, _) in step.operands.items()
    }


def _broadcast(x: torch.Tensor, shape: str) -> torch.Tensor:
    """An operand or an output, or a batch of them, as it is broadcast over (M, N)."""
    return x[..., None] if shape == ROWS else x[..., None, :] if shape in (COLUMNS, HALVES) else x


def _times(g: Bounded, tree: ast.expr, names: Mapping[str, Bounded]) -> Bounded:
    """The running gradient times a derivative."""
    return evaluate(product(ast.Name(_GRADIENT), tree), {**names, _GRADIENT: g}, _TABLE)


def _expanded(x: Bounded, shape: torch.Size) -> Bounded:
    return Bounded(x.value.expand(shape), x.error.expand(shape))


def _reduced(x: Bounded, shape: torch.Size, of: str, dimensions: int) -> Bounded:
    """The gradient of an operand of shape `of` with so many dimensions, from what each element (M, N) adds to it."""
    x = _expanded(x, torch.broadcast_shapes(x.value.shape, shape))
    if of == MATRIX:
        return x
    if dimensions == 2:
        return sum_along(x, -1 if of == ROWS else -2)
    kept = {ROWS: -2, COLUMNS: -1, HALVES: -1}.get(of)
    parts = [part[None] if kept is None else part.movedim(kept, 0) for part in (x.value, x.error)]
    return sum_along(Bounded(*(part.flatten(1) for part in parts)), 1)


def _joined(halves: Sequence[Bounded], order: str) -> Bounded:
    """The gradients of both halves in front of a gated linear unit, in b's columns."""

    def join(parts: list[torch.Tensor]) -> torch.Tensor:
        parts = [*torch.broadcast_tensors(*parts)]
        return torch.cat(parts, -1) if order == CONCATENATED else torch.stack(parts, -1).flatten(-2)

    value = join([half.value for half in halves])
    return Bounded(value, join([half.error.expand(half.value.shape) for half in halves]))


def _product(x: Bounded, y: Bounded, variant: Variant) -> Bounded:
    """A product of two matrices by a contract of the family, one of which has errors."""
    left, right = x.value.abs() + x.error, y.value.abs() + y.error
    own = accumulation_error(left, right, variant.dtype, hardware=False)
    return Bounded(x.value @ y.value, own + left @ right - x.value.abs() @ y.value.abs())
