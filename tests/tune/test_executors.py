"""Who works: processes that see one GPU each, and executors that the caller names, Dask's among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from generator.bench import workers
from generator.commands import command_line
from generator.language.errors import CallError
from generator.tune.outcome import TrialOutcome, outcome_of
from tests.helpers.support import LONGEST, ROOT, python
from tests.helpers.tune import fake_gpu as fakes
from tests.helpers.tune import visible_devices as seen

from .conftest import Bench
from .test_tuning_run import ALL, winners_of

#: The module of stand-ins, as `--executor` names it.
FAKES = "tests.helpers.tune.fake_gpu"


@pytest.mark.parametrize(("visible", "expected"), [("", {"0", "1"}), ("4,GPU-b,6", {"4", "GPU-b"})])
def test_each_process_sees_one_of_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, expected: set[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with workers.one_for_each(2) as executor:
        futures = [executor.submit(seen.devices, tmp_path, 2) for _ in range(2)]
        assert {future.result(timeout=LONGEST) for future in futures} == expected
        assert executor.submit(seen.ignores_interrupts).result()


def test_two_processes_tune(bench: Bench) -> None:
    assert bench.tune("--gpus", "2") == 0
    assert winners_of(bench.winners) == ALL


def test_a_process_that_dies_ends_the_call(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.write(bench.kernel("rcr", "linear"), "1e-3, 1e-3, 1e-3", "import os; os._exit(3)")
    assert bench.tune() == 1
    told = capsys.readouterr().err
    assert "gemm_fp16_rcr_none 32x32x32: LOST: BrokenProcessPool" in told and "3 of 4 problems are left" in told
    assert not bench.winners.exists()


def test_an_executor_that_the_caller_names(bench: Bench) -> None:
    assert bench.tune("--executor", f"{FAKES}:threads") == 0
    assert winners_of(bench.winners) == ALL


def test_two_processes_of_dask_tune(bench: Bench) -> None:
    try:
        assert bench.tune("--executor", f"{FAKES}:dasked", "--gpus", "2") == 0
    finally:
        for opened in reversed(fakes.opened):
            opened.close()
    assert winners_of(bench.winners) == ALL


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
def test_what_gives_no_executor_is_told(word: str, message: str) -> None:
    with pytest.raises(CallError) as caught:
        workers.executor(word, 1)
    assert str(caught.value).startswith("--executor: ") and message in str(caught.value)


def test_a_worker_without_a_device_is_told(bench: Bench) -> None:
    with pytest.raises(CallError, match="a worker has no device to measure on"):
        bench.tune("--executor", f"{FAKES}:threads", factory=f"{FAKES}:absent")


def interpreted(folder: Path, axes: str, shapes: str) -> list[TrialOutcome]:
    """What a call measured of each of the shapes, the kernels rendered and interpreted; all take the same time."""
    (folder / "specs").mkdir()
    spec = fakes.SPEC.replace("layout: [rcr, rrr]", f"layout: rcr\nmasking: [none, auto]\n{axes}")
    (folder / "specs" / "tiny.yaml").write_text(spec.replace("[linear, grouped]", "linear"))
    (folder / "shapes.yaml").write_text(shapes)
    assert command_line.main(["specs/tiny.yaml"]) == 0
    path = {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    arguments = ["specs/tiny.yaml", "--shapes", "shapes.yaml", "--executor", f"{FAKES}:threads"]
    done = python("-m", "tests.helpers.tune.interpreted", *arguments, cwd=folder, env=path)
    assert done.returncode == 0, done.stderr
    assert "[2/2] gemm_fp16_rcr_bias" in done.stderr
    lines = (folder / ".tune_cache" / "nvidia_h200.jsonl").read_text().splitlines()
    outcomes = [outcome_of(json.loads(line)) for line in lines]
    assert not any(outcome.failures for outcome in outcomes)
    return outcomes


def rows(outcomes: list[TrialOutcome]) -> list[int]:
    """How many rows were tried at each of the shapes."""
    return [len({(row.kernel, str(row.config)) for row in outcome.times}) for outcome in outcomes]


def test_gates_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B has 2N columns, and N is that of the result; the library's product is followed by the gate."""
    monkeypatch.chdir(tmp_path)
    measured = interpreted(tmp_path, "epilogue: bias+swiglu", "[16x32x16, 16x16x16]")
    # Unmasked, the row of 16x32 takes the first size alone: of 32 columns of B the second makes 16.
    assert rows(measured) == [2 + 3, 1 + 3]
    assert {outcome.library for outcome in measured} == {"torch.addmm + swiglu"}
    data = json.loads((tmp_path / "specs" / "tuned" / "nvidia_h200" / "tiny.json").read_text())
    found = [(w["contract"], w["m"], w["n"], w["k"]) for w in data["winners"]]
    assert found == [("gemm_fp16_rcr_bias_swiglu", 16, n, 16) for n in (16, 32)]
    assert all(w["library_seconds"] for w in data["winners"])
