"""`torch.library.opcheck` of the operators that a call of a contract runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import torch
from torch.library import opcheck

from generator.plan.contract_call import call
from tests.helpers.emit.calls import SIZES, Seen, contracts, operands, results

#: What opcheck does, the check of the schema first.
UTILITIES = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def checked(
    family: ModuleType,
    name: str,
    sizes: Mapping[str, int] = SIZES,
    *,
    filled: bool = False,
    number: bool = False,
    device: str = "cpu",
) -> list[str]:
    """Put every operator that a call and its backward pass run through opcheck; their names.

    With `filled` the call is given all its results, with `number` its numbers are no tensors.
    """
    variant = contracts(family)[name]
    recorded = name in getattr(family, "_GRADIENTS", {}) and not filled
    given = {x: value.to(device) for x, value in operands(variant, sizes).items()}
    for value in given.values():
        value.requires_grad_(recorded and value.is_floating_point())
    if call(variant).offsets is not None:
        # Rows behind the last group are not written, and what memory holds there is not the same in two calls.
        given["offsets"][-1] = sizes["T"]
    if number:
        given |= {argument.name: 0.5 for argument in call(variant).numbers}
    if filled:
        described = [result.name for result in call(variant).results]
        given |= dict(zip(described, map(torch.empty_like, results(getattr(family, name)(**given)))))
    with Seen(family) as seen:
        found = results(getattr(family, name)(**given))
        if recorded:
            sum(x.float().sum() for x in found if x.requires_grad).backward()
    assert seen.calls
    for called, (operator, arguments) in zip(seen.names, seen.calls):
        # The products of a backward pass have no gradients themselves.
        trained = recorded and "a" in family._GRADIENTS.get(called, ())
        leaves = [
            x.detach().requires_grad_(trained and x.requires_grad) if isinstance(x, torch.Tensor) else x
            for x in arguments
        ]
        # Torch compares no numbers of 8 bits, which the check of a schema needs.
        narrow = any(isinstance(x, torch.Tensor) and x.is_floating_point() and x.itemsize == 1 for x in leaves)
        opcheck(operator, tuple(leaves), test_utils=UTILITIES[narrow:])
    return seen.names
