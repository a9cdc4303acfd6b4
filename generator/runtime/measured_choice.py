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
    has for a device and a contract the fastest kernel and configuration of each measured size. With `typical_m`, the
    numbers of rows for which configurations are compared, M of a call has no part in the choice.
    """

    def __init__(
        self,
        devices: Devices,
        like: Like,
        rates: Measured,
        winners: Winners | None = None,
        typical_m: Sequence[int] = (),
    ) -> None:
        self.devices, self.like, self.rates = devices, like, rates
        self.winners, self.typical_m = winners or {}, typical_m
        self.rated = functools.cache(self._rated)

    def choose(
        self,
        name: str,
        kernels: Iterable[KernelModule],
        sizes: Sizes,
        width: int,
        device: torch.device,
        crossing: Crossing = (False, False),
        skewed: tuple[Sizes, ...] = (),
    ) -> Choice | None:
        """The kernel among `kernels` and the configuration for `sizes`, or None without measurements.

        `width` is the size of an element of A in bytes. Measurements are of A and B with a row pitch of whole 128-byte
        lines; `crossing` says for each whether it is not, and then the model decides. `skewed` has the sizes for other
        ways in which rows may be spread over groups (`spreading`).
        """
        kernels = tuple(kernels)
        gpu, multiprocessors = _device(device)
        if not self.typical_m and not any(crossing):
            for each in (name, self.like.get((gpu, name), name)):
                how, row = self.winners.get((gpu, each), {}).get(sizes, ("", 0))
                for kernel in kernels:
                    if how == _how(kernel):
                        return kernel, kernel.CONFIGS[row]
        rows, rated = self.rated(device, name, kernels)
        if not rated:
            return None
        *_, M, N, K = sizes
        ways: list[Sizes] = [(typical, N, K) for typical in self.typical_m] or [sizes, *skewed]
        times = [fitted.seconds(rated, each, multiprocessors, width, crossing) for each in ways]
        costs = times[0]
        if self.typical_m:
            # No condition on a configuration reads M here.
            M, costs = 0, spreading.slowdowns(times)
        elif skewed:
            costs = spreading.scores(times)
        ordered = sorted(range(len(costs)), key=costs.__getitem__)
        sizes_by_name = {"M": M, "T": M, "N": N, "K": K}
        choices = (rows[index] for index in ordered)
        return next(((x, row) for x, row in choices if x.CALL.fitting([row], sizes_by_name)), None)

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
        gpu, _ = _device(device)
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


@functools.cache
def _device(device: torch.device) -> tuple[str, int]:
    """The name of a GPU, and the number of its multiprocessors."""
    return torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).multi_processor_count


def _how(kernel: KernelModule) -> str:
    """The name of a kernel after its contract."""
    return kernel.__name__.rpartition("__")[2]
