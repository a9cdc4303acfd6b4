"""Regret: what a family's function chooses, timed beside the fastest configuration; no winners are written.

The function takes the first kernel, whose order of tiles is grouped, and its first configuration.
"""

import json
from pathlib import Path

import pytest

from generator.bench import suite
from generator.bench.comparison_plan import Contestant
from generator.commands import tune
from generator.epilogue.chain import Epilogue
from generator.language.errors import CallError
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape
from generator.tune import trial_worker, tuning_report
from generator.tune.journal import Journal, JournalEntry
from generator.tune.outcome import Chosen, ConfirmedWinner, TrialOutcome
from generator.tune.trial_selection import Candidate, Trial
from generator.tune.winners import MeasurementSource
from tests.helpers.tune import fake_gpu as fakes

FILE = Path("regret.json")
PLACE = MeasurementSource("NVIDIA H200", 132, "2.11.0", "3.7.1")


def sizes_of(bench):
    return [each.outcome for each in Journal(bench.folder / FILE).kept.values()]


def measured(bench, *arguments):
    return bench.tune("--regret", str(FILE), *arguments)


def test_the_choice_is_timed_beside_the_fastest(bench):
    """3 ms are chosen; 2 ms are the best."""
    assert measured(bench) == 0
    assert not bench.winners.exists() and len(Journal(bench.journal).outcomes) == 4
    assert {*(bench.folder / FILE).read_text().split("\n")} == {*bench.journal.read_text().split("\n")}
    entries = Journal(bench.folder / FILE).kept.values()
    assert {each.place for each in entries} == {PLACE}
    problems = [
        f"tiny/gemm_fp16_{layout}_none {size}" for layout in ("rcr", "rrr") for size in ("16x64x32", "32x32x32")
    ]
    assert [each.about for each in entries] == problems
    for each in sizes_of(bench):
        assert len(each.times) == 6 and each.regret == 0.5
        how, config = each.chosen.kernel.rpartition("_")[2], each.chosen.config
        assert (how, config["BLOCK_M"], each.chosen.seconds, each.chosen.called) == ("grouped", 16, 3e-3, False)
        how, config = each.winner.kernel.rpartition("_")[2], each.winner.config
        assert (how, config["BLOCK_M"], each.winner.seconds) == ("grouped", 32, 2e-3)
        assert 0 < each.winner.library_seconds <= fakes.Device.library
    spoken = bench.said()
    assert "| gemm_fp16_rcr_none | 2 | 50.0% | 50.0% | — | — | 50.0% at 16x64x32 |" in spoken.out
    assert "| all | 4 | 50.0% |" in spoken.out
    assert "regret 50.0%" in spoken.err


def test_a_second_call_measures_nothing_and_writes_the_same(bench):
    bench.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        measured(bench)
    assert not (bench.folder / FILE).exists()
    assert measured(bench) == 0
    assert len(bench.calls) == 1 + 2, "two of four were in the journal"
    before, printed = (bench.folder / FILE).read_bytes(), bench.said().out
    assert measured(bench) == 0
    assert len(bench.calls) == 1
    assert ((bench.folder / FILE).read_bytes(), bench.said().out) == (before, printed)
    assert tune.main(["--report", "--regret", str(FILE), "--html", "regret.html"]) == 0
    assert bench.said().out == printed
    assert "<title>regret</title>" in Path("regret.html").read_text()


def test_another_choice_is_measured_again(bench):
    """What is chosen depends on every file of the family, as `_tuned.py` where there is one."""
    measured(bench)
    chooser = bench.folder / "generated" / "tiny" / "_runtime" / "launch.py"
    chooser.write_text(chooser.read_text() + "\n# Other winners.\n")
    measured(bench)
    assert len(bench.calls) == 1 + 4
    assert bench.tune() == 0, "and the winners are those of all measurements"
    assert {entry["seconds"] for entry in json.loads(bench.winners.read_text())["winners"]} == {2e-3}


@pytest.mark.parametrize(
    ("costs", "chosen", "candidates", "expected"),
    [
        # The choice is the fastest; with few candidates it may not be one of them, and is called.
        ("3e-3, 1e-3, 8e-3", 1, (), (6, 1e-3, 1e-3, False, 0)),
        ("3e-3, 4e-3, 6e-3", 2, ("--candidates", "1"), (1, 6e-3, 3e-3, True, 1)),
    ],
)
def test_a_choice_is_timed_as_a_candidate_or_by_its_call(bench, costs, chosen, candidates, expected):
    for layout in ("rcr", "rrr"):
        fakes.write(bench.kernel(layout, "grouped"), costs, chosen=chosen)
    assert measured(bench, *candidates) == 0
    for each in sizes_of(bench):
        choice, best = each.chosen, each.winner.seconds
        assert (len(each.times), choice.seconds, best, choice.called, each.regret) == expected


