"""What a call of a rendered family would run on a device that need not be there, and how long models say it takes.

The functions of the family are asked, as `prepare` asks them; nothing is compiled or launched.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch
import triton

from generator.cost import analytic
from generator.emit.loading import library_module, load_family
from generator.language.errors import CallError
from generator.plan.devices import Device
from generator.plan.kernels import Kernel
from generator.tune.samples import crossing, sizes_compared
from generator.verify.ahead_of_time import standing_in_for, why_none_on

#: The launch of a copy that makes an operand aligned.
_COPY = "copies"


@dataclass(frozen=True)
class PredictedChoice:
    """What a call of one contract runs with contiguous operands."""

    contract: str
    sizes: tuple[int, ...]
    #: The kernel's name, and its configuration; a tuner has several configurations, and none is chosen before the call.
    kernel: str = ""
    config: Mapping[str, int] | None = None
    candidates: int = 1
    #: Whether an operand is copied first.
    copied: bool = False
    #: Whether it is the fastest of those that were measured at this size.
    won: bool = False
    #: Seconds by the model that is fitted to measurements, where the family has its rates, and by the analytic model.
    fitted: float | None = None
    analytic: float | None = None
    #: Why no kernel takes the sizes.
    refused: str | None = None


def choices(
    folder: Path,
    contracts: Iterable[str],
    kernels: Mapping[str, Kernel],
    calls: Iterable[tuple[int, ...]],
    device: Device,
) -> Iterator[PredictedChoice]:
    """The choices of contracts of the family in `folder`: by calls, then by contracts.

    A call is M, N and K, after the number of products in a batch. `kernels` are all of the family, by name: a call may
    go on as one of another contract. Raises `CallError` in Triton's interpreter, where nothing is chosen for a GPU.
    """
    if triton.knobs.runtime.interpret:
        raise CallError("explain --sizes says what a GPU would run; unset TRITON_INTERPRET")
    names = list(contracts)
    own = {name: [each for each in kernels.values() if each.variant.contract == name] for name in names}
    unable = {name: why_none_on(own[name], device) for name in names}
    with standing_in_for(device):
        family = load_family(folder.resolve())
        for sizes, name in itertools.product(calls, names):
            refused = PredictedChoice(name, sizes, refused=unable[name])
            yield _chosen(family, refused, kernels, device) if refused.refused is None else refused


def _chosen(
    family: ModuleType, call: PredictedChoice, kernels: Mapping[str, Kernel], device: Device
) -> PredictedChoice:
    """The call with what it runs; no configuration if a tuner measures several first."""
    *batch, m, n, k = call.sizes
    options = {"M": m, "B": batch[0] if batch else 1, "device": torch.device("cuda", 0), "unaligned": ()}
    try:
        launches = library_module(family, "prepare").launches(getattr(family, call.contract), n, k, **options)
    except ValueError as error:
        return replace(call, refused=str(error).removeprefix(f"{call.contract}: "))
    first = next((each for each in launches if each.row is not None), None)
    if first is None and 0 not in call.sizes:
        # Torch's own product is not compiled.
        return replace(call, kernel="aten", config={})
    if first is None:
        return replace(call, refused="the result is empty: nothing runs")
    if first.tuned:
        tried = {each.row for each in launches if each.tuned and each.name == first.name}
        return replace(call, kernel=first.name, candidates=len(tried))
    copied = any(each.name == _COPY for each in launches)
    choice = replace(call, kernel=first.name, config=dict(first.row), copied=copied)
    return _estimated(family, kernels[first.name], choice, dict(first.row), device)


def _estimated(
    family: ModuleType, kernel: Kernel, predicted: PredictedChoice, config: Mapping[str, int], device: Device
) -> PredictedChoice:
    """The choice with what the models say of it."""
    v, own, contract = kernel.variant, sizes_compared(kernel.variant, predicted.sizes), kernel.variant.contract
    if v.traits.tiled:
        predicted = replace(predicted, analytic=analytic.seconds(v, config, own, device))
    if not (Path(str(family.__file__)).parent / "_tuned.py").is_file():
        return predicted
    tuned = importlib.import_module(f"{family.__name__}._tuned")
    timing = importlib.import_module(f"{family.__name__}._runtime.fitted")
    width = v.dtype.stored_a.width
    crosses = (False, False) if predicted.copied else crossing(v.layout, own, width)
    configs = importlib.import_module(f"{family.__name__}.{kernel.name}").CONFIGS
    index = [dict(row) for row in configs].index(dict(config))
    rates, *scale = tuned.MEASUREMENTS.rates_of(torch.device("cuda", 0), contract)
    rated = rates.get(kernel.how, {}).get(index)
    if rated is not None:
        row = timing.rated(config, rated, *scale)
        (seconds,) = timing.seconds([row], own, device.multiprocessors, width, crosses)
        predicted = replace(predicted, fitted=seconds)
    sources = (contract, tuned.LIKE.get((device.name, contract)))
    winners = (tuned.WINNERS.get((device.name, each), {}).get(own) for each in sources)
    won = next(filter(None, winners), None) == (kernel.how, index)
    return replace(predicted, won=won and not any(crosses))
