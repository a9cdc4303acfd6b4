"""The operations of an epilogue by torch's own functions, as a user would call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from generator.epilogue import formula
from generator.epilogue.chain import Epilogue, Step
from generator.problem import torch_functions
from generator.problem.torch_functions import Value

#: Operations for which torch has one function with the same parameters, instead of several calls for the formula.
NATIVE: Mapping[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(functional, name) for name in ("relu", "leaky_relu", "gelu", "silu", "softplus", "hardswish")},
    **{name: getattr(torch, name) for name in ("sigmoid", "tanh", "clamp")},
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    # Gated linear units, given their two values.
    "swiglu": lambda gate, x: functional.silu(gate) * x,
    "geglu": lambda gate, x: functional.gelu(gate) * x,
    "geglu_tanh": lambda gate, x: functional.gelu(gate, approximate="tanh") * x,
    "reglu": lambda gate, x: functional.relu(gate) * x,
}


def apply(
    epilogue: Epilogue, product: torch.Tensor, operands: Mapping[str, Value], outputs: list[Any] | None = None
) -> torch.Tensor:
    """`torch_functions.apply`, with torch's own function for each operation that has one."""
    return torch_functions.apply(epilogue, product, operands, outputs=outputs, native=_native)


def _native(step: Step, names: Mapping[str, Value]) -> torch.Tensor | None:
    if step.operation not in NATIVE or step.operands:
        return None
    given = {**step.meaning.scalars, **dict(step.settings)}
    numbers = {name: value for name, value in given.items() if isinstance(value, int | float)}
    # An infinite bound is none.
    finite = {name: value for name, value in numbers.items() if abs(value) <= formula.LARGEST}
    return NATIVE[step.operation](*names.values(), **finite)
