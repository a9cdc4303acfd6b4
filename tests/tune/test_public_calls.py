"""From a spec that names a file of winners which does not exist yet to a function that runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.plan.devices import DEVICES
from generator.verify.ahead_of_time import standing_in_for
from generator.verify.loading import load_family
from tests.helpers.support import ROOT, forget, python
from tests.helpers.tune import fake_gpu as fakes

from .conftest import Bench

OWN = """\
summary: A layer of one's own.
layout: rcr
dtype: fp16
epilogue: bias+own
masking: mnk
swizzle: linear
schedule: tiled
load: pointer
product: direct
SELECT
tuned: found/mine.json
ops:
  own: {formula: "x * x"}
tile:
  - {m: 16, n: 16, k: 16, warps: 1, stages: 2}
  - {m: 32, n: 16, k: 16, warps: 1, stages: 2}
"""
CONTRACT = "gemm_fp16_rcr_bias_own"


@pytest.fixture
def tuned(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """A folder in which the spec was tuned at two sizes, and what the call printed."""
    (tmp_path / "own.yaml").write_text(OWN.replace("SELECT", f"select: {request.param}"))
    (tmp_path / "shapes.yaml").write_text("[16x32x16, 48x16x32]")
    path = {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    arguments = ["own.yaml", "--shapes", "shapes.yaml", "--executor", "tests.helpers.tune.fake_gpu:threads"]
    done = python("-m", "tests.helpers.tune.interpreted", *arguments, cwd=tmp_path, env=path)
    assert done.returncode == 0, done.stderr
    return tmp_path, done.stdout, done.stderr


@pytest.fixture
def family(tuned: tuple[Path, str, str]) -> Iterator[ModuleType]:
    yield load_family(tuned[0] / "generated" / "own")
    forget("own")


@pytest.mark.parametrize("tuned", ["table", "fastest"], indirect=True)
def test_one_call_renders_measures_writes_and_renders_again(tuned: tuple[Path, str, str], family: ModuleType) -> None:
    folder, out, _ = tuned
    found = json.loads((folder / "found" / "mine.json").read_text())
    won = {(w["m"], w["n"], w["k"]): w["config"] for w in found["winners"]}
    assert set(won) == {(16, 32, 16), (48, 16, 32)}
    lines = out.splitlines()
    assert lines[0] == "generated/own: 1 kernel; " + lines[0].partition("; ")[2] and "created" in lines[0]
    assert any(line.startswith("found/mine.json: 2 winners, 2 of them in ") for line in lines)
    again = [line for line in lines if line.startswith("generated/own: 1 kernel;")]
    assert len(again) == 2 and "updated" in again[1]
    # The times of the public function before and after, at each size, and their mean.
    rows = [line.split(" | ") for line in lines if line.startswith(f"| {CONTRACT}")]
    assert [row[1] for row in rows] == ["16x32x16", "48x16x32"]
    assert all(float(cell) > 0 for row in rows for cell in row[2:5])
    assert lines[-1].startswith("The public functions are ")
    assert not list((folder / ".tune_cache").glob("*/"))
    # What won is what the function runs, although two sizes are too few for rates.
    assert found["rates"] == []
    function = getattr(family, CONTRACT)
    (name,) = family._KERNELS[CONTRACT]
    with standing_in_for(DEVICES["nvidia_h200"]), FakeTensorMode(allow_non_fake_inputs=True):
        for (m, n, k), config in won.items():
            a, b, bias = (torch.empty(size, dtype=torch.half, device="cuda") for size in ((m, k), (n, k), n))
            assert function.which(a, b.T, bias=bias) == (name, config)


def test_a_spec_that_does_not_name_the_file_is_told(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    for file in bench.folder.glob("generated/tiny/gemm*"):
        fakes.write(file, "5e-3, 4e-3, 6e-3")
    assert bench.tune() == 0
    said = capsys.readouterr()
    assert "tune: tiny is measured as it is: " in said.err
    named = "add it as `tuned`, with `select: table` or `fastest`"
    assert f"specs/tiny.yaml does not name specs/tuned/nvidia_h200/tiny.json: {named}" in said.out
