"""Numbers among the operands of a call, which may be tensors of one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .call_tensors import Operand, State
from .launchable import is_fake, launchable, require_number


@dataclass(frozen=True)
class Number(Operand):
    """A number of a call."""

    shape: tuple[()] = ()

    def taken(self, x: Any, state: State) -> Any:
        """A number as a float; a tensor of one element unchanged if it is on the device, since the kernel reads it."""
        if not isinstance(x, torch.Tensor):
            return require_number(self.name, x)
        if x.is_complex():
            raise TypeError(f"{self.name} must be real, got {x.dtype}")
        if x.numel() != 1:
            raise ValueError(f"{self.name} must be a number or a tensor of one element, got shape {tuple(x.shape)}")
        if x.device == state.device or is_fake(x):
            return x
        launchable({self.name: x})
        return float(x)


@dataclass(frozen=True)
class OnDevice:
    """Whether a number lies on the device."""

    name: str

    def value(self, state: State) -> bool:
        """The argument of a call."""
        return isinstance(state.given[self.name], torch.Tensor)
