"""Processes beside the one that decides: those that compile before the timing, and those that time, one for each GPU.

Compiling calls each kernel once, which fills Triton's cache on disk. A call that fails, or that is not made in time,
does no harm: the timing process compiles what is not in the cache.

This module imports little, so that a process which needs no more starts fast.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeAlias

from generator.files.parent_process import begin_worker
from generator.language.errors import CallError

if TYPE_CHECKING:
    from generator.bench.comparison_plan import Comparison, Contestant
    from generator.problem.product import Problem

#: The word of `--executor` for processes of this machine.
PROCESSES = "processes"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
#: The number of calls for which starting processes that compile is worthwhile.
_WORTH_IT = 12
_LONGEST_SECONDS = 120.0
#: The most bytes of operands of a call to compile: all processes hold some at a time, each those of two calls.
_MOST_BYTES = 4e9

#: A problem, what computes it, and the index of the configuration; None for the one that the kernel selects.
Call: TypeAlias = "tuple[Problem, Contestant, int | None]"


def processes(count: int, prepare: Callable[..., None] | None = None, *given: Any) -> ProcessPoolExecutor:
    """`count` new processes, each of which first calls `prepare`; they end with this one, and leave Ctrl-C to it."""
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (prepare, given))


def _begin(prepare: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    begin_worker()
    if prepare is not None:
        prepare(*given)


def require_gpu(otherwise: str, count: int = 1) -> None:
    """Raise `CallError` if there are not `count` GPUs to time on, or if Triton would interpret kernels.

    `otherwise` states what the command can do without a GPU.
    """
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        raise CallError(f"timing needs torch and triton: {error}") from None
    if not torch.cuda.is_available():
        raise CallError(f"timing needs a GPU, and torch finds no CUDA device ({otherwise} without one)")
    if count > torch.cuda.device_count():
        raise CallError(f"--gpus: {count} requested, and torch finds {torch.cuda.device_count()}")
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise CallError("TRITON_INTERPRET is set: times of interpreted kernels are meaningless; unset it")


def calls(comparisons: Sequence[Comparison], configs: str) -> list[Call]:
    """Every distinct call of the comparisons, but for those with the largest operands."""
    from generator.bench.competitor import rows

    unique: dict[object, Call] = {}
    for comparison in comparisons:
        problem = comparison.problem
        for contestant in comparison.contestants if problem.held <= _MOST_BYTES else ():
            every = range(len(rows(contestant))) if configs == "all" else ()
            for index in (None, *every):
                unique.setdefault((problem, contestant.file, contestant.kernel, index), (problem, contestant, index))
    return list(unique.values())


def compile_ahead(work: Sequence[Call], workers: int, longest: float = _LONGEST_SECONDS) -> None:
    """Make each call of `work` once, in `workers` processes, and wait for at most `longest` seconds."""
    if workers < 1 or len(work) < _WORTH_IT:
        return
    workers = min(workers, len(work))
    print(f"compiling {len(work)} calls in {workers} processes", file=sys.stderr, flush=True)
    others = set(multiprocessing.active_children())
    pool = processes(workers, _silent)
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


def _silent() -> None:
    """Prepare a process that compiles, whose output nobody reads."""
    import torch

    torch.set_num_threads(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _make(problem: Problem, contestant: Contestant, index: int | None, device: str = "cuda") -> None:
    import torch

    from generator.bench.competitor import function
    from generator.bench.random_operands import make_sets

    (one,) = make_sets(problem, device, 1, seed=0)
    options = {} if index is None else {"config": index}
    function(contestant)(one.a, one.b, **one.keywords, out=one.out, **options)
    torch.cuda.synchronize()


def loaded(name: str) -> Callable[[], Any]:
    """The callable that `MODULE:CALLABLE` names; raises ImportError, AttributeError or TypeError if there is none."""
    module, _, attribute = name.partition(":")
    target: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
    if not callable(target):
        raise TypeError(f"{name} is {type(target).__name__}, which cannot be called")
    return target


def executor(word: str, gpus: int) -> Executor:
    """What `--executor` names: a process for each GPU, or the user's; raises `CallError` if there is no such thing."""
    if word == PROCESSES:
        return one_for_each(gpus)
    try:
        pool = loaded(word)()
    except Exception as error:
        raise CallError(f"--executor: {word} returns no executor ({type(error).__name__}: {error})") from None
    if not isinstance(pool, Executor):
        raise CallError(f"--executor: {word} returns {type(pool).__name__}, not a concurrent.futures.Executor")
    return pool


def one_for_each(gpus: int) -> ProcessPoolExecutor:
    """`gpus` new processes, each of which sees one of the GPUs that this process sees."""
    devices = multiprocessing.get_context("spawn").Queue()
    seen = [device for device in os.environ.get(_VISIBLE, "").split(",") if device]
    for device in (seen or [str(index) for index in range(gpus)])[:gpus]:
        devices.put(device)
    return processes(gpus, _see_one, devices)


def _see_one(devices: Any) -> None:
    # torch looks for devices at the first use, which is later.
    os.environ[_VISIBLE] = devices.get()
