"""The choice of a kernel and a configuration by an analytic cost model, which needs no measurements.

The cost is in products of two elements, which one multiprocessor computes one after the other. It reads `row`, an entry
of a kernel's CONFIGS; the sizes; and of the device its multiprocessors and the bytes of shared memory of each. Costs of
the kernels of one contract are comparable. They rank kernels and configurations; they do not predict times accurately.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import torch

from . import spreading
from .call import Row, figures_of
from .launch import KernelModule
from .ranking import Choice, Sizes

#: A cost in products: `cost(row, *sizes, multiprocessors, shared)`, with `shared` in bytes.
Cost: TypeAlias = Callable[..., float]
#: The tables of a family, as `Costs` describes them.
Common: TypeAlias = dict[str, Cost]
Own: TypeAlias = dict[str, Common]
NotFor: TypeAlias = Mapping[str, Collection[str]]


class Costs:
    """The costs of a family's kernels.

    `common` has the cost of a kernel by its name after the contract, and `own` by contract where it is another.
    `not_for` has the targets that a kernel is not made for. Costs of `batched` families read the number of products
    before M. With `typical_m`, the numbers of rows for which configurations are compared, M of a call has no part in
    the choice. `choose` is `_choose`, cached.
    """

    def __init__(
        self, common: Common, own: Own, not_for: NotFor, *, batched: bool = False, typical_m: Sequence[int] = ()
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
        """The kernel among `kernels` and the configuration of the least cost for `sizes`, or None if none is legal.

        `kernels` are of the contract `name`; those without tiles have no cost, and are not chosen. `skewed` has the
        sizes for other ways in which rows may be spread over groups (`spreading`).
        """
        costs, target, figures = self.common | self.own.get(name, {}), _target(device), figures_of(device)
        *products, M, N, K = sizes
        front = (math.prod(products),) if self.batched else ()
        ways: list[Sizes] = [(typical, N, K) for typical in self.typical_m] or [(*front, M, N, K), *skewed]
        # With typical numbers of rows no condition on a configuration reads M.
        M = 0 if self.typical_m else M
        candidates: list[tuple[KernelModule, Row, Cost]] = []
        for kernel in kernels:
            how = kernel.__name__.rpartition("__")[2]
            if how in costs and target not in self.not_for.get(how, ()):
                rows = kernel.CALL.fitting(kernel.CALL.offered(device), {"M": M, "T": M, "N": N, "K": K})
                candidates += [(kernel, row, costs[how]) for row in rows]
        if not candidates:
            return None
        predicted = [[cost(row, *each, *figures) for _, row, cost in candidates] for each in ways]
        scores = (spreading.slowdowns if self.typical_m else spreading.scores)(predicted)
        kernel, row, _ = candidates[scores.index(min(scores))]
        return kernel, row


@functools.cache
def _target(device: torch.device) -> str:
    """The architecture of a GPU, as in `sm90` and `gfx942`."""
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.gcnArchName.partition(":")[0]
    return f"sm{properties.major}{properties.minor}"
