"""The choice of a kernel and a configuration by measurements, which a family has as tables.

A measured size runs its winner. For any other size, a model with rates fitted to the measurements decides
(`fitted.seconds`). A device without measurements uses the rates of a measured one of its compute capability, scaled by
clock rate and memory bandwidth; if there is none, nothing is chosen here.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch

from . import fitted, spreading
from .call import Row
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
#: How many of the last choices are compared before the others are bounded by the fastest of them.
FEW = 6
#: For how many sizes but M bounds are cached before the cache is cleared.
SHAPES = 1024
#: Whether the row pitch of A is not a multiple of 128 bytes, and that of B.
Crossing: TypeAlias = tuple[bool, bool]


class Candidates:
    """What is cached of a contract on a device, for all sizes.

    `rows` are the configurations with rates, each with its kernel, `rated` is what `fitted.seconds` reads of them, and
    `bounds` are those of modelled times. `narrowed` has the bounds by all sizes but M, which is any. `chosen` has the
    indices of the last different choices by the bits of M.
    """

    def __init__(self, rows: list[Choice], rated: list[fitted.Rated], multiprocessors: int) -> None:
        self.rows, self.rated, self.multiprocessors = rows, rated, multiprocessors
        self.bounds = fitted.bounds(rated, multiprocessors)
        self.narrowed: dict[Sizes, list[fitted.Narrowed]] = {}
        self.chosen: dict[int, list[int]] = {}

    def fastest(self, sizes: Sizes, width: int, crossing: Crossing) -> Choice | None:
        """The kernel and the configuration of the least modelled time that take `sizes`, or None."""
        M, N, K = sizes[-3:]
        rows, rated = self.rows, self.rated
        limit, found = math.inf, -1

        def compare(more: Sequence[int]) -> None:
            """Find the least time, and its configuration, the first of several, of those that take the sizes."""
            nonlocal limit, found
            times = fitted.seconds([rated[index] for index in more], sizes, self.multiprocessors, width, crossing)
            for time, index in zip(times, more):
                least = time < limit or (time == limit and index < found)
                if least and _takes(*rows[index], M, N, K):
                    limit, found = time, index

        # What was chosen for about as many rows is among the fastest: most others cannot be as fast.
        last = self.chosen.get(M.bit_length(), [])
        compare(last)
        every: Iterable[int] = range(len(rows))
        if found >= 0:
            every = [index for _, index in self.possible(sizes, width, limit)]
        compare([index for index in every if index not in last])
        if found < 0:
            return None
        self.chosen[M.bit_length()] = [found, *[index for index in last if index != found]][:FEW]
        return rows[found]

    def possible(self, sizes: Sizes, width: int, limit: float) -> list[tuple[float, int]]:
        """As `fitted.possible`."""
        *batch, M, N, K = sizes
        others = *batch, N, K, width
        narrowed = self.narrowed.get(others)
        if narrowed is None:
            if len(self.narrowed) >= SHAPES:
                self.narrowed.clear()
            # Bounds are narrowed for sizes that are seen with a second M: it takes as long as two searches.
            self.narrowed[others] = []
            return fitted.possible(self.bounds, sizes, width, limit)
        if not narrowed:
            narrowed = self.narrowed[others] = fitted.narrowed(self.bounds, sizes, width)
        return fitted.within(narrowed, M, limit)


class Measurements:
    """Measurements of a family's kernels.

    `devices` has for each measured device its compute capability, its clock rate in kHz, and the bytes of its memory
    traffic per second. `like` has for a device and a contract the contract whose measurements are used for it. `rates`
    has for a device and a contract the rates of each kernel (its name after the contract) and configuration. `winners`
    has for a device and a contract the fastest kernel and configuration of each measured size. With `typical_m`, the
    numbers of rows for which configurations are compared, M of a call has no part in the choice.

    `rated` returns, for a device, a contract and its kernels, the configurations with rates, each with its kernel; and
    what `fitted.seconds` reads of each. `candidates` returns what is cached of them for all sizes. Both cache what they
    return.
    """

    rated: Callable[[torch.device, str, tuple[KernelModule, ...]], tuple[list[Choice], list[fitted.Rated]]]
    candidates: Callable[[torch.device, str, tuple[KernelModule, ...]], Candidates]

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
        self.candidates = functools.cache(self._candidates)

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
        if self.typical_m:
            return self._for_any_rows(name, kernels, sizes, width, device, crossing)
        if not any(crossing):
            gpu, _ = _device(device)
            for each in (name, self.like.get((gpu, name), name)):
                winner = self.winners.get((gpu, each), {}).get(sizes)
                if winner is None:
                    continue
                how, row = winner
                for kernel in kernels:
                    if how == _how(kernel):
                        return kernel, kernel.CONFIGS[row]
        if skewed:
            return self._for_groups(name, kernels, (sizes, *skewed), width, device, crossing)
        return self._modelled(name, kernels, sizes, width, device, crossing)

    def _for_any_rows(
        self,
        name: str,
        kernels: tuple[KernelModule, ...],
        sizes: Sizes,
        width: int,
        device: torch.device,
        crossing: Crossing,
    ) -> Choice | None:
        """The choice for N and K of `sizes` and any M.

        It has the least mean, over `typical_m`, of the modelled time relative to the fastest for that M.
        """
        multiprocessors = _device(device)[1]
        N, K = sizes[-2:]
        rows, rated = self.rated(device, name, kernels)
        times = [fitted.seconds(rated, (M, N, K), multiprocessors, width, crossing) for M in self.typical_m]
        relative = [map(operator.truediv, each, itertools.repeat(min(each, default=None))) for each in times]
        # No condition on a configuration reads M here.
        cost = [sum(each) for each in zip(*relative)]
        for index in sorted(range(len(cost)), key=cost.__getitem__):
            if _takes(*rows[index], 0, N, K):
                return rows[index]
        return None

    def _modelled(
        self,
        name: str,
        kernels: tuple[KernelModule, ...],
        sizes: Sizes,
        width: int,
        device: torch.device,
        crossing: Crossing,
    ) -> Choice | None:
        """The kernel and the configuration of the least modelled time that take `sizes`, or None without rates."""
        return self.candidates(device, name, kernels).fastest(sizes, width, crossing)

    def _for_groups(
        self,
        name: str,
        kernels: tuple[KernelModule, ...],
        ways: tuple[Sizes, ...],
        width: int,
        device: torch.device,
        crossing: Crossing,
    ) -> Choice | None:
        """The kernel and the configuration that no way to spread rows over groups makes slow, or None without rates."""
        multiprocessors = _device(device)[1]
        rows, rated = self.rated(device, name, kernels)
        taking = [index for index, row in enumerate(rows) if _takes(*row, *ways[0][-3:])]
        if not taking:
            return None
        rated = [rated[index] for index in taking]
        scores = spreading.scores([fitted.seconds(rated, sizes, multiprocessors, width, crossing) for sizes in ways])
        return rows[taking[scores.index(min(scores))]]

    def _candidates(self, device: torch.device, name: str, kernels: tuple[KernelModule, ...]) -> Candidates:
        """What will be cached of a contract on a device."""
        return Candidates(*self.rated(device, name, kernels), _device(device)[1])

    def _rated(
        self, device: torch.device, name: str, kernels: tuple[KernelModule, ...]
    ) -> tuple[list[Choice], list[fitted.Rated]]:
        """The configurations of `kernels` with rates, each with its kernel; and what `fitted.seconds` reads of each."""
        rows: list[Choice] = []
        rated: list[fitted.Rated] = []
        found, *scale = self.rates_of(device, name)
        for kernel in kernels:
            offered = kernel.CALL.offered(device)
            for row, rates in found.get(_how(kernel), {}).items():
                config = kernel.CONFIGS[row]
                if config in offered:
                    rows.append((kernel, config))
                    rated.append(fitted.rated(config, rates, *scale))
        return rows, rated

    def rates_of(self, device: torch.device, name: str) -> tuple[Rates] | tuple[Rates, float, float]:
        """The rates for a contract on a GPU; of another GPU's, the clock rate and bandwidth relative to it too."""
        gpu, _ = _device(device)
        found = self.rates.get((gpu, self.like.get((gpu, name), name)))
        if found is not None or torch.version.hip:
            return (found or {},)
        for measured, (capability, clock, memory) in self.devices.items():
            found = self.rates.get((measured, self.like.get((measured, name), name)))
            if found is not None and capability == torch.cuda.get_device_capability(device):
                own = torch.cuda.get_device_properties(device)
                traffic = 2 * own.memory_clock_rate * 1000 * own.memory_bus_width / 8
                return found, own.clock_rate / clock, traffic / memory
        return ({},)


@functools.cache
def _device(device: torch.device) -> tuple[str, int]:
    """The name of a GPU, and the number of its multiprocessors."""
    return torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).multi_processor_count


def _takes(kernel: KernelModule, config: Row, M: int, N: int, K: int) -> bool:
    """Whether the kernel's configuration takes these sizes."""
    return bool(kernel.CALL.fitting([config], {"M": M, "T": M, "N": N, "K": K}))


def _how(kernel: KernelModule) -> str:
    """The name of a kernel after its contract."""
    return kernel.__name__.rpartition("__")[2]
