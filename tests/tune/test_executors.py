"""Who works: processes that see one GPU each, and executors that the caller names, Dask's among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import ROOT, python

import generator.cli
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


def test_a_process_that_dies_ends_the_call(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.write(bench.kernel("rcr", "linear"), "1e-3, 1e-3, 1e-3", "import os; os._exit(3)")
    assert bench.tune() == 1
    told = capsys.readouterr().err
    assert "gemm_fp16_rcr_none 32x32x32: LOST: BrokenProcessPool" in told and "3 of 4 are left" in told
    assert not bench.winners.exists()


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


def test_rendered_kernels_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted: the kernels' own refusals, rows and results, on a device to which all take the same time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    spec = fakes.SPEC.replace("layout: [rcr, rrr]", "layout: rcr\nmasking: [none, auto]\nepilogue: bias")
    (tmp_path / "specs" / "tiny.yaml").write_text(spec.replace("[linear, grouped]", "linear"))
    (tmp_path / "shapes.yaml").write_text("[16x32x16, 20x16x16]")
    assert generator.cli.main(["specs/tiny.yaml"]) == 0
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    arguments = ["specs/tiny.yaml", "--shapes", "shapes.yaml", "--executor", "tune.fakes:threads"]
    done = python("-m", "tune.interpreted", *arguments, cwd=tmp_path, env=path)
    assert done.returncode == 0, done.stderr
    assert "[2/2] gemm_fp16_rcr_bias 20x16x16: tiled_pointer_auto_linear" in done.stderr
    lines = (tmp_path / ".tune_cache" / "nvidia_h200.jsonl").read_text().splitlines()
    measured = [json.loads(line)["measurements"] for line in lines]
    quick = [{(m["kernel"], str(m["config"])) for m in of if m["stage"] == "quick" and m["config"]} for of in measured]
    # Without masks the rows of 16 and of 16x32 take the first size; nothing unmasked takes the second.
    assert [len(rows) for rows in quick] == [2 + 3, 3]
    assert not any(m["failure"] for of in measured for m in of)
