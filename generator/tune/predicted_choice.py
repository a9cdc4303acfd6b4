"""What a call of a rendered family would run on a device that need not be there, and how long models say it takes.

The functions of the family are asked, as `prepare` asks them; nothing is compiled or launched.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

from generator.cost import analytic
from generator.emit.loading import library_module, load_family
from generator.language.errors import CallError
from generator.language.model import Variant
from generator.plan.devices import Device
from generator.plan.kernels import Kernel
from generator.problem.product import Shape
from generator.tune.samples import crossing
from generator.verify.ahead_of_time import standing_in_for, why_none_on

#: The launch of a copy that makes an operand aligned.
_COPY = "copies"


@dataclass(frozen=True)
class PredictedChoice:
    """What a call of one contract runs with contiguous operands."""

    contract: str
    #: The kernel's name, and its configuration; a tuner has several configurations, and none is chosen before the call.
    kernel: str
    config: Mapping[str, int] | None
    candidates: int = 1
    #: Whether an operand is copied first.
    copied: bool = False
    #: Whether it is the fastest of those that were measured at this size.
    won: bool = False
    #: Seconds by the model that is fitted to measurements, where the family has its rates, and by the analytic model.
    fitted: float | None = None
    analytic: float | None = None


@dataclass(frozen=True)
class RefusedSizes:
    """Why no kernel of a contract takes the sizes."""

    contract: str
    reason: str


def choices(
    folder: Path, contracts: Iterable[str], kernels: Mapping[str, Kernel], sizes: tuple[int, ...], device: Device
) -> Iterator[PredictedChoice | RefusedSizes]:
    """The choice of each contract of the family in `folder` for M, N and K, after the number of products in a batch.

    `kernels` are all of the family, by name: a call may go on as one of another contract.
    Raises `CallError` in Triton's interpreter, where nothing is chosen for a GPU.
    """
    return (found for _, found in choices_of(folder, contracts, kernels, [sizes], device))


def choices_of(
    folder: Path,
    contracts: Iterable[str],
    kernels: Mapping[str, Kernel],
    calls: Iterable[tuple[int, ...]],
    device: Device,
) -> Iterator[tuple[tuple[int, ...], PredictedChoice | RefusedSizes]]:
    """The same for several calls, each choice behind the sizes that it is of: by calls, then by contracts."""
    if triton.knobs.runtime.interpret:
        raise CallError("explain --sizes says what a GPU would run; unset TRITON_INTERPRET")
    names = list(contracts)
    own = {name: [each for each in kernels.values() if each.variant.contract == name] for name in names}
    unable = {name: why_none_on(own[name], device) for name in names}
    with standing_in_for(device):
        family = load_family(folder.resolve())
        ahead = library_module(family, "prepare")
        for sizes, name in itertools.product(calls, names):
            if (reason := unable[name]) is not None:
                yield sizes, RefusedSizes(name, reason)
                continue
            *batch, m, n, k = sizes
            where = torch.device("cuda", 0)
            options = {"M": m, "B": batch[0] if batch else 1, "device": where, "unaligned": ()}
            try:
                launches = ahead.launches(getattr(family, name), n, k, **options)
            except ValueError as error:
                yield sizes, RefusedSizes(name, str(error).removeprefix(f"{name}: "))
                continue
            first = next((each for each in launches if each.row is not None), None)
            if first is None:
                yield sizes, RefusedSizes(name, "the result is empty: nothing runs")
                continue
            found = PredictedChoice(
                name, first.name, dict(first.row), copied=any(each.name == _COPY for each in launches)
            )
            if first.tuned:
                tried = {each.row for each in launches if each.tuned and each.name == first.name}
                yield sizes, PredictedChoice(name, first.name, None, len(tried))
            else:
                yield sizes, _estimated(family, kernels[first.name], found, sizes, device)


def _estimated(
    family: ModuleType, kernel: Kernel, found: PredictedChoice, sizes: tuple[int, ...], device: Device
) -> PredictedChoice:
    """The choice with what the models say of it."""
    v, config = kernel.variant, found.config
    assert config is not None
    own = compared(v, sizes)
    seconds = analytic.seconds(v, config, own, device) if v.traits.tiled else None
    chosen = (found.contract, found.kernel, config, 1, found.copied)
    if not (Path(str(family.__file__)).parent / "_tuned.py").is_file():
        return PredictedChoice(*chosen, analytic=seconds)
    tuned = importlib.import_module(f"{family.__name__}._tuned")
    timing = importlib.import_module(f"{family.__name__}._runtime.fitted")
    width = v.dtype.stored_a.width
    crosses = (False, False) if found.copied else crossing(v.layout, own, width)
    index = [dict(row) for row in _configs(family, kernel)].index(dict(config))
    contract = v.contract
    rates, *scale = tuned.MEASUREMENTS.rates_of(torch.device("cuda", 0), contract)
    rated = rates.get(kernel.how, {}).get(index)
    fitted = None
    if rated is not None:
        row = timing.rated(config, rated, *scale)
        (fitted,) = timing.seconds([row], own, device.multiprocessors, width, crosses)
    gpu = device.name
    sources = (contract, tuned.LIKE.get((gpu, contract)))
    winner = next((won for each in sources if (won := tuned.WINNERS.get((gpu, each), {}).get(own))), None)
    return PredictedChoice(
        *chosen, won=winner == (kernel.how, index) and not any(crosses), fitted=fitted, analytic=seconds
    )


def compared(v: Variant, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes by which configurations are compared for a call with `sizes`: of groups, those of equal ones."""
    *batch, m, n, k = sizes
    count = math.prod(batch)
    if v.products.divided:
        return Shape(m, n, k, groups=count, inner=v.products.divided == "K").sizes
    return (count, m, n, k) if v.products.several else (m, n, k)


def _configs(family: ModuleType, kernel: Kernel) -> Any:
    return importlib.import_module(f"{family.__name__}.{kernel.name}").CONFIGS
