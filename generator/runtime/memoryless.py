"""Tensors that have shape, strides, device and alignment but no memory, by which a call is worked out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import private

_DispatchMode: Any = private.named("torch.utils._python_dispatch", "TorchDispatchMode", object)
_without_functions: Any = private.named("torch", "_C._disabled_torch_function_impl", None)
# Whether torch has what they are made of; else tensors have memory.
_KNOWN = _DispatchMode is not object and None not in (private.make_wrapper, _without_functions)


def tensor(
    dtype: torch.dtype, device: torch.device, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> Tensor:
    """A tensor that begins `offset` elements behind an aligned address."""
    reach = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides) if size)
    return torch.empty(reach, dtype=dtype, device=device).as_strided(shape, strides, offset)


class StandIn(Tensor):
    """A tensor without memory: `meta`, as if it were on `device`."""

    # A kernel's `plan` accepts no other subclass.
    stand_in: bool = True
    __torch_function__ = _without_functions

    meta: Tensor

    @staticmethod
    def __new__(cls: type[StandIn], meta: Tensor, device: torch.device | None) -> StandIn:  # noqa: PYI034
        made: StandIn = private.make_wrapper(
            cls, meta.shape, meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=device
        )
        made.meta = meta
        return made

    def data_ptr(self) -> int:
        # Under a mode of fake tensors `meta` is one, whose address torch warns about.
        return int(self.storage_offset()) * self.element_size() if self.numel() else 0

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{function} needs memory, which a stand-in does not have")


class _Memoryless(_DispatchMode):  # type: ignore[misc]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        first, options = arguments[0], dict(options or {})
        device = options.get("device", getattr(first, "device", None))
        if "device" in options:
            options["device"] = "meta"
        elif isinstance(first, StandIn):
            first = first.meta
        made = function(first, *arguments[1:], **options)
        return StandIn(made, device) if isinstance(made, Tensor) else made


def mode() -> contextlib.AbstractContextManager[object]:
    """Within it, new tensors have no memory."""
    return _Memoryless() if _KNOWN else contextlib.nullcontext()
