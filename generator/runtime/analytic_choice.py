"""The choice of a kernel and a configuration by an analytic cost model, which needs no measurements.

The cost is in products of two elements, which one multiprocessor computes one after the other. It reads `row`, an entry
of a kernel's CONFIGS; the sizes; and of the device its multiprocessors and the bytes of shared memory of each. Costs of
the kernels of one contract are comparable. They rank kernels and configurations; they do not predict times accurately.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import torch

from . import spreading
from .call import Row
from .launch import KernelModule
from .ranking import Choice, Sizes

#: A cost in products: `cost(row, *sizes, multiprocessors, shared)`, with `shared` in bytes.
Cost: TypeAlias = Callable[..., float]
#: The tables of a family, as `Costs` describes them.
Common: TypeAlias = dict[str, Cost]
Own: TypeAlias = dict[str, Common]
NotFor: TypeAlias = Mapping[str, Collection[str]]


class Choose(Protocol):
    """The choice of a kernel and a configuration."""

    def __call__(
        self,
        name: str,
        kernels: tuple[KernelModule, ...],
        sizes: Sizes,
        device: torch.device,
        skewed: tuple[Sizes, ...] = (),
    ) -> Choice | None:
        """The kernel among `kernels` and the configuration of the least cost for `sizes`, or None if none is legal.

        `kernels` are of the contract `name`; those without tiles have no cost, and are not chosen. `skewed` has the
        sizes for other ways in which rows may be spread over groups (`spreading`).
        """


class Costs:
    """The costs of a family's kernels.

    `common` has the cost of a kernel by its name after the contract, and `own` by contract where it is another.
    `not_for` has the targets that a kernel is not made for. Costs of `batched` families read the number of products
    before M. With `typical_m`, the numbers of rows for which configurations are compared, M of a call has no part in
    the choice. `choose` makes the choice, and caches it.
    """

    choose: Choose

    def __init__(
        self,
        common: Common,
        own: Own,
        not_for: NotFor,
        *,
        batched: bool = False,
        typical_m: Sequence[int] = (),
    ) -> None:
        self.common, self.own, self.not_for = common, own, not_for
        self.batched, self.typical_m = batched, typical_m
        self.choose = functools.lru_cache(maxsize=4096)(self._choose)

    def _choose(
        self,
        name: str,
        kernels: tuple[KernelModule, ...],
        sizes: Sizes,
        device: torch.device,
        skewed: tuple[Sizes, ...] = (),
    ) -> Choice | None:
        """As `Choose`."""
        M, N, K = sizes[-3:]
        figures = _figures(device)
        if self.typical_m:
            # No condition on a configuration reads M here.
            found = self._candidates(name, kernels, 0, N, K, device)
            costs = [0.0] * len(found)
            for typical in self.typical_m:
                predicted = [cost(row, typical, N, K, *figures) for _, row, cost in found]
                costs = [total + each / min(predicted) for total, each in zip(costs, predicted)]
        else:
            found = self._candidates(name, kernels, M, N, K, device)
            front = (math.prod(sizes[:-3]),) if self.batched else ()
            costs = [cost(row, *front, M, N, K, *figures) for _, row, cost in found]
        if not found:
            return None
        if skewed and not self.typical_m:
            others = [[cost(row, *each, *figures) for _, row, cost in found] for each in skewed]
            costs = spreading.scores([costs, *others])
        kernel, row, _ = found[costs.index(min(costs))]
        return kernel, row

    def _candidates(
        self, name: str, kernels: tuple[KernelModule, ...], M: int, N: int, K: int, device: torch.device
    ) -> list[tuple[KernelModule, Row, Cost]]:
        """Kernels for the device, each with every configuration that fits and is legal for the sizes, and its cost."""
        costs, target = self.common | self.own.get(name, {}), _target(device)
        found: list[tuple[KernelModule, Row, Cost]] = []
        for kernel in kernels:
            how = kernel.__name__.rpartition("__")[2]
            if how not in costs or target in self.not_for.get(how, ()):
                continue
            rows = kernel.CALL.fitting(kernel.CALL.offered(device), {"M": M, "T": M, "N": N, "K": K})
            found += [(kernel, row, costs[how]) for row in rows]
        return found


@functools.cache
def _target(device: torch.device) -> str:
    """The architecture of a GPU, as in `sm90` and `gfx942`."""
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.gcnArchName.partition(":")[0]
    return f"sm{properties.major}{properties.minor}"


@functools.cache
def _figures(device: torch.device) -> tuple[int, int]:
    """The multiprocessors of a GPU, and the bytes of shared memory of each."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, getattr(properties, "shared_memory_per_multiprocessor", 2**16)
