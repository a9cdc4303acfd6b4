"""Host time of the first call of a size whose kernel is compiled, in microseconds.

python measured/scripts/first_contact.py [--families generated] [--family gemm16] [--claimed nvidia_h100_80gb_hbm3]
    [--stages]

300 sizes in a row: layers of several models, each with many numbers of rows, drawn in any order. All extents are
multiples of 16, so that Triton compiles each configuration once; a first round over other numbers of rows compiles them
and is not counted. `torch.matmul` is timed in the same loop. With `--claimed` no GPU is needed: the choice is that of
the device, operands are in the memory of the host, and a launch is a function of Python that does nothing. With
`--stages` the parts of a call are timed too: each with what it calls, so that the whole takes longer.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton

#: N and K of layers.
LAYERS = (
    *(
        (6144, 4096),
        (4096, 4096),
        (28672, 4096),
        (4096, 14336),
        (7680, 5120),
        (5120, 8192),
        (35840, 5120),
        (5120, 17920),
    ),
    *((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672), (3840, 15360), (1536, 1024), (2048, 2560)),
)
SIZES = 300


class Launched:
    """What a claimed launch returns, and what repeats it."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(tensordesc_meta=None)
        self.function, self.packed_metadata = object(), object()

    def run(self, *arguments: Any) -> None:
        """Nothing is launched."""

    def launch_metadata(self, *arguments: Any) -> dict[str, Any]:
        return {}


@contextlib.contextmanager
def claimed(name: str, folder: Path, family: str) -> Iterator[Any]:
    """The family on a device that is only claimed: operands are in the memory of the host, and nothing is launched."""
    from generator.plan.devices import DEVICES
    from generator.verify.ahead_of_time import standing_in_for

    sys.path.insert(0, str(folder.resolve()))
    package = importlib.import_module(family)
    library = {
        each: importlib.import_module(f"{family}._runtime.{each}")
        for each in ("functions", "cached_launch", "relaunch")
    }
    for each in [each for names in package._KERNELS.values() for each in names]:
        package._kernel(each)

    def run(kernel: Any, **options: Any) -> Launched:
        """Stands for a launch by Triton, which compiles: a size whose kernel is compiled is launched without it."""
        hook = triton.knobs.runtime.jit_post_compile_hook
        if hook is not None:
            hook(key=kernel)
        return Launched()

    active = SimpleNamespace(get_current_stream=lambda index: 0, get_current_device=lambda: None)
    binding = SimpleNamespace(active=SimpleNamespace(get_current_device=lambda: 0))
    with standing_in_for(DEVICES[name]), contextlib.ExitStack() as patches:
        for module, attribute, value in (
            (library["functions"], "_on_gpu", lambda x: True),
            (library["cached_launch"], "driver", SimpleNamespace(active=active)),
            (library["relaunch"], "driver", binding),
            (library["relaunch"], "KNOWN", True),
            (triton.JITFunction, "run", run),
            (triton.knobs.runtime, "interpret", True),
            (torch.cuda, "synchronize", lambda: None),
        ):
            patches.enter_context(patch.object(module, attribute, value))
        yield package


@contextlib.contextmanager
def at_hand(folder: Path, family: str) -> Iterator[Any]:
    """The family on the GPU at hand."""
    sys.path.insert(0, str(folder.resolve()))
    yield importlib.import_module(family)


#: The parts of a first call: modules of `_runtime`, and what each has of them.
STAGES = {
    "call": ("Call.state", "Call.reason", "Call.plan_of"),
    "call_tensors": ("Result.new",),
    "copies": ("worth_aligning",),
    "measured_choice": ("Measurements.choose",),
    "cached_launch": ("launched", "started"),
    "tensor_maps": ("Made.__call__",),
    "relaunch": ("RepeatedLaunch.__call__",),
}


