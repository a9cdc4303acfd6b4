"""Run jobs in worker processes. Each level has its own, since triton selects the interpreter when it is imported."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from typing import Any

from generator.files.parent_process import begin_worker
from generator.verify.job_inputs import run_with_inputs
from generator.verify.jobs import Failure, Job, JobResult, subject

#: How many cases with gigabytes of operands may use the GPU at the same time.
_LARGE_CASES = 2

_lock: contextlib.AbstractContextManager[object] = contextlib.nullcontext()


class Pool:
    """Worker processes of one level: `submit` takes a job and returns a future of its `JobResult`."""

    def __init__(self, level: str, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._others = multiprocessing.active_children()
        self._executor = ProcessPoolExecutor(
            workers, context, initializer=_initialize, initargs=(level, context.Semaphore(_LARGE_CASES))
        )

    def submit(self, job: Job) -> Future[JobResult]:
        return self._executor.submit(run_with_inputs, job, _run)

    def close(self) -> None:
        """Cancel the jobs that have not started, and end the workers."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End the workers within the jobs that they run."""
        for process in multiprocessing.active_children():
            if process not in self._others:
                process.terminate()


def _initialize(level: str, lock: Any) -> None:
    """Set the environment of a new worker, before anything imports torch or triton."""
    global _lock
    _lock = lock
    begin_worker()
    os.environ["OMP_NUM_THREADS"] = "1"
    if level == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    # Write no __pycache__ next to the files under proof.
    sys.dont_write_bytecode = True
    for message in ("tl.make_block_ptr is deprecated", "TRITON_DEFAULT_FP_FUSION is unset"):
        warnings.filterwarnings("ignore", message=message)


def _run(job: Job) -> JobResult:
    if not job.file.exists():
        message = f"{job.file} does not exist, but the family's manifest lists it; render the family again"
        return JobResult(job, failures=(Failure("import", "the file is imported", message),))
    started = time.monotonic()
    if job.level == "bounds":
        from generator.verify.bounds_job import run
    elif job.level == "compile":
        from generator.verify.compile import run
    else:
        from generator.verify import worker

        run = partial(worker.run, lock=_lock)
    return replace(run(job), subject=subject(job), seconds=time.monotonic() - started)


def results(level: str, jobs: Sequence[Job], workers: int) -> Iterator[JobResult]:
    """The result of every job, as soon as it is done. A job that ends its process has failed; the others run again.

    Closing the iterator cancels the jobs that have not started, and an interrupt also ends those that run.
    """
    left = dict.fromkeys(jobs)
    together = True
    while left:
        pool = Pool(level, min(workers, len(left)) if together else 1)
        try:
            # One after the other, the first job without a result is the one that ended the process.
            submitted = (pool.submit(job) for job in list(left))
            for future in as_completed([*submitted]) if together else submitted:
                result = future.result()
                if result.cases or result.failures or result.left_out is not None or not result.lost:
                    del left[result.job]
                    yield settled(result)
                if result.lost:
                    # One worker has lost its GPU, and each further job of it would fail: start new workers.
                    break
            together = True
        except BrokenProcessPool:
            if not together:
                # The job was alone in its process, so that it is the cause.
                job = next(iter(left))
                del left[job]
                message = "the worker process died (crash or out of memory)"
                yield JobResult(job, failures=(Failure("process", "the job does not end its process", message),))
            together = not together
        except KeyboardInterrupt:
            pool.stop()
            raise
        finally:
            pool.close()


def settled(result: JobResult) -> JobResult:
    """The same result; if no case ran, with a reason, since such a job has not passed."""
    if result.cases or result.failures or result.not_proved or result.left_out is not None:
        return result
    if result.job.case is not None:
        return replace(result, left_out=f"--case {result.job.case!r} matches none of its cases")
    return replace(result, failures=(Failure("process", "a job runs cases", "it ran no case"),))


def workers_by_default() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
