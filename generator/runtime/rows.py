"""What layers share: their input as a matrix of rows, a result with its dimensions, and what replaced modules."""

from __future__ import annotations

from typing import Any

import torch


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """An input (..., K) as a matrix (M, K) whose rows are contiguous; a vector is one row."""
    return along(x if x.dim() == 2 else x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2))


def along(x: torch.Tensor) -> torch.Tensor:
    """A matrix, or several, whose rows are contiguous: itself, or a copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def shaped_as(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A result (M, N) for the rows of `x` (..., K), as (..., N)."""
    return result if x.dim() == 2 else result.reshape(*x.shape[:-1], result.shape[-1])


def require_tensor(name: str, x: Any) -> torch.Tensor:
    """`x`; raises TypeError if it is no tensor."""
    if isinstance(x, torch.Tensor):
        return x
    raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")


class ReplacedModules(list[str]):
    """The names of the modules of a model that were replaced; `left` says why each of the others was left."""

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[str, str] = {}
        self._made: dict[int, Any] = {}

    def replace(self, model: torch.nn.Module, name: str, module: torch.nn.Module, layer: type[torch.nn.Module]) -> Any:
        """Put a module as one of another class in its place, with its parameters, hooks and settings; return that."""
        parent, _, last = name.rpartition(".")
        if id(module) not in self._made:
            replacement = self._made[id(module)] = object.__new__(layer)
            replacement.__dict__.update(module.__dict__)
            # What its `compile` has made calls the module itself.
            if replacement.__dict__.pop("_compiled_call_impl", None) is not None:
                replacement.compile()
        setattr(model.get_submodule(parent), last, self._made[id(module)])
        self.append(name)
        return self._made[id(module)]
