"""Gradients of weights that are added where they are kept: `accumulate_into` of `nn.Linear`.

As in Megatron-LM, a parameter has as an attribute, `main_grad`, the tensor into which its gradients of several steps
are summed, in fp32 or in its own type. The kernel of the product adds to it: no gradient is made and added after.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .rows import rows_of

_FAMILY = importlib.import_module(__name__.rsplit(".", 2)[0])

#: The contracts that add A @ B to C, for the gradients of weights, which `nn` fills: by the types of A and B, and of C.
CONTRACTS: dict[tuple[torch.dtype, torch.dtype], str] = {}


def contract_for(weight: Tensor, kept: Any) -> str:
    """The contract that adds the gradient of a weight (N, K) to what is `kept`; raises for what none adds to.

    TypeError if that is no tensor, and ValueError for one of another shape or type, or with a stride along K.
    """
    if not isinstance(kept, Tensor):
        raise TypeError(f"what gradients are added to must be a tensor, got {type(kept).__name__}")
    if kept.shape != weight.shape or (kept.shape[1] > 1 and kept.stride(1) != 1):
        shapes = f"{tuple(kept.shape)} with strides {kept.stride()}"
        raise ValueError(f"what gradients are added to must be as the weight {tuple(weight.shape)}, got {shapes}")
    contract = CONTRACTS.get((weight.dtype, kept.dtype))
    if contract is None:
        there = ", ".join(f"{a} to {c}" for a, c in CONTRACTS) or "none"
        needed = f"layout crr with [{{accumulate: {{beta: 1}}}}] and these types; the family has {there}"
        raise ValueError(f"no contract adds products of {weight.dtype} to {kept.dtype}: list {needed}")
    return contract


class _Added(torch.autograd.Function):
    """The result of a layer, whose weight has no part in its graph: its gradient is added where it is kept."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, weight: Tensor, kept: Tensor, contract: str) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.kept, ctx.contract = weight, kept, contract
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        getattr(_FAMILY, ctx.contract)(rows.t(), rows_of(x), out=ctx.kept)
        own = None
        if hasattr(ctx.weight, "grad_added_to_main_grad"):
            # Who would add the gradient later reads this, in a hook that a gradient calls.
            ctx.weight.grad_added_to_main_grad = True
            own = gradient.new_zeros(()).expand(ctx.weight.shape)
        return gradient, None, own, None, None


def added(y: Tensor, x: Tensor, weight: Tensor, kept: Tensor, contract: str) -> Tensor:
    """The result of a layer without its weight's gradient, which the backward pass adds to what is `kept`."""
    result: Tensor = _Added.apply(y, x.detach(), weight, kept, contract)  # type: ignore[no-untyped-call]
    return result
