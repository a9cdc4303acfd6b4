"""A call that was asked for a result and has none says so with the reason, and does not end with status 0."""

import json

import pytest
from filelock import Timeout

from generator.commands import tune
from generator.files.updating import lock_of
from generator.tune import rate_fit, winner_choice
from generator.tune.journal import Journal
from tests.helpers.support import called
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
    path.write_text(json.dumps(tuned if name == "tuned" else {"format": 1, **head, "sizes": []}))
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
