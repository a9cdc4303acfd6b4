"""Calls of tune that have no result, or are asked for none: what is said, and which status they end with."""

import json

import pytest
from filelock import Timeout

from generator.commands import tune
from generator.commands.tune import parse
from generator.files.updating import lock_of
from generator.language.errors import CallError
from generator.problem.product import Shape
from generator.tune import rate_fit, tuning_call, winner_choice
from generator.tune.journal import Journal
from tests.helpers.support import Spoken, called
from tests.helpers.tune import fake_gpu as fakes

from .test_tuning_run import AGAIN, ALL, winners_of


def _partial(outcome):
    """Of a contract, one of its two kernels."""
    outcome["times"] = [each for each in outcome["times"] if each["kernel"] == outcome["winner"]["kernel"]]
    outcome["winner"]["runner_up"] = None
    outcome["whole"] = False


#: How the outcomes of a journal are changed, and the reason that is given for them.
REASONS = {
    "changed": (lambda o: o.update(kernels=dict.fromkeys(o["kernels"], "old")), "of kernels that have changed since"),
    "partial": (_partial, "of only some kernels of a contract"),
    "lost": (lambda o: o.update(winner=None, times=[], lost="no answer"), "that lost the GPU or the worker"),
    "wrong": (lambda o: o.update(winner=None, times=[]), "without a candidate that has a right result and a time"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_again_says_why_no_winner_stands(bench, reason):
    assert bench.tune() == 0
    bench.winners.unlink()
    change, words = REASONS[reason]
    outcomes = [json.loads(line) for line in bench.journal.read_text().splitlines()]
    for outcome in outcomes:
        change(outcome)
    bench.journal.write_text("".join(f"{json.dumps(outcome)}\n" for outcome in outcomes))
    said = bench.cli("tune", *AGAIN)
    assert said.status == 1 and not bench.winners.exists()
    told = f"no winner of the family tiny stands in .tune_cache/nvidia_h200.jsonl, which has 4 outcomes: 4 {words}"
    assert told in said.err


def test_again_with_other_versions_says_which(bench):
    assert bench.tune() == 0
    lines = bench.journal.read_text().splitlines()
    bench.journal.write_text(f"{lines[0]}\n{lines[1].replace('3.7.1', '3.6.0')}\n")
    said = bench.cli("tune", *AGAIN)
    assert said.status == 2 and "triton 3.6.0" in said.err, "those that were measured last count"


def test_tune_without_a_winner_says_why(bench, monkeypatch):
    """A device whose times are no times: nothing of it gets into a file."""
    monkeypatch.setattr(fakes, "spent", 0.0)
    for layout in ("rcr", "rrr"):
        for order in ("linear", "grouped"):
            fakes.write(bench.kernel(layout, order), ", ".join(["float('nan')"] * 3))
    assert bench.tune() == 1
    err = bench.said().err
    assert "4 outcomes: 4 without a candidate that has a right result and a time" in err
    assert "measured times of [nan, nan, nan] seconds" in err and "NaN" not in bench.journal.read_text()
    assert not bench.winners.exists() and len(Journal(bench.journal).outcomes) == 4


@pytest.mark.parametrize("name", ["tuned", "regret"])
def test_a_report_of_nothing(tmp_path, capsys, name):
    head = {"device": "NVIDIA H200", "multiprocessors": 132, "torch": "2.11.0", "triton": "3.6.0"}
    tuned = {"format": 2, **head, "error": 0, "regret": 0, "kernels": {}, "winners": [], "rates": []}
    path = tmp_path / "file.json"
    path.write_text(json.dumps(tuned) if name == "tuned" else "")
    said = called(capsys, "tune", "--report", f"--{name}", path)
    words = "has no winner" if name == "tuned" else "has no size with a regret"
    assert (said.status, said.out, said.err) == (1, "", f"tune: {path} {words}\n")


def test_regret_without_a_size(bench):
    assert bench.tune("--regret", "regret.json", "--budget", "1e-9") == 1
    assert "no size has times of the choice and of a candidate; 0 of 4 problems were measured" in bench.said().err
    assert not (bench.folder / "regret.json").exists()


def test_no_other_run_writes_the_file_while_winners_are_chosen(bench, monkeypatch):
    assert bench.tune() == 0
    held = []

    def fitted(*arguments):
        with pytest.raises(Timeout):
            lock_of(bench.winners.parent).acquire(blocking=False)
        held.append(True)
        return rate_fit.fit(*arguments)

    monkeypatch.setattr(winner_choice, "fit", fitted)
    assert tune.main(AGAIN) == 0
    assert held == [True] and winners_of(bench.winners) == ALL


def test_what_another_run_has_measured_meanwhile_is_not_measured(bench, monkeypatch):
    assert bench.tune() == 0
    lines = bench.journal.read_text().splitlines(keepends=True)
    bench.journal.unlink()
    append = Journal.append

    def and_another(journal, *arguments):
        append(journal, *arguments)
        with bench.journal.open("a") as file:
            file.writelines(line for line in lines[2:] if line not in bench.journal.read_text())

    monkeypatch.setattr(Journal, "append", and_another)
    assert bench.tune() == 0
    assert len(bench.calls) == 1 + 2 and winners_of(bench.winners) == ALL
    assert len(Journal(bench.journal).outcomes) == 4


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
