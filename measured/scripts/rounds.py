"""Sides that take turns in every round, and the ratios of their times, for the scripts of this folder."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import torch

_Name = TypeVar("_Name", bound=Hashable)


def in_turns(sides: Mapping[_Name, Callable[[], float]], rounds: int, warm: int = 0) -> dict[_Name, list[float]]:
    """What each side returns in each of `rounds` rounds, every other of them backwards, after `warm` uncounted ones."""
    times: dict[_Name, list[float]] = {name: [] for name in sides}
    for number in range(-warm, rounds):
        for name in list(sides) if number % 2 else list(sides)[::-1]:
            taken = sides[name]()
            if number >= 0:
                times[name].append(taken)
    return times


def ratio(theirs: Sequence[float], own: Sequence[float], digits: int = 4) -> dict[str, Any]:
    """Their time by one's own, round by round: the median and the quartiles."""
    each = [a / b for a, b in zip(theirs, own, strict=True)]
    low, middle, high = (round(x, digits) for x in statistics.quantiles(each, n=4))
    return {"median": middle, "quartiles": [low, high]}


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def until_done(call: Callable[[], object], count: int = 1) -> float:
    """Seconds of each of `count` calls from an idle GPU until it is idle again."""
    synchronize()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - begun) / count


def until_returned(call: Callable[[], object], count: int) -> float:
    """Seconds of each of `count` calls from an idle GPU until the last one returns."""
    synchronize()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    taken = (time.perf_counter() - begun) / count
    synchronize()
    return taken


def on_gpu(replay: Callable[[], object], count: int) -> float:
    """Seconds of each of the `count` calls that a replay makes, between two events."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    replay()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3 / count
