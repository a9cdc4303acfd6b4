"""The journal: what a line holds, which outcomes replace which, and what a file of another format is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from generator.language.errors import CallError
from generator.tune.journal import Journal
from generator.tune.outcome import Failure, Outcome, Timed, Winner
from generator.tune.winners import Place

from .conftest import Bench
from .test_tuning_run import AtOnce, winners_of

PLACE = Place("Some GPU", 132, "2.11.0", "3.6.0")
KERNELS = {"one": "digest of one", "two": "digest of two"}
ROWS = [{"BLOCK_M": 16, "num_warps": 1}, {"BLOCK_M": 32, "num_warps": 2}]
ABOUT = "family/gemm 16x16x16"
OUTCOME = Outcome(
    (Timed("one", ROWS[0], 2e-6), Timed("two", {"SPLIT": 2}, 3e-6), Timed("one", ROWS[1], 1e-6)),
    (Failure("two", ROWS[0], "wrong result"), Failure("torch.matmul", None, "no such type", refused=True)),
    Winner("gemm", 16, 16, 16, "one", ROWS[1], 1e-6, None, Timed("one", ROWS[0], 2e-6)),
    "torch.matmul",
)


def kept(path: Path, *appended: tuple[str, str, Place, dict[str, str]]) -> list[str]:
    """The keys that a journal holds after outcomes were appended in a run that ended in good order."""
    with Journal(path) as journal:
        for key, about, place, kernels in appended:
            journal.append(key, about, OUTCOME, place, kernels)
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == list(Journal(path).outcomes)
    return list(Journal(path).outcomes)


def test_a_line_gives_back_the_outcome(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append("first", ABOUT, OUTCOME, PLACE, KERNELS)
        journal.append("second", ABOUT, Outcome(lost="no answer", whole=False), PLACE, KERNELS)
    first, second = Journal(path).outcomes.values()
    one, two, three = OUTCOME.times
    assert first == replace(OUTCOME, times=(one, three, two)), "the rows of a kernel stand together"
    assert second == Outcome(lost="no answer", whole=False)
    assert path.read_text().count("BLOCK_M") == 4, "once for two rows; winner, runner-up and failure"


def test_outcomes_that_can_stand_together_stay(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    other_family = ("c", ABOUT.replace("family", "other"), PLACE, {"one": "other code"})
    other_size = ("d", ABOUT.replace("16x", "32x"), PLACE, {"one": "other code"})
    other_device = ("e", ABOUT, replace(PLACE, device="Another GPU"), {"one": "other code"})
    other_kernels = ("b", ABOUT, PLACE, {"two": KERNELS["two"], "three": "digest of three"})
    lines = [("a", ABOUT, PLACE, KERNELS), other_kernels, other_family, other_size, other_device]
    assert kept(path, *lines) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("place", "kernels"),
    [(PLACE, {**KERNELS, "one": "other code"}), (replace(PLACE, triton="3.7.1"), KERNELS)],
)
def test_an_outcome_of_other_code_or_versions_replaces_the_older(
    tmp_path: Path, place: Place, kernels: dict[str, str]
) -> None:
    path = tmp_path / "journal.jsonl"
    assert kept(path, ("a", ABOUT, PLACE, KERNELS), ("b", ABOUT, place, kernels)) == ["b"]
    assert kept(path, ("c", ABOUT, PLACE, KERNELS)) == ["c"], "also what an earlier run measured"


def test_what_was_not_measured_again_stands(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert kept(path, ("a", ABOUT, PLACE, KERNELS), ("b", ABOUT, PLACE, {"two": "other code"})) == ["a", "b"]
    older, newer = Journal(path).outcomes.values()
    assert {timed.kernel for timed in older.times} == {"one"} and not older.whole and newer.whole
    assert older.winner is not None and older.winner.kernel == "one", "its winner was of code that stands"
    assert kept(path, ("c", ABOUT, PLACE, {"one": "other code"})) == ["b", "c"]


def test_the_same_key_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert kept(path, ("a", ABOUT, PLACE, KERNELS)) == ["a"]
    line = path.read_text()
    path.write_text(line + line)
    assert kept(path) == ["a"] and path.read_text() == line


def test_an_interrupted_run_leaves_every_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt), Journal(path) as journal:
        journal.append("a", ABOUT, OUTCOME, PLACE, KERNELS)
        journal.append("b", ABOUT, OUTCOME, PLACE, {**KERNELS, "one": "other code"})
        raise KeyboardInterrupt
    assert len(path.read_text().splitlines()) == 2
    assert list(Journal(path).outcomes) == ["b"]
    assert kept(path) == ["b"], "the next run puts it in order"


def test_tuning_changed_kernels_again_adds_no_lines(bench: Bench, at_once: AtOnce) -> None:
    at_once()
    bench.tune()
    before = bench.journal.read_text().splitlines()
    for layout in ("rcr", "rrr"):
        path = bench.kernel(layout, "grouped")
        path.write_text(path.read_text().replace("8e-3", "9e-3"))
    again = at_once()
    bench.tune()
    after = bench.journal.read_text().splitlines()
    assert len(again.calls) == 1 + 4 and len(winners_of(bench.winners)) == 4
    assert len(after) == len(before) == 4 and not set(after) & set(before)


def test_a_journal_of_an_older_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"key":"a","about":"b","place":{},"kernels":{},"measurements":[],"winner":null,"lost":null}\n')
    with pytest.raises(CallError, match=r"format 1, this version reads 2: name another file, or remove this one"):
        Journal(path)
