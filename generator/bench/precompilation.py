"""Compile kernels before the timing, in several processes, by calling each once; this fills Triton's cache on disk.

A worker that fails or is too slow does no harm: the timing process compiles what is not in the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generator.bench.comparison_plan import Comparison, Contestant
from generator.bench.competitor import function, rows
from generator.files import own_process
from generator.files.parent_process import end_with_parent
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape

#: The number of calls for which starting workers is worthwhile.
_WORTH_IT = 12
_LONGEST_SECONDS = 120.0
#: The most bytes of operands of a call: all workers hold some at a time, each those of two calls.
_MOST_BYTES = 4e9


def jobs(comparisons: Sequence[Comparison], configs: str) -> list[dict[str, Any]]:
    """Every distinct call of the comparisons, as plain data for JSON, but for those with the largest operands."""
    found: dict[str, dict[str, Any]] = {}
    for comparison in comparisons:
        if comparison.problem.held > _MOST_BYTES:
            continue
        for contestant in comparison.contestants:
            indices: list[int | None] = [None]
            if configs == "all":
                indices += range(len(rows(contestant)))
            for index in indices:
                job = job_of(comparison.problem, contestant, index)
                found.setdefault(json.dumps(job, sort_keys=True), job)
    return list(found.values())


def job_of(problem: Problem, contestant: Contestant, index: int | None) -> dict[str, Any]:
    """One call as plain data: with the configuration `index`, or with the one that the kernel selects if it is None."""
    return {
        "file": str(contestant.file),
        "kernel": contestant.kernel,
        "shape": problem.shape.numbers,
        "dtype": problem.dtype.data,
        "layout": problem.layout.word,
        "epilogue": problem.epilogue.data,
        "config": index,
    }


def compile_ahead(work: Sequence[dict[str, Any]], workers: int, longest: float = _LONGEST_SECONDS) -> None:
    """Make each call of `work` once, in `workers` processes, and wait for at most `longest` seconds."""
    if workers < 1 or len(work) < _WORTH_IT:
        return
    workers = min(workers, len(work))
    print(f"compiling {len(work)} calls in {workers} processes", file=sys.stderr, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = []
    for number in range(workers):
        process = subprocess.Popen(
            own_process.command("generator.bench.precompilation"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            encoding="utf-8",
        )
        running.append((process, json.dumps(work[number::workers])))
    _wait(running, longest)


def _wait(running: list[tuple[subprocess.Popen[str], str]], longest: float) -> None:
    try:
        for process, text in running:
            assert process.stdin is not None
            try:
                # The pipe stays open: a worker ends when it is closed, as the end of this process does.
                process.stdin.write(text + "\n")
                process.stdin.flush()
            except OSError:
                continue
        deadline = time.monotonic() + longest
        for process, _ in running:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        print("compilation takes too long; the remaining calls are compiled when timed", file=sys.stderr, flush=True)
    finally:
        for process, _ in running:
            if process.poll() is None:
                process.kill()
                process.wait()
            # A worker that has failed has not read all, and closing writes what is left.
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()


def main() -> None:
    """A worker: read calls from the first line of standard input and make each once, until standard input ends.

    An exception is printed and ignored: the timing process gets it again.
    """
    work = json.loads(sys.stdin.buffer.readline())
    end_with_parent(sys.stdin.fileno())
    import torch

    from generator.bench.random_operands import make_sets

    for job in work:
        problem = Problem(
            Shape(*job["shape"]), Dtype.from_data(job["dtype"]), Layout.of(job["layout"]), chain_of(job["epilogue"])
        )
        contestant = Contestant("", "", job["kernel"], Path(job["file"]), "", problem.layout)
        try:
            (one,) = make_sets(problem, "cuda", 1, seed=0)
            options = {} if job["config"] is None else {"config": job["config"]}
            function(contestant)(one.a, one.b, **one.keywords, out=one.out, **options)
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{job['kernel']}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
