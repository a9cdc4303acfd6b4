"""Who works: processes that see one GPU each, and executors that the caller names, Dask's among them."""

import json

import pytest

from generator.bench import workers
from generator.language.errors import CallError
from generator.tune.journal import Journal
from tests.helpers.support import LONGEST
from tests.helpers.tune import fake_gpu as fakes
from tests.helpers.tune import visible_devices as seen

from .test_public_calls import tuned_in
from .test_tuning_run import ALL, winners_of

#: The module of stand-ins, as `--executor` names it.
FAKES = "tests.helpers.tune.fake_gpu"


@pytest.mark.parametrize(("visible", "expected"), [("", {"0", "1"}), ("4,GPU-b,6", {"4", "GPU-b"})])
def test_each_process_sees_one_of_the_gpus(tmp_path, monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with workers.one_for_each(2) as executor:
        futures = [executor.submit(seen.devices, tmp_path, 2) for _ in range(2)]
        assert {future.result(timeout=LONGEST) for future in futures} == expected
        assert executor.submit(seen.ignores_interrupts).result()


REAL = workers.executor


@pytest.fixture
def processes(bench, monkeypatch):
    """Calls whose workers are what they are without a stand-in."""
    monkeypatch.setattr(workers, "executor", REAL)
    return bench


@pytest.mark.parametrize("arguments", [("--gpus", "2"), ("--executor", f"{FAKES}:threads")])
def test_two_processes_or_threads_tune(processes, arguments):
    assert processes.tune(*arguments) == 0
    assert winners_of(processes.winners) == ALL


def test_a_process_that_dies_ends_the_call(processes):
    fakes.write(processes.kernel("rcr", "linear"), "1e-3, 1e-3, 1e-3", "import os; os._exit(3)")
    assert processes.tune() == 1
    told = processes.said().err
    assert "gemm_fp16_rcr_none 32x32x32: LOST: BrokenProcessPool" in told and "3 of 4 problems are left" in told
    assert not processes.winners.exists()


def test_two_processes_of_dask_tune(processes):
    try:
        assert processes.tune("--executor", f"{FAKES}:dasked", "--gpus", "2") == 0
    finally:
        for opened in reversed(fakes.opened):
            opened.close()
    assert winners_of(processes.winners) == ALL


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("no_such_module:make", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{FAKES}:absent", f"AttributeError: module '{FAKES}' has no attribute 'absent'"),
        (FAKES, f"{FAKES} returns no executor"),
        (f"{FAKES}:SPEC", f"TypeError: {FAKES}:SPEC is str, which cannot be called"),
        (f"{FAKES}:no_executor", "returns str, not a concurrent.futures.Executor"),
    ],
)
def test_what_gives_no_executor_is_told(word, message):
    with pytest.raises(CallError) as caught:
        workers.executor(word, 1)
    assert str(caught.value).startswith("--executor: ") and message in str(caught.value)


def test_a_worker_without_a_device_is_told(processes):
    with pytest.raises(CallError, match="a worker has no device to measure on"):
        processes.tune("--executor", f"{FAKES}:threads", factory=f"{FAKES}:absent")


def test_gates_are_tuned(tmp_path):
    """B has 2N columns, and N is that of the result; the library's product is followed by the gate."""
    axes = "layout: rcr\nmasking: [none, auto]\nepilogue: bias+swiglu"
    spec = fakes.SPEC.replace("layout: [rcr, rrr]", axes).replace("[linear, grouped]", "linear")
    (tmp_path / "own.yaml").write_text(spec)
    assert "[2/2] gemm_fp16_rcr_bias" in tuned_in(tmp_path, "[16x32x16, 16x16x16]").stderr
    measured = list(Journal(tmp_path / ".tune_cache" / "nvidia_h200.jsonl").outcomes.values())
    assert not any(outcome.failures for outcome in measured)
    # Unmasked, the row of 16x32 takes the first size alone: of 32 columns of B the second makes 16.
    tried = [len({(row.kernel, str(row.config)) for row in outcome.times}) for outcome in measured]
    assert tried == [2 + 3, 1 + 3]
    assert {outcome.library for outcome in measured} == {"torch.addmm + swiglu"}
    data = json.loads((tmp_path / "tuned" / "nvidia_h200" / "tiny.json").read_text())
    found = [(w["contract"], w["m"], w["n"], w["k"]) for w in data["winners"]]
    assert found == [("gemm_fp16_rcr_bias_swiglu", 16, n, 16) for n in (16, 32)]
    assert all(w["library_seconds"] for w in data["winners"])