@pytest.mark.parametrize("body", ["out.copy_(result * 1.02)", "raise RuntimeError('no such instruction')"])
def test_a_wrong_choice_is_a_fault_without_regret(bench, body):
    fakes.write(bench.kernel("rcr", "grouped"), "3e-3, 2e-3, 8e-3", body)
    assert measured(bench) == 1
    assert [each.winner.contract for each in sizes_of(bench)] == ["gemm_fp16_rrr_none"] * 2
    assert "tune: gemm_fp16_rcr_none 32x32x32: gemm_fp16_rcr_none__" in bench.said().err


def test_every_configuration_is_measured_in_groups(bench, monkeypatch):
    """The best of a group meets the next group in the same rounds, and its memory is given back between groups."""
    measured(bench)
    whole = sizes_of(bench)
    bench.journal.unlink()
    fakes.freed = 0
    monkeypatch.setattr(trial_worker, "_TOGETHER", 2)
    measured(bench)
    assert sizes_of(bench) == whole
    assert fakes.freed == 4 * (2 + 2), "between three groups, before the last pass and at the end"


def test_a_group_is_small_if_partial_sums_are_large():
    """8192x8192 in fp32 is 268 MB; 16 parts of it are 4.3 GB, and 8 GB are recorded at a time."""
    contestant = Contestant("", "tiny", "k__a", Path("k.py"), "", None)

    def sizes(split, size):
        config = {"BLOCK_M": 16} | ({"SPLIT": split} if split else {})
        candidates = tuple(Candidate(contestant, index, config, 1.0) for index in range(70))
        problem = Problem(Shape(size, size, 64), Dtype.of("fp16"), Layout.of("rcr"), Epilogue())
        groups = trial_worker.groups_of(Trial("tiny", "k", problem, candidates))
        assert [each.index for group in groups for each in group] == [*range(70)]
        return [len(group) for group in groups]

    assert sizes(0, 8192) == sizes(4, 64) == [32, 32, 6]
    assert sizes(16, 8192) == [1] * 70
    assert sizes(8, 8192) == [3] * 23 + [1]


def test_regret_is_of_all_kernels_of_a_contract(bench):
    with pytest.raises(CallError, match="--regret compares with all kernels of a contract; --only omits some of gemm"):
        measured(bench, "--only", "*_linear")
    assert not bench.journal.exists()
    assert measured(bench, "--only", "gemm_fp16_rrr_*") == 0
    assert {each.winner.contract for each in sizes_of(bench)} == {"gemm_fp16_rrr_none"}


def test_unseen_sizes_have_regret_and_no_winner(bench, monkeypatch):
    monkeypatch.setattr(suite, "_unseen", lambda: (Shape(16, 64, 32), Shape(32, 32, 32)))
    assert measured(bench) == 0
    assert len(sizes_of(bench)) == 4
    assert tune.main(["specs/tiny.yaml", "--again", "--device", "nvidia_h200"]) == 1
    assert not bench.winners.exists()
    assert "which has 4 outcomes: 4 of sizes that nothing is fitted to" in bench.said().err


def lines_of(*found):
    return tuning_report.of_regret(found).markdown().splitlines()


def test_the_report_has_means_by_m():
    def one(m, excess, contract="gemm_fp16_rcr_none"):
        chosen = Chosen("k__a", {"BLOCK_M": 16}, 1 + excess)
        winner = ConfirmedWinner(contract, Shape(m, 256, 512), "k__b", {"BLOCK_M": 16}, 1.0)
        return JournalEntry("", TrialOutcome(winner=winner, chosen=chosen), PLACE, {})

    found = (one(1, 0.0), one(64, 0.21), one(65, 0.05), one(1024, 0.05), one(2000, 1.0))
    lines = lines_of(*found)
    assert lines[0] == "NVIDIA H200, torch 2.11.0, triton 3.7.1."
    assert lines[2] == "| contract | sizes | mean regret | M up to 64 | M 65 to 1024 | larger M | largest |"
    mean = (1.21 * 1.05 * 1.05 * 2) ** 0.2 - 1
    expected = f"| gemm_fp16_rcr_none | 5 | {mean:.1%} | 10.0% | 5.0% | 100.0% | 100.0% at 2000x256x512 |"
    assert lines[4:] == [expected]
    own, other, every = lines_of(*found, one(70, 0.0, "gemm_bf16_rcr_none"))[4:]
    assert own == expected and other.startswith("| gemm_bf16_rcr_none | 1 | 0.0% | — | 0.0% | — |")
    assert every.startswith("| all | 6 |")
