"""Compile kernels before the timing, in several processes, by calling each once; this fills Triton's cache on disk.

A call that fails, or that is not made in time, does no harm: the timing process compiles what is not in the cache.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait

from generator.bench.comparison_plan import Comparison, Contestant
from generator.bench.competitor import function, rows
from generator.bench.random_operands import make_sets
from generator.files.parent_process import end_with_parent
from generator.problem.product import Problem

#: The number of calls for which starting workers is worthwhile.
_WORTH_IT = 12
_LONGEST_SECONDS = 120.0
#: The most bytes of operands of a call: all workers hold some at a time, each those of two calls.
_MOST_BYTES = 4e9

#: A problem, what computes it, and the index of the configuration; None for the one that the kernel selects.
Call = tuple[Problem, Contestant, int | None]


def calls(comparisons: Sequence[Comparison], configs: str) -> list[Call]:
    """Every distinct call of the comparisons, but for those with the largest operands."""
    found: dict[object, Call] = {}
    for comparison in comparisons:
        if comparison.problem.held > _MOST_BYTES:
            continue
        for contestant in comparison.contestants:
            indices: list[int | None] = [None]
            if configs == "all":
                indices += range(len(rows(contestant)))
            for index in indices:
                call = comparison.problem, contestant, index
                found.setdefault((comparison.problem, contestant.file, contestant.kernel, index), call)
    return list(found.values())


def compile_ahead(work: Sequence[Call], workers: int, longest: float = _LONGEST_SECONDS) -> None:
    """Make each call of `work` once, in `workers` processes, and wait for at most `longest` seconds."""
    if workers < 1 or len(work) < _WORTH_IT:
        return
    workers = min(workers, len(work))
    print(f"compiling {len(work)} calls in {workers} processes", file=sys.stderr, flush=True)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    try:
        if wait([pool.submit(_make, *call) for call in work], timeout=longest).not_done:
            print(
                "compilation takes too long; the remaining calls are compiled when timed", file=sys.stderr, flush=True
            )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        # Nothing else may use the device, or the processor, while calls are timed.
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
            process.join()


def _begin() -> None:
    """Prepare a worker, whose output nobody reads."""
    end_with_parent()
    import torch

    torch.set_num_threads(1)
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)


def _make(problem: Problem, contestant: Contestant, index: int | None, device: str = "cuda") -> None:
    import torch

    (one,) = make_sets(problem, device, 1, seed=0)
    options = {} if index is None else {"config": index}
    function(contestant)(one.a, one.b, **one.keywords, out=one.out, **options)
    torch.cuda.synchronize()
