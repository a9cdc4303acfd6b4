"""Calls for which a gradient is recorded, without an operator of torch, which takes several times as long.

Torch sees a function of its own for each contract. Calls that are traced, transformed or seen by a mode are those of
`operators`, with the same gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import autograd
from .launch import Config, Operands, Result
from .operators import Operator, without_sum
from .rows import rows_of


def recorder(contract: Operator) -> Callable[..., Result]:
    """A function that calls a contract with gradients, and records the call for its backward pass.

    It raises what the contract's kernels raise.
    """
    entry = contract.gradient or {}
    if "saving" in entry:
        saving = contract.function(entry["saving"])

        def instead(
            a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands, of_layer: bool
        ) -> Result:
            return without_sum(saving.recorded(a, b, config, operands, of_layer=of_layer, out=out))

        return instead
    signature, direct = contract.signature, contract.direct
    backward, _, save = autograd.autograd(contract)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor, *arguments: Any) -> Result:
            # The tensors among the operands are arguments of their own, for torch.
            *_, config, out, operands, of_layer = arguments
            product = (rows_of(a), b.t()) if of_layer else (a, b)
            found = direct(*product, out, config, operands)
            if out is not None:
                ctx.mark_dirty(out)
            save(ctx, a, b, operands, found, of_layer)
            ctx.leading = leading = a.shape[:-1] if of_layer and a.dim() > 2 else None
            if leading is not None:
                result, *others = found if isinstance(found, tuple) else (found,)
                # No view, so that it can be changed in place.
                result = torch.ops.aten._unsafe_view(result, (*leading, result.shape[-1]))
                found = (result, *others) if others else result
            return found

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
            if not ctx.of_layer:
                return *backward(ctx, *gradients), of_out(ctx, gradients[0]), None, None
            out, *others = gradients
            of_a, of_b, *of_others = backward(ctx, None if out is None else rows_of(out), *others)
            if of_a is not None and ctx.leading is not None:
                of_a = of_a.reshape(*ctx.leading, of_a.shape[1])
            return of_a, None if of_b is None else of_b.mT, *of_others, None, None, None

    def of_out(ctx: Any, gradient: Tensor | None) -> Tensor | None:
        """The gradient of what an `out` held, whose rows the call has filled that `scatter` names."""
        if gradient is None or not ctx.needs_input_grad[-3]:
            return None
        return autograd.unfilled(gradient, *ctx.filled)

    # Outside transforms of torch.func, for which the documented one looks at every argument.
    apply: Any = getattr(super(torch.autograd.Function, Recorded), "apply", Recorded.apply)

    def call(a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands, of_layer: bool) -> Result:
        found: Result = apply(*signature.packed(a, b, operands), config, out, operands, of_layer)
        return found

    return call
