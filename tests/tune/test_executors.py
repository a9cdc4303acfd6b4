"""Who works: processes that see one GPU each, and executors that the caller names, Dask's among them."""

from __future__ import annotations

import pytest

from generator.errors import CallError
from generator.tune import executors

from . import fakes, seen
from .conftest import Bench
from .test_run import ALL, winners_of


@pytest.mark.parametrize(("visible", "expected"), [("", {"0", "1"}), ("4,GPU-b,6", {"4", "GPU-b"})])
def test_each_process_sees_one_of_the_gpus(monkeypatch: pytest.MonkeyPatch, visible: str, expected: set[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with executors.processes(2) as executor:
        futures = [executor.submit(seen.devices) for _ in range(2)]
        assert {future.result(timeout=60) for future in futures} == expected
        assert executor.submit(seen.ignores_interrupts).result()


def test_two_processes_tune(bench: Bench) -> None:
    assert bench.tune("--gpus", "2") == 0
    assert winners_of(bench.winners) == ALL


def test_an_executor_that_the_caller_names(bench: Bench) -> None:
    assert bench.tune("--executor", "tune.fakes:threads") == 0
    assert winners_of(bench.winners) == ALL


def test_two_processes_of_dask_tune(bench: Bench) -> None:
    try:
        assert bench.tune("--executor", "tune.fakes:dasked", "--gpus", "2") == 0
    finally:
        for opened in reversed(fakes.opened):
            opened.close()
    assert winners_of(bench.winners) == ALL


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("no_such_module:make", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("tune.fakes:absent", "AttributeError: module 'tune.fakes' has no attribute 'absent'"),
        ("tune.fakes", "tune.fakes gives no executor"),
        ("tune.fakes:SPEC", "TypeError: tune.fakes:SPEC is str, which cannot be called"),
        ("tune.fakes:no_executor", "gives str, not a concurrent.futures.Executor"),
    ],
)
def test_what_gives_no_executor_is_told(word: str, message: str) -> None:
    with pytest.raises(CallError) as caught:
        executors.make(word, 1)
    assert str(caught.value).startswith("--executor: ") and message in str(caught.value)


def test_a_worker_without_a_device_is_told(bench: Bench) -> None:
    with pytest.raises(CallError, match="a worker has no device to time on"):
        bench.tune("--executor", "tune.fakes:threads", factory="tune.fakes:absent")
