"""Run jobs over worker processes, each level in its own: triton decides at its import whether it interprets."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

from generator.verify.jobs import Failure, Job, Result

#: How many cases of gigabytes may be on one GPU at a time.
_LARGE_CASES = 2

_lock: contextlib.AbstractContextManager[object] = contextlib.nullcontext()


class Pool:
    """Worker processes of one level: `submit` a job, get a future of its `Result`."""

    def __init__(self, level: str, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(
            workers, context, initializer=_initialize, initargs=(level, context.Semaphore(_LARGE_CASES))
        )

    def submit(self, job: Job) -> Future[Result]:
        return self._executor.submit(_work, job)

    def close(self) -> None:
        """Give up what has not begun, and end the workers."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def _initialize(level: str, lock: Any) -> None:
    """In a new worker, before anything imports torch or triton."""
    global _lock
    _lock = lock
    os.environ["OMP_NUM_THREADS"] = "1"
    if level == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    # Nothing is written beside the files under proof.
    sys.dont_write_bytecode = True
    for said in ("tl.make_block_ptr is deprecated", "TRITON_DEFAULT_FP_FUSION is unset"):
        warnings.filterwarnings("ignore", message=said)


def _work(job: Job) -> Result:
    if job.level == "bounds":
        from generator.verify.bounds_job import run

        return run(job)
    if job.level == "compile":
        from generator.verify.compile import run

        return run(job)
    from generator.verify.worker import run as run_cases

    return run_cases(job, _lock)


def results(level: str, jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    """The result of every job, each as it is done. A job whose process dies has failed; the others are run again.

    Closing the iterator gives up what has not begun.
    """
    left = list(jobs)
    together = True
    while left:
        pool = Pool(level, min(workers, len(left)) if together else 1)
        try:
            for result in _in_any_order(pool, left) if together else _first(pool, left):
                if result.cases or result.failures or result.left_out is not None or not result.lost:
                    left.remove(result.job)
                    yield settled(result)
                if result.lost:
                    # One worker has lost its device, and would turn down job after job: begin again without it.
                    break
            together = True
        except BrokenProcessPool:
            if not together:
                # Alone in its process: this job is what ends it.
                yield _died(left.pop(0))
            together = not together
        finally:
            pool.close()


def settled(result: Result) -> Result:
    """The same result, with its reason where no case ran: what ran nothing has not passed."""
    if result.cases or result.failures or result.not_proved or result.left_out is not None:
        return result
    if result.job.case is not None:
        return replace(result, left_out=f"--case {result.job.case!r} matches none of its cases")
    return replace(result, failures=(Failure("process", "a job runs cases", "it ran no case"),))


def _in_any_order(pool: Pool, jobs: Sequence[Job]) -> Iterator[Result]:
    for future in as_completed([pool.submit(job) for job in jobs]):
        yield future.result()


def _first(pool: Pool, jobs: Sequence[Job]) -> Iterator[Result]:
    """One after another, so that the job that ends the process is the first that is left."""
    for job in list(jobs):
        yield pool.submit(job).result()


def _died(job: Job) -> Result:
    failure = Failure("process", "the process outlives the job", "the worker process died (a crash, or out of memory)")
    return Result(job, failures=(failure,))


def workers_by_default() -> int:
    """As many as this process may use processors."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
