"""The command line of tune."""

import pytest

from generator.commands.tune import parse
from generator.language.errors import CallError
from generator.problem.product import Shape
from generator.tune import tuning_call
from tests.helpers.support import Spoken


def test_without_a_gpu_it_is_refused(bench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    spoken = bench.cli("tune", "specs/tiny.yaml")
    assert (spoken.status, spoken.out) == (2, "")
    assert spoken.err.startswith("tune: timing needs a GPU, and torch finds no CUDA device (--dry-run --device")
    assert bench.cli("tune", "specs/tiny.yaml", "--dry-run").status == 2
    assert not bench.journal.exists()


def test_a_dry_run_lists_what_would_be_measured(bench):
    arguments = ["specs/tiny.yaml", "--shapes", "shapes.yaml", "--dry-run", "--device", "nvidia_h200"]
    spoken = bench.cli("tune", *arguments, "--candidates", "4")
    assert (spoken.status, spoken.err) == (0, "")
    lines = spoken.out.splitlines()
    problems = [f"gemm_fp16_{layout}_none {shape}" for layout in ("rcr", "rrr") for shape in ("32x32x32", "16x64x32")]
    assert [line for line in lines if line.startswith("gemm_")] == problems
    assert "µs  tiled_pointer_auto_grouped [0] 16x16x16, 1 warp, 2 stages" in lines[1]
    assert "4 problems, 16 configurations to measure on NVIDIA H200" in spoken.out
    assert "left out: 8 configurations, not among the best by the model" in spoken.out
    assert not bench.journal.exists() and not bench.winners.exists()


def test_shapes_come_from_several_files_each_once(bench):
    (bench.folder / "more.yaml").write_text("[32x32x32, 48x16x16, 64x64x64+8]")
    call = parse(["specs/tiny.yaml", "--shapes", "shapes.yaml", "--shapes", "more.yaml", "--shapes", "squares"])
    shapes = tuning_call.shapes_of(call)
    assert shapes[:4] == (Shape(32, 32, 32), Shape(16, 64, 32), Shape(48, 16, 16), Shape(256, 256, 256))
    told = "left out, because winners are recorded without padding"
    assert f"{told}: 64x64x64+8" in bench.said().err
    with pytest.raises(CallError, match=r"--shapes: no file of shapes is named 'square'; known: .*squares"):
        tuning_call.shapes_of(parse(["specs/tiny.yaml", "--shapes", "square"]))


def test_more_gpus_than_there_are_is_refused(bench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(CallError, match="--gpus: 2 requested, and torch finds 1"):
        tuning_call.tune(parse(["specs/tiny.yaml", "--gpus", "2"]))


def test_what_cannot_be_written_is_known_before_anything_is_measured(bench):
    why = "cannot be written: a part of its path is a file, where a folder must be"
    for option in ("--tuned", "--journal", "--regret"):
        spoken = bench.cli("tune", "specs/tiny.yaml", option, "specs/tiny.yaml/x")
        assert spoken == Spoken(1, "", f"specs/tiny.yaml/x: {why}\n")
        spoken = bench.cli("tune", "specs/tiny.yaml", option, "specs/tiny.yaml")
        assert spoken.status == 2 and f"tune: {option} specs/tiny.yaml: would overwrite what" in spoken.err
