"""How many programs a device runs at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .call import Row, extents, figures_of


@dataclass(frozen=True)
class Occupancy:
    """The programs that a device runs at once, by the bytes of shared memory and of registers that each needs.

    They are words, as those of shapes: `(BLOCK_M+BLOCK_N)*BLOCK_K*num_stages*2`.
    """

    shared: str
    registers: str
    #: Programs in Triton's interpreter.
    interpreted: int = 3

    def __call__(self, row: Row, device: torch.device) -> int:
        if device.type != "cuda":
            return self.interpreted
        count, shared = figures_of(device)
        numbers = {"num_stages": 3, **row}
        # A multiprocessor has 2**18 bytes of registers.
        needed, registers = extents(f"{self.shared} {self.registers}")(numbers)
        resident = min(shared // needed, 2**18 // registers)
        return count * max(1, resident)
