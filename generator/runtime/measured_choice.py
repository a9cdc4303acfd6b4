"""The choice of a kernel and a configuration by measurements, which a family has as tables.

A measured size runs its winner. For any other size, a model with rates fitted to the measurements decides
(`fitted.seconds`). A device without measurements uses the rates of a measured one of its compute capability, scaled by
clock rate and memory bandwidth; if there is none, nothing is chosen here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch

from . import fitted, spreading
from .call import figures_of
from .launch import KernelModule
from .ranking import Choice, Sizes

#: The name of a device, and the name of a contract.
Key: TypeAlias = tuple[str, str]
#: The rates of a contract's configurations, by the kernel's name after the contract and the index in its CONFIGS.
Rates: TypeAlias = dict[str, dict[int, tuple[float, ...]]]
#: The tables of a family, as `Measurements` describes them.
Devices: TypeAlias = dict[str, tuple[tuple[int, int], float, float]]
Like: TypeAlias = dict[Key, str]
Measured: TypeAlias = dict[Key, Rates]
Winners: TypeAlias = dict[Key, dict[Sizes, tuple[str, int]]]
#: Whether the row pitch of A is not a multiple of 128 bytes, and that of B.
Crossing: TypeAlias = tuple[bool, bool]


class Measurements:
    """Measurements of a family's kernels.

    `devices` has for each measured device its compute capability, its clock rate in kHz, and the bytes of its memory
    traffic per second. `like` has for a device and a contract the contract whose measurements are used for it. `rates`
    has for a device and a contract the rates of each kernel (its name after the contract) and configuration. `winners`
    has for a device and a contract the fastest kernel and configuration of each measured size.
    """

    def __init__(self, devices: Devices, like: Like, rates: Measured, winners: Winners | None = None) -> None:
        self.devices, self.like, self.rates, self.winners = devices, like, rates, winners or {}
        self.rated = functools.cache(self._rated)

    def choose(
        self,
        name: str,
        kernels: Iterable[KernelModule],
        ways: Sequence[Sizes],
        width: int,
        device: torch.device,
        crossing: Crossing = (False, False),
        score: spreading.Score = spreading.scores,
    ) -> Choice | None:
        """The kernel among `kernels` and the configuration for the first of the sizes `ways`, or None without any.

        `width` is the size of an element of A in bytes. Measurements are of A and B with a row pitch of whole 128-byte
        lines; `crossing` says for each whether it is not, and then the model decides. `score` is of the costs for all
        of the sizes (`spreading`).
        """
        kernels = tuple(kernels)
        gpu, (multiprocessors, _) = torch.cuda.get_device_name(device), figures_of(device)
        if not any(crossing):
            for each in (name, self.like.get((gpu, name), name)):
                how, row = self.winners.get((gpu, each), {}).get(ways[0], ("", 0))
                for kernel in kernels:
                    if how == _how(kernel):
                        return kernel, kernel.CONFIGS[row]
        rows, rated = self.rated(device, name, kernels)
        if not rated:
            return None
        costs = score([fitted.seconds(rated, each, multiprocessors, width, crossing) for each in ways])
        choices = (rows[index] for index in sorted(range(len(costs)), key=costs.__getitem__))
        *_, M, N, K = ways[0]
        sizes = {"M": M, "T": M, "N": N, "K": K}
        return next(((x, row) for x, row in choices if x.CALL.fitting([row], sizes)), None)

    def _rated(
        self, device: torch.device, name: str, kernels: tuple[KernelModule, ...]
    ) -> tuple[list[Choice], list[fitted.Rated]]:
        """The configurations of `kernels` with rates, each with its kernel; and what `fitted.seconds` reads of each."""
        rows: list[Choice] = []
        rated: list[fitted.Rated] = []
        rates_by_kernel, *scale = self.rates_of(device, name)
        for kernel in kernels:
            offered = kernel.CALL.offered(device)
            for row, rates in rates_by_kernel.get(_how(kernel), {}).items():
                config = kernel.CONFIGS[row]
                if config in offered:
                    rows.append((kernel, config))
                    rated.append(fitted.rated(config, rates, *scale))
        return rows, rated

    def rates_of(self, device: torch.device, name: str) -> tuple[Rates] | tuple[Rates, float, float]:
        """The rates for a contract on a GPU; of another GPU's, the clock rate and bandwidth relative to it too."""
        gpu = torch.cuda.get_device_name(device)
        rates = self.rates.get((gpu, self.like.get((gpu, name), name)))
        if rates is not None or torch.version.hip:
            return (rates or {},)
        for measured, (capability, clock, memory) in self.devices.items():
            rates = self.rates.get((measured, self.like.get((measured, name), name)))
            if rates is not None and capability == torch.cuda.get_device_capability(device):
                own = torch.cuda.get_device_properties(device)
                traffic = 2 * own.memory_clock_rate * 1000 * own.memory_bus_width / 8
                return rates, own.clock_rate / clock, traffic / memory
        return ({},)


def _how(kernel: KernelModule) -> str:
    """The name of a kernel after its contract."""
    return kernel.__name__.rpartition("__")[2]
