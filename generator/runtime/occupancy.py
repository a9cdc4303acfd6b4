"""How many programs a device runs at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .call import Row
from .extents import Extent


@dataclass(frozen=True)
class Occupancy:
    """The programs that a device runs at once, by the bytes of shared memory and of registers that each needs."""

    shared: Extent
    registers: Extent
    #: Programs in Triton's interpreter.
    interpreted: int = 3

    def __call__(self, row: Row, device: torch.device) -> int:
        if device.type != "cuda":
            return self.interpreted
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_multiprocessor", 2**16)
        numbers = {"num_stages": 3, **row}
        # A multiprocessor has 2**18 bytes of registers.
        resident = min(shared // self.shared.of(numbers), 2**18 // self.registers.of(numbers))
        programs: int = properties.multi_processor_count * max(1, resident)
        return programs
