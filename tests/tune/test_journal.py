"""The journal: what a line holds, which outcomes replace which, and what a file of another format is told."""

import bz2
import json
import math
import re
from dataclasses import replace

import pytest

from generator.files.reading import FileError
from generator.language.errors import CallError
from generator.problem.product import Shape
from generator.tune.journal import Journal, _without
from generator.tune.outcome import ConfirmedWinner, Timed, TrialFailure, TrialOutcome
from generator.tune.winners import MeasurementSource
from tests.helpers.support import side_by_side

PLACE = MeasurementSource("Some GPU", 132, "2.11.0", "3.6.0")
KERNELS = {"gemm__one": "digest of one", "gemm__two": "digest of two"}
ROWS = [{"BLOCK_M": 16, "num_warps": 1}, {"BLOCK_M": 32, "num_warps": 2}]
ABOUT = "family/gemm 16x16x16"
OUTCOME = TrialOutcome(
    (Timed("gemm__one", ROWS[0], 2e-6), Timed("gemm__two", {"SPLIT": 2}, 3e-6), Timed("gemm__one", ROWS[1], 1e-6)),
    (
        TrialFailure("gemm__two", ROWS[0], "wrong result"),
        TrialFailure("torch.matmul", None, "no such type", refused=True),
    ),
    ConfirmedWinner("gemm", Shape(16, 16, 16), "gemm__one", ROWS[1], 1e-6, None, Timed("gemm__one", ROWS[0], 2e-6)),
    "torch.matmul",
)


def kept(path, *appended):
    """The keys that a journal holds after outcomes were appended in a run that ended in good order."""
    with Journal(path) as journal:
        for key, about, place, kernels in appended:
            journal.append(key, about, _of(kernels), place, kernels)
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == list(Journal(path).outcomes)
    return list(Journal(path).outcomes)


def _of(kernels):
    """The outcome, as if only these kernels had been measured."""
    return replace(_without(OUTCOME, {each.kernel for each in OUTCOME.times} - kernels.keys()), whole=True)


@pytest.fixture
def path(tmp_path):
    """A journal."""
    return tmp_path / "journal.jsonl"


def test_a_line_gives_back_the_outcome(path):
    with Journal(path) as journal:
        journal.append("first", ABOUT, OUTCOME, PLACE, KERNELS)
        journal.append("second", ABOUT, TrialOutcome(lost="no answer", whole=False), PLACE, KERNELS)
    first, second = Journal(path).outcomes.values()
    one, two, three = OUTCOME.times
    assert first == replace(OUTCOME, times=(one, three, two)), "the rows of a kernel stand together"
    assert second == TrialOutcome(lost="no answer", whole=False)
    assert path.read_text().count("BLOCK_M") == 4, "once for two rows; winner, runner-up and failure"


def test_what_was_measured_of_other_code_or_elsewhere_is_kept_and_does_not_stand(path):
    elsewhere = ("b", ABOUT, replace(PLACE, triton="3.7.1"), KERNELS)
    part = ("c", ABOUT, PLACE, {**KERNELS, "gemm__two": "other code"})
    other_family = ("d", ABOUT.replace("family", "other"), PLACE, KERNELS)
    assert kept(path, ("a", ABOUT, PLACE, KERNELS), elsewhere, part, other_family) == ["a", "b", "c", "d"]
    whole, older, other = Journal(path).standing(PLACE, "family", KERNELS)
    assert whole.whole and {timed.kernel for timed in whole.times} == {*KERNELS}
    assert not older.whole and {timed.kernel for timed in older.times} == {"gemm__one"}
    assert older.winner is not None and older.winner.kernel == "gemm__one", "its winner was of code that stands"
    assert other == replace(whole, whole=False)
    assert Journal(path).places == [elsewhere[2], PLACE]


def test_of_equal_keys_the_last_line_counts(path):
    with Journal(path) as journal:
        journal.append("a", ABOUT, OUTCOME, PLACE, KERNELS)
        journal.append("b", ABOUT, OUTCOME, PLACE, KERNELS)
        journal.append("a", ABOUT, TrialOutcome(lost="no answer"), PLACE, KERNELS)
    assert len(path.read_text().splitlines()) == 3
    assert Journal(path).outcomes == {"b": Journal(path).outcomes["b"], "a": TrialOutcome(lost="no answer")}


