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
from .contracts import Config, Operands, RecordedCall, Result, without_sum
from .signatures import Contract, Signature


def recorder(contract: Contract) -> RecordedCall:
    """A function that calls a contract with gradients, and records the call for its backward pass.

    It raises what the contract's kernels raise.
    """
    entry = contract.gradient or {}
    if "saving" in entry:
        saving = contract.function(entry["saving"])

        def instead(a: Tensor, b: Tensor, config: Config | int | None, operands: Operands) -> Result:
            return without_sum(saving.record(a, b, config, operands))

        return instead
    signature = Signature(contract.table)
    backward, _, save = autograd.autograd(contract, signature, entry)
    direct = contract.direct

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor, *arguments: Any) -> Result:
            # The tensors among the operands are arguments of their own, for torch.
            *_, config, operands = arguments
            found = direct(a, b, None, config, operands)
            save(ctx, a, b, operands, found)
            return found

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
            return *backward(ctx, *gradients), None

    apply: Callable[..., Result] = Recorded.apply

    def call(a: Tensor, b: Tensor, config: Config | int | None, operands: Operands) -> Result:
        return apply(*signature.packed(a, b, operands), config, operands)

    return call
