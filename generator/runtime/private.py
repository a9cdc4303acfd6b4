"""Whether torch must see a call, and what of it: what this family reads of torch besides its documented interfaces.

Where a version of torch lacks a name, calls take a longer way, and none is refused. What is not documented of Triton is
read by `fast` alone.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .launch import in_forward_mode
from .launchable import has_tangent, is_fake


def named(module: str, name: str, otherwise: Any) -> Any:
    """What a module of torch or Triton has by this name; `otherwise` where there is no such module or name."""
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return otherwise


_MODES = "torch.utils._python_dispatch"
# How many modes see torch's operators. Where that is not known, every call is one of an operator.
count_modes: Callable[[], int] = named(_MODES, "_len_torch_dispatch_stack", lambda: 1)
# These modes. A counter of operations that is not found counts none of a family's first call.
active_modes: Callable[[], list[Any]] = named(_MODES, "_get_current_dispatch_mode_stack", list)
# Whether torch.jit.trace records; the documented function takes longer.
is_tracing: Callable[[], bool] = named("torch", "_C._is_tracing", vars(torch.jit)["is_tracing"])
# Whether a transform of torch.func is open. Where that is not known, every call with gradients is one of an operator.
transforming: Callable[[], bool] = named("torch", "_C._are_functorch_transforms_active", lambda: True)
# Torch's products of integers and of fp8, which calls may run in the place of kernels; None where there are none.
int_mm: Any = named("torch", "_int_mm", None)
scaled_mm: Any = named("torch", "_scaled_mm", None)
# What makes a tensor of a subclass that has no memory of its own; None where that is not known.
make_wrapper: Any = named("torch", "Tensor._make_wrapper_subclass", None)


def as_plain(x: Any) -> Any:
    """A tensor of a subclass that has no other memory as a plain one; anything else unchanged."""
    subclass = isinstance(x, torch.Tensor) and type(x) is not torch.Tensor and not is_fake(x)
    return x.as_subclass(torch.Tensor) if subclass else x


def refuse_tangents(name: str, tensors: Iterable[object]) -> None:
    """Raise NotImplementedError, which names the function `name`, if one of the tensors has a tangent."""
    if in_forward_mode() and any(isinstance(x, torch.Tensor) and has_tangent(x) for x in tensors):
        raise NotImplementedError(f"{name}: no derivatives in forward mode are computed; use torch.autograd")


def constant(function: Any) -> Any:
    """The function, which torch.compile runs as it traces, in place of tracing it."""
    # `torch.compiler.assume_constant_result` without the import of the compiler, which breaks the graph at the call
    # if it does not know the attribute.
    function._dynamo_marked_constant = True
    return function
