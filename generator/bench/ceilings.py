"""Measure the two ceilings of the roofline: the device's memory bandwidth, and its rate of operations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

import torch

from generator.bench import random_operands, stats
from generator.bench.device import CudaDevice, timed
from generator.bench.measurements import COPY
from generator.bench.peers import NoPeer, cublas, set_precision
from generator.epilogue.chain import Epilogue
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape

_ROUNDS = 11
_COPY_BYTES = 2**30
#: M, N and K of a product that keeps every multiprocessor busy; fp32 without the matrix unit is ten times slower.
_SQUARE, _SQUARE_IEEE = 8192, 4096


def measure(device: CudaDevice, dtypes: Iterable[Dtype], *, scale: int = 1) -> dict[str, float]:
    """Bytes per second of a copy (read and written), and operations per second of torch's product for each type.

    The sizes are divided by `scale`. A type that torch cannot multiply has no ceiling.
    """
    rates = {COPY: _copy(device, scale)}
    for dtype in dtypes:
        square = (_SQUARE_IEEE if dtype.precision in ("ieee", "tf32x3") else _SQUARE) // scale
        problem = Problem(Shape(square, square, square), dtype, Layout.of("rcr"), Epilogue())
        try:
            seconds = _product(device, problem)
        except NoPeer:
            continue
        rates[dtype.word] = stats.rounded(problem.flops / seconds)
    device.free()
    return rates


def _copy(device: CudaDevice, scale: int) -> float:
    count = _COPY_BYTES // 4 // scale
    source = torch.randn(count, device=device.name)
    target = torch.empty_like(source)

    def copy() -> None:
        # A kernel, because a captured `copy_` would use the copy engine, which is slower.
        torch.neg(source, out=target)

    return stats.rounded(2 * 4 * count / _median(device, copy))


def _product(device: CudaDevice, problem: Problem) -> float:
    set_precision(problem)
    peer = cublas(problem)
    (one,) = random_operands.make_sets(problem, device.name, 1, seed=1)

    def multiply() -> None:
        peer.launch(one, one.out)

    return _median(device, multiply)


def _median(device: CudaDevice, work: Callable[[], None]) -> float:
    """Seconds of `work`: the median of several replays, after one replay that is not counted."""
    work()
    device.synchronize()
    replay = device.record(work)
    return statistics.median([timed(device, replay)[0] for _ in range(1 + _ROUNDS)][1:])
