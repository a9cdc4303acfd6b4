"""The choice of a kernel and a configuration by an analytic cost model, which needs no measurements.

The cost is in products of two elements, which one multiprocessor computes one after the other. It reads `row`, an entry
of a kernel's CONFIGS; the sizes; and of the device its multiprocessors and the bytes of shared memory of each. Costs of
the kernels of one contract are comparable. They rank kernels and configurations; they do not predict times accurately.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import torch

from . import spreading
from .call import Row, figures_of, target_of
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
    before M. `choose` is `_choose`, cached.
    """

    def __init__(self, common: Common, own: Own, not_for: NotFor, *, batched: bool = False) -> None:
        self.common, self.own, self.not_for, self.batched = common, own, not_for, batched
        self.choose = functools.lru_cache(maxsize=4096)(self._choose)

    def _choose(
        self,
        name: str,
        kernels: tuple[KernelModule, ...],
        ways: tuple[Sizes, ...],
        device: torch.device,
        score: spreading.Score = spreading.scores,
    ) -> Choice | None:
        """The kernel and the configuration of the least cost for the first of `ways`, or None if none is legal.

        `kernels` are of the contract `name`; those without tiles have no cost, and are not chosen. `score` is of the
        costs for all of the sizes (`spreading`).
        """
        costs, target, figures = self.common | self.own.get(name, {}), target_of(device), figures_of(device)
        *_, M, N, K = ways[0]
        candidates: list[tuple[KernelModule, Row, Cost]] = []
        for kernel in kernels:
            how = kernel.__name__.rpartition("__")[2]
            if how in costs and target not in self.not_for.get(how, ()):
                rows = kernel.CALL.fitting(kernel.CALL.offered(device), {"M": M, "T": M, "N": N, "K": K})
                candidates += [(kernel, row, costs[how]) for row in rows]
        if not candidates:
            return None
        sizes = [(*[math.prod(each[:-3])] * self.batched, *each[-3:]) for each in ways]
        scores = score([[cost(row, *each, *figures) for _, row, cost in candidates] for each in sizes])
        kernel, row, _ = candidates[scores.index(min(scores))]
        return kernel, row
