"""What of a tensor torch must see, or cannot: subclasses, derivatives in forward mode, traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .launch import in_forward_mode
from .launchable import has_tangent, is_fake


def require_tensor(name: str, x: Any) -> torch.Tensor:
    """`x`; raises TypeError if it is no tensor."""
    if isinstance(x, torch.Tensor):
        return x
    hint = "; torch.fx.symbolic_trace does not record it, use torch.export" * isinstance(x, torch.fx.Proxy)
    hint += f"; pass torch.from_numpy({name})" * (type(x).__name__ == "ndarray")
    raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}{hint}")


def as_plain(x: Any) -> Any:
    """A tensor of a subclass that has no other memory as a plain one; anything else unchanged."""
    subclass = isinstance(x, torch.Tensor) and type(x) is not torch.Tensor and not is_fake(x)
    return x.as_subclass(torch.Tensor) if subclass else x


def refuse_tangents(name: str, tensors: Iterable[object]) -> None:
    """Raise NotImplementedError, which names the function `name`, if one of the tensors has a tangent."""
    if in_forward_mode() and any(isinstance(x, torch.Tensor) and has_tangent(x) for x in tensors):
        raise NotImplementedError(f"{name}: no derivatives in forward mode are computed; use torch.autograd")


class ReplacedModules(list[str]):
    """The names of the modules of a model that were replaced; `left` says why each of the others was left."""

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[str, str] = {}
