"""The choice of a configuration by an analytic cost model of the device, which needs no measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .call import Row


class Cheapest:
    """The configuration of the least `cost(row, *sizes, multiprocessors, shared)`; `shared` is bytes of each."""

    def __init__(self, cost: Callable[..., float]) -> None:
        self.cost = cost

    def __call__(self, rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
        figures = figures_of(device)
        return min(rows, key=lambda row: self.cost(row, *sizes, *figures))


class LeastSlowdown(Cheapest):
    """The configuration that loses least on average over numbers of rows, for any number of rows of a call.

    So a row of the result has the same bits whatever other rows there are.
    """

    def __init__(self, cost: Callable[..., float], typical_m: tuple[int, ...]) -> None:
        super().__init__(cost)
        self.typical_m = typical_m

    def __call__(self, rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
        figures = figures_of(device)
        costs = [[self.cost(row, m, *sizes[-2:], *figures) for row in rows] for m in self.typical_m]
        slowdowns = [sum(each / min(of_m) for each, of_m in zip(of_row, costs)) for of_row in zip(*costs)]
        return rows[slowdowns.index(min(slowdowns))]


def figures_of(device: torch.device) -> tuple[int, int]:
    """The multiprocessors of a device, and the bytes of shared memory of each."""
    if device.type != "cuda":
        return 1, 2**16
    properties: Any = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, getattr(properties, "shared_memory_per_multiprocessor", 2**16)
