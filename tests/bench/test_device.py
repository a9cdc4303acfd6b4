"""The CUDA device with torch.cuda replaced, and the workers that compile ahead: what no GPU is needed to hold."""

import contextlib
import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from generator.bench import device, workers
from generator.bench.comparison_plan import Comparison, Contestant
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape


class Cuda:
    """As much of torch.cuda as the device touches; `log` tells what was done, `capturing` whether a capture runs."""

    def __init__(self):
        self.log = []
        self.streams = ["main"]
        self.capturing = False

    def Stream(self):
        return SimpleNamespace(wait_stream=lambda other: self.log.append("side waits"))

    def current_stream(self):
        return SimpleNamespace(wait_stream=lambda other: self.log.append("main waits"))

    @contextlib.contextmanager
    def stream(self, side):
        self.streams.append("side")
        try:
            yield
        finally:
            self.streams = ["main"]

    def CUDAGraph(self):
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    @contextlib.contextmanager
    def graph(self, graph, stream, capture_error_mode):
        self.capturing = True
        yield
        self.capturing = False

    def Event(self, enable_timing):
        return SimpleNamespace(record=lambda: self.log.append("event"), elapsed_time=lambda end: 2.5)

    def synchronize(self):
        self.log.append("synchronize")

    def current_device(self):
        return 0

    def get_device_properties(self, index):
        return SimpleNamespace(
            name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, L2_cache_size=60 * 2**20
        )


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    for name in dir(fake):
        if not name.startswith("_") and hasattr(torch.cuda, name):
            monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(device, "_driver", lambda: "580.1")
    return fake


def test_work_is_captured_and_replayed_between_events(cuda):
    seen = []
    replay = device.CudaDevice().record(lambda: seen.append((cuda.streams[-1], cuda.capturing)))
    assert replay.method == "graph"
    assert seen == [("side", False), ("side", True)], "run once on the stream before it is captured there"
    assert cuda.streams == ["main"]
    cuda.log.clear()
    reading = replay.run()
    assert cuda.log == ["event", "replay", "event"], "nothing waits"
    assert reading() == 0.0025


def test_work_that_cannot_be_captured_is_timed_by_events(cuda, capsys):
    def work():
        cuda.log.append("work")
        if cuda.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")

    replay = device.CudaDevice().record(work)
    assert replay.method == "events"
    assert cuda.streams == ["main"], "the stream is restored"
    told = "cannot be captured in a CUDA graph, timed by events: RuntimeError: operation not permitted"
    assert told in capsys.readouterr().err
    cuda.capturing = False
    cuda.log.clear()
    replay.run()
    assert cuda.log == ["event", "work", "event"]


def test_the_environment_names_device_and_versions(cuda):
    environment = device.CudaDevice().environment
    assert environment.items() >= {"device": "NVIDIA H200", "l2_bytes": 60 * 2**20, "driver": "580.1"}.items()
    assert environment.keys() >= {"capability", "multiprocessors", "cuda", "python", "torch", "triton"}


def comparison(name, shape=Shape(16, 16, 16)):  # noqa: B008 - frozen
    problem = Problem(shape, Dtype.of("fp16"), Layout.of("rcr"), chain_of(("bias",)))
    contestant = Contestant(name, "family", f"gemm__{name}", Path(f"{name}.py"), name, None)
    return Comparison("case", "Case", problem, (contestant,))


def test_a_call_is_compiled_once():
    comparisons = [comparison("one"), comparison("one"), comparison("two"), comparison("one", Shape(1, 1, 1))]
    found = [(c.kernel, p.shape.numbers, index) for p, c, index in workers.calls(comparisons, "select")]
    assert found == [("gemm__one", [16] * 3, None), ("gemm__two", [16] * 3, None), ("gemm__one", [1] * 3, None)]


@pytest.mark.parametrize(("longest", "late"), [(60.0, False), (0.1, True)])
def test_workers_that_fail_or_are_late_do_not_stop_the_run(monkeypatch, capfd, longest, late):
    """There is no such file, and a process takes longer than a tenth of a second to start."""
    monkeypatch.setattr(workers, "_WORTH_IT", 1)
    workers.compile_ahead(workers.calls([comparison("one"), comparison("two")], "select"), 4, longest)
    told = capfd.readouterr().err.splitlines()
    assert told[0] == "compiling 2 calls in 2 processes" and len(told) == 1 + late
    assert late == ("takes too long" in told[-1])
    for process in multiprocessing.active_children():
        # It was told to end, which takes a moment on a busy machine; the pool's own thread may have waited for it.
        process.join(60)
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