def _append(path, name, count):
    with Journal(path) as journal:
        for number in range(count):
            journal.append(f"{name}{number}", f"family/gemm {name}{number}", OUTCOME, PLACE, KERNELS)


def test_several_processes_append_to_one_journal(path, tmp_path):
    assert side_by_side(_append, (path, "a", 8), (path, "b", 8)) == [0, 0]
    wanted = {f"{name}{number}" for name in "ab" for number in range(8)}
    assert set(Journal(path).outcomes) == wanted and len(path.read_text().splitlines()) == 16
    assert [each.name for each in tmp_path.iterdir()] == ["journal.jsonl"]


def test_a_run_sees_what_another_has_appended(path):
    with Journal(path) as first, Journal(path) as second:
        first.append("a", ABOUT, OUTCOME, PLACE, KERNELS)
        second.append("b", ABOUT, OUTCOME, PLACE, KERNELS)
        assert list(second.outcomes) == ["a", "b"]
        path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
        first.refresh()
        assert list(first.outcomes) == ["b"], "somebody has deleted a line"


def test_a_line_that_was_cut_off_goes_with_the_next_outcome(path):
    assert kept(path, ("a", ABOUT, PLACE, KERNELS)) == ["a"]
    line = path.read_text()
    path.write_text(line + line[:-20])
    with pytest.raises(KeyboardInterrupt), Journal(path) as journal:
        assert path.read_text() == line + line[:-20], "another run may be writing it"
        journal.append("b", ABOUT, OUTCOME, PLACE, KERNELS)
        raise KeyboardInterrupt
    first, second = path.read_text().splitlines()
    assert f"{first}\n" == line and json.loads(second)["key"] == "b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"key":"a","place":{}}\n', "format 1, this version reads 2: name another file, or remove this one"),
        ("notes", ":1: is no outcome: the end of the file is no part of a line"),
        ("[]\n", ":1: is no outcome: the value must be object"),
        ("\n", ":1: is no outcome: is not JSON"),
    ],
)
def test_a_file_of_something_else_is_refused_and_stays(tmp_path, text, words):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(CallError, match=re.escape(f"--journal: {path}") + ".*" + re.escape(words)):
        Journal(path)
    assert path.read_text() == text


def test_what_no_reader_would_accept_is_not_written(path):
    wrong = replace(OUTCOME, times=(Timed("gemm__one", ROWS[0], math.nan),), winner=None)
    with Journal(path) as journal:
        with pytest.raises(FileError, match="is not written, because line 1 would be wrong: NaN is not a finite"):
            journal.append("a", ABOUT, wrong, PLACE, KERNELS)
        journal.append("b", ABOUT, TrialOutcome(lost="half of \udc80"), PLACE, KERNELS)
    assert Journal(path).outcomes == {"b": TrialOutcome(lost="half of ?")}


def test_a_link_to_a_journal_stays_one(tmp_path):
    real, link = tmp_path / "real" / "journal.jsonl", tmp_path / "journal.jsonl"
    real.parent.mkdir()
    with Journal(real):
        pass
    link.symlink_to(real)
    with Journal(link) as journal:
        journal.append("a", ABOUT, OUTCOME, PLACE, KERNELS)
    assert link.is_symlink() and list(Journal(real).outcomes) == ["a"]


def test_a_packed_journal_is_read_and_not_added_to(tmp_path):
    plain, packed = tmp_path / "journal.jsonl", tmp_path / "journal.jsonl.bz2"
    kept(plain, ("first", ABOUT, PLACE, KERNELS))
    packed.write_bytes(bz2.compress(plain.read_bytes()))
    assert Journal(packed).outcomes == Journal(plain).outcomes
    with pytest.raises(CallError, match=f"unpack it: bunzip2 {re.escape(str(packed))}"), Journal(packed):
        pass
    for data, words in (b"{}", "not a file of bzip2"), (packed.read_bytes()[:-1], "ends within"):
        packed.write_bytes(data)
        with pytest.raises(CallError, match=words):
            Journal(packed)
