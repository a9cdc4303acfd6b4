"""The CUDA device with torch.cuda replaced, and the workers that compile ahead: what no GPU is needed to hold."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from generator.bench import device, precompilation
from generator.bench.comparison_plan import Comparison, Contestant
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape
from tests.helpers.support import ROOT


class Cuda:
    """As much of torch.cuda as the device touches; `log` tells what was done, `capturing` whether a capture runs."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.streams = ["main"]
        self.capturing = False

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: self.log.append("side waits"))

    def current_stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: self.log.append("main waits"))

    @contextlib.contextmanager
    def stream(self, side: Any) -> Iterator[None]:
        self.streams.append("side")
        try:
            yield
        finally:
            self.streams = ["main"]

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    @contextlib.contextmanager
    def graph(self, graph: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        self.capturing = True
        yield
        self.capturing = False

    def Event(self, enable_timing: bool) -> Any:
        return SimpleNamespace(record=lambda: self.log.append("event"), elapsed_time=lambda end: 2.5)

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(
            name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, L2_cache_size=60 * 2**20
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    fake = Cuda()
    for name in dir(fake):
        if not name.startswith("_") and hasattr(torch.cuda, name):
            monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(device, "_driver", lambda: "580.1")
    return fake


def test_work_is_captured_and_replayed_between_events(cuda: Cuda) -> None:
    seen: list[tuple[str, bool]] = []
    replay = device.CudaDevice().record(lambda: seen.append((cuda.streams[-1], cuda.capturing)))
    assert replay.method == "graph"
    assert seen == [("side", False), ("side", True)], "run once on the stream before it is captured there"
    assert cuda.streams == ["main"]
    cuda.log.clear()
    reading = replay.run()
    assert cuda.log == ["event", "replay", "event"], "nothing waits"
    assert reading() == 0.0025


def test_work_that_cannot_be_captured_is_timed_by_events(cuda: Cuda, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        cuda.log.append("work")
        if cuda.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")

    replay = device.CudaDevice().record(work)
    assert replay.method == "events"
    assert cuda.streams == ["main"], "the stream is restored"
    assert (
        "cannot be captured in a CUDA graph, timed by events: RuntimeError: operation not permitted"
        in capsys.readouterr().err
    )
    cuda.capturing = False
    cuda.log.clear()
    replay.run()
    assert cuda.log == ["event", "work", "event"]


def test_the_environment_names_device_and_versions(cuda: Cuda) -> None:
    environment = device.CudaDevice().environment
    assert environment["device"] == "NVIDIA H200"
    assert environment["l2_bytes"] == 60 * 2**20
    assert environment["driver"] == "580.1"
    assert set(environment) == {
        "device",
        "capability",
        "multiprocessors",
        "l2_bytes",
        "driver",
        "cuda",
        "python",
        "torch",
        "triton",
    }


def comparison(name: str, shape: Shape = Shape(16, 16, 16)) -> Comparison:  # noqa: B008 - frozen
    problem = Problem(shape, Dtype.of("fp16"), Layout.of("rcr"), chain_of(("bias",)))
    contestant = Contestant(name, "family", f"gemm__{name}", Path(f"{name}.py"), name, Layout.of("rcr"))
    return Comparison("case", "Case", problem, (contestant,))


def test_a_call_is_compiled_once() -> None:
    jobs = precompilation.jobs(
        [comparison("one"), comparison("one"), comparison("two"), comparison("one", Shape(1, 1, 1))], "select"
    )
    assert [(job["kernel"], job["shape"]) for job in jobs] == [
        ("gemm__one", [16, 16, 16]),
        ("gemm__two", [16, 16, 16]),
        ("gemm__one", [1, 1, 1]),
    ]


def test_a_worker_goes_on_after_a_failure(tmp_path: Path) -> None:
    jobs = precompilation.jobs([comparison("one"), comparison("two")], "select")
    call = [sys.executable, "-m", "generator.bench.precompilation"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, text=True
    ) as worker:
        assert worker.stdin is not None and worker.stderr is not None
        # Closing its input would end it.
        worker.stdin.write(json.dumps(jobs) + "\n")
        worker.stdin.flush()
        told = worker.stderr.read()
    assert worker.returncode == 0, told
    assert "gemm__one:" in told and "gemm__two:" in told


def test_workers_that_fail_do_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(precompilation, "_WORTH_IT", 1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    precompilation.compile_ahead(precompilation.jobs([comparison("one")], "select"), 4)
    assert "compiling 1 calls in 1 processes" in capsys.readouterr().err


def test_workers_that_are_late_are_ended(capsys: pytest.CaptureFixture[str]) -> None:
    late = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE, text=True)
    precompilation._wait([(late, "[]")], 0.1)
    assert late.poll() is not None
    assert "takes too long" in capsys.readouterr().err
