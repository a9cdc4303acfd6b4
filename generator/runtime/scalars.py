"""Numbers among the operands of a call, which may be tensors of one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .call import Operand, State
from .launchable import is_fake, launchable


@dataclass(frozen=True)
class Number(Operand):
    """A number of a call."""

    shape: str = ""

    def number(self, x: Any) -> float:
        """A number as a float; raises TypeError for what is none, and ValueError for one that is too large."""
        if not hasattr(x, "__float__") and not hasattr(x, "__index__"):
            raise TypeError(f"{self.name} must be a number or a tensor of one element, got {type(x).__name__}")
        try:
            return float(x)
        except OverflowError as error:
            raise ValueError(f"{self.name} is too large for a float") from error

    def taken(self, x: Any, state: State) -> Any:
        """A number as a float; a tensor of one element unchanged if it is on the device, since the kernel reads it."""
        if not isinstance(x, torch.Tensor):
            # An object of its own, by which a repeated launch finds the operand.
            return self.number(x) * 1.0
        if x.is_complex():
            raise TypeError(f"{self.name} must be real, got {x.dtype}")
        if x.numel() != 1:
            raise ValueError(f"{self.name} must be a number or a tensor of one element, got shape {tuple(x.shape)}")
        if x.device == state.device or is_fake(x):
            return x
        launchable({self.name: x})
        return float(x) * 1.0


def on_device(x: Any) -> bool:
    """Whether a number lies on the device."""
    return isinstance(x, torch.Tensor)
