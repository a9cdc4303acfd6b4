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
        return lambda a, b, out, config, operands, of_layer: without_sum(
            saving.recorded(a, b, config, operands, of_layer=of_layer, out=out)
        )
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
            out, *others = gradients
            rows = rows_of(out) if ctx.of_layer and out is not None else out
            of_a, of_b, *found = backward(ctx, rows, *others)
            of_out = None
            if ctx.of_layer:
                of_b = None if of_b is None else of_b.mT
                if of_a is not None and ctx.leading is not None:
                    of_a = of_a.reshape(*ctx.leading, of_a.shape[1])
            elif out is not None and ctx.needs_input_grad[-3]:
                # Of what an `out` held, whose rows the call has filled that `scatter` names.
                of_out = autograd.selected_rows.unfilled(out, *ctx.filled)
            return of_a, of_b, *found, of_out, None, None

    # Outside transforms of torch.func, for which the documented one looks at every argument.
    apply: Any = getattr(super(torch.autograd.Function, Recorded), "apply", Recorded.apply)

    def call(a: Tensor, b: Tensor, out: Tensor | None, config: Config, operands: Operands, of_layer: bool) -> Result:
        found: Result = apply(*signature.packed(a, b, operands), config, out, operands, of_layer)
        return found

    return call
