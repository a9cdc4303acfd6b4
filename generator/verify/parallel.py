"""Call a function for many items in worker processes, in order."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from generator.files.parent_process import begin_worker

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

#: The items that a worker gets at a time.
_CHUNK = 100


def each(function: Callable[[_Item], _Value], items: Sequence[_Item], many: int) -> Generator[_Value, None, None]:
    """The function's value for each item, in order; from `many` items on, in worker processes.

    Closing the iterator, or an interrupt, ends the workers.
    """
    workers = workers_by_default()
    if len(items) < many or workers < 2:
        yield from map(function, items)
        return
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=begin_worker)
    try:
        yield from executor.map(function, items, chunksize=_CHUNK)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def workers_by_default() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