@contextlib.contextmanager
def stages(family: str) -> Iterator[dict[str, list[float]]]:
    """Within, the microseconds of each part of each call are kept by its name."""
    kept: dict[str, list[float]] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                kept.setdefault(name, []).append(1e6 * (time.perf_counter() - begun))

        return call

    with contextlib.ExitStack() as patches:
        for module, names in STAGES.items():
            for name in names:
                *owner, last = name.split(".")
                within = importlib.import_module(f"{family}._runtime.{module}")
                within = getattr(within, owner[0]) if owner else within
                patches.enter_context(patch.object(within, last, timed(f"{module}.{name}", getattr(within, last))))
        # What chooses is a function of `_tuned` too.
        tuned = importlib.import_module(f"{family}._tuned")
        patches.enter_context(patch.object(tuned, "choose", tuned.MEASUREMENTS.choose))
        yield kept


def drawn(seed: int, count: int) -> list[tuple[int, int, int]]:
    """So many different sizes, in any order."""
    draw = random.Random(seed)
    rows = [16 * draw.randint(1, 128) for _ in range(4 * count)]
    sizes = list(dict.fromkeys((m, *draw.choice(LAYERS)) for m in rows))
    return sizes[:count]


def seconds(call: Callable[..., object], sizes: list[tuple[int, int, int]], device: str) -> list[float]:
    """Seconds of a call of each of the sizes that compiled nothing."""
    compiled: list[object] = []
    # Triton calls it for kernels of its cache on disk too.
    triton.knobs.runtime.jit_post_compile_hook = lambda **options: compiled.append(options["key"])
    taken = []
    for m, n, k in sizes:
        a = torch.empty(m, k, dtype=torch.float16, device=device)
        b = torch.empty(n, k, dtype=torch.float16, device=device).T
        torch.cuda.synchronize()
        compiled.clear()
        begun = time.perf_counter()
        call(a, b)
        taken += [time.perf_counter() - begun] * (not compiled)
    triton.knobs.runtime.jit_post_compile_hook = None
    return taken


def main(given: argparse.Namespace) -> None:
    """Print a line for each function."""
    # A size of the second list is none of the first.
    before = drawn(0, SIZES)
    sizes = [each for each in drawn(1, 2 * SIZES) if each not in before][:SIZES]
    context = (
        claimed(given.claimed, given.families, given.family) if given.claimed else at_hand(given.families, given.family)
    )
    with context as family:
        where = f"{given.claimed}, claimed" if given.claimed else torch.cuda.get_device_name()
        print(f"{where}, torch {torch.__version__}, Triton {triton.__version__}: microseconds of a first call")
        calls: dict[str, Callable[..., object]] = {given.contract: getattr(family, given.contract)}
        if not given.claimed:
            calls["torch.matmul"] = torch.matmul
        for name, call in calls.items():
            device = "cpu" if given.claimed else "cuda"
            seconds(call, before, device)
            taken = [1e6 * each for each in seconds(call, sizes, device)]
            low, middle, high = statistics.quantiles(taken, n=4)
            print(f"{name:24} median {middle:6.1f}, quartiles {low:.1f} and {high:.1f}, of {len(taken)} sizes")
        if given.stages:
            own = calls[given.contract]
            more = [each for each in drawn(2, 3 * SIZES) if each not in before and each not in sizes][:SIZES]
            with stages(given.family) as kept:
                taken = [1e6 * each for each in seconds(own, more, "cpu" if given.claimed else "cuda")]
            print(f"{'all, with the clocks':40} median {statistics.median(taken):6.1f}")
            for name, ratios_of in kept.items():
                print(f"{name:40} median {statistics.median(ratios_of):6.1f}, {len(ratios_of) / len(more):.1f} a call")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=Path, default=Path("generated"))
    parser.add_argument("--family", default="gemm16")
    parser.add_argument("--contract", default="gemm_fp16_rcr_none")
    parser.add_argument("--claimed")
    parser.add_argument("--stages", action="store_true")
    main(parser.parse_args())
