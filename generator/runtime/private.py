"""What this family reads of torch and Triton besides their documented interfaces, and what it does without each.

Where a version of torch lacks a name, calls take a longer way, and none is refused. Attributes of Triton's compiled
kernels are read only by `relaunch`, for the versions that it names.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch


def _named(module: str, name: str, otherwise: Any) -> Any:
    """What a module of torch or Triton has by this name; `otherwise` where there is no such module or name."""
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return otherwise


_MODES = "torch.utils._python_dispatch"
# How many modes see torch's operators. Where that is not known, every call is one of an operator.
count_modes: Callable[[], int] = _named(_MODES, "_len_torch_dispatch_stack", lambda: 1)
# These modes. A counter of operations that is not found counts none of a family's first call.
active_modes: Callable[[], list[Any]] = _named(_MODES, "_get_current_dispatch_mode_stack", list)
# Whether torch.jit.trace records; the documented function takes longer.
is_tracing: Callable[[], bool] = _named("torch", "_C._is_tracing", vars(torch.jit)["is_tracing"])
# Whether a transform of torch.func is open. Where that is not known, every call with gradients is one of an operator.
transforming: Callable[[], bool] = _named("torch", "_C._are_functorch_transforms_active", lambda: True)
# Its `_current_level` is not negative within forward-mode differentiation. Where that is not known, it may always be.
forward_mode: Any = torch.autograd.forward_ad
if not hasattr(forward_mode, "_current_level"):
    forward_mode = SimpleNamespace(_current_level=0)
# What tensors without memory are made of. Where one is missing, `which` and `prepare` allocate memory.
DispatchMode: Any = _named(_MODES, "TorchDispatchMode", None)
make_wrapper: Any = _named("torch", "Tensor._make_wrapper_subclass", None)
without_functions: Any = _named("torch", "_C._disabled_torch_function_impl", None)

# Triton's: without the first three no launch is repeated, and without `warmup` nothing is compiled before a call.
driver: Any = _named("triton.runtime", "driver", None)
Heuristics: Any = _named("triton.runtime.autotuner", "Heuristics", None)
TensorDescriptor: Any = _named("triton.tools.tensor_descriptor", "TensorDescriptor", None)
warmup: Callable[..., Any] | None = _named("triton", "JITFunction.warmup", None)
# The errors for which a tuner discards a configuration.
UNFIT: tuple[type[Exception], ...] = tuple(
    filter(None, [_named("triton.runtime.errors", name, None) for name in ("OutOfResources", "PTXASError")])
)


def applied(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """The function's `apply` outside transforms of torch.func, for which the documented one looks at every argument."""
    found: Callable[..., Any] = getattr(super(torch.autograd.Function, function), "apply", function.apply)
    return found


def constant(function: Any) -> Any:
    """The function, which torch.compile runs as it traces, in place of tracing it."""
    if "torch._dynamo" in sys.modules:
        return torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    # The same, without the import of the compiler. A compiler that does not know it breaks the graph at the call.
    function._dynamo_marked_constant = True
    return function


def forget_dispatch(operators: Iterable[str]) -> None:
    """Let torch look up again which kernels these operators of `aten` have; torch.compile and export keep that."""
    for operator in operators:
        name, _, overload = operator.partition(".")
        # A torch that keeps no such table has nothing to forget.
        getattr(getattr(getattr(torch.ops.aten, name), overload or "default"), "_dispatch_cache", {}).clear()


def tensor_map_encoder() -> Callable[..., Any]:
    """Triton's function that encodes a descriptor; AttributeError, so that no launch is repeated, where it has none."""
    # Its module compiles C when it is imported.
    encode: Callable[..., Any] | None = _named("triton.backends.nvidia.driver", "make_tensordesc_arg", None)
    if encode is None:
        raise AttributeError("make_tensordesc_arg")
    return encode
