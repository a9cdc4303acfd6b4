"""A launch as the launcher's source has it."""

from __future__ import annotations

from dataclasses import dataclass

from generator.lowering.lines import INDENT, collected
from generator.lowering.operands import Slot


@dataclass(frozen=True)
class Launch:
    """A launch as source: the kernel, the grid, and what the kernel is passed."""

    kernel: str
    grid: str
    parameters: tuple[Slot, ...]
    constants: tuple[tuple[str, str], ...]
    #: What stands behind the named arguments.
    row: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as entries of a dictionary."""
        entries = [(slot.parameter, slot.value) for slot in self.parameters]
        return (*(f'"{name}": {value}' for name, value in (*entries, *self.constants)), *self.row)

    def slots(self, depth: int) -> str:
        """Which arguments are of an operand of the call, or of memory that is made for it; `depth` is of the launch."""
        owned = [f'"{slot.parameter}": "{slot.owner}"' for slot in self.parameters if slot.owner is not None]
        return collected("slots={", owned, "}", depth + INDENT)
