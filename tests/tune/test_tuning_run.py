"""A call from specs to the file of winners: what wins, what is kept, what a stopped call leaves, what is told."""

import json

import pytest

from generator.bench import competitor, suite
from generator.bench.peers import NoPeer
from generator.commands import command_line, tune
from generator.language import tuned_file
from generator.language.errors import CallError
from generator.problem.product import Shape
from generator.tune import trial_worker
from generator.tune.journal import Journal
from tests.helpers.tune import fake_gpu as fakes


def winners_of(path):
    """Each winner of a file: contract, sizes, the order of tiles, and BLOCK_M of its row."""
    entries = json.loads(path.read_text())["winners"]
    return [
        (e["contract"], e["m"], e["n"], e["k"], e["kernel"].rpartition("_")[2], e["config"]["BLOCK_M"]) for e in entries
    ]


ALL = [
    (f"gemm_fp16_{layout}_none", *sizes, "grouped", 32)
    for layout in ("rcr", "rrr")
    for sizes in ((16, 64, 32), (32, 32, 32))
]
AGAIN = ["specs/tiny.yaml", "--again", "--device", "nvidia_h200"]


def test_the_fastest_of_each_size_is_kept(bench):
    assert bench.tune() == 0
    assert winners_of(bench.winners) == ALL
    data = json.loads(bench.winners.read_text())
    place = {"device": "NVIDIA H200", "multiprocessors": 132, "torch": "2.11.0", "triton": "3.7.1"}
    assert data.items() >= {"format": 2, **place}.items()
    first = data["winners"][0]
    assert set(data["kernels"]) == {f"gemm_fp16_{layout}_none__tiled_pointer_auto_grouped" for layout in ("rcr", "rrr")}
    assert first["seconds"] == 2e-3 and 0 < first["library_seconds"] <= fakes.Device.library
    assert (first["runner_up"]["config"]["BLOCK_M"], first["runner_up"]["seconds"]) == (16, 3e-3)
    before = bench.winners.read_bytes(), bench.journal.read_bytes()
    assert bench.tune() == 0
    assert len(bench.calls) == 1, "a second call measures nothing: a worker says what its device is"
    assert (bench.winners.read_bytes(), bench.journal.read_bytes()) == before


def test_every_configuration_is_measured_into_the_journal(bench, monkeypatch):
    monkeypatch.setattr("generator.tune.tuning_call.CANDIDATES", 1)
    assert bench.tune("--complete") == 0
    outcomes = [*Journal(bench.journal).outcomes.values()]
    assert [len(each.times) for each in outcomes] == [6] * 4 and all(each.whole for each in outcomes)
    assert not bench.winners.exists()
    assert bench.tune("--complete") == 0 and len(bench.calls) == 1
    # Another method: what a usual call measures, one candidate, is not there yet.
    assert bench.tune() == 0 and len(bench.calls) == 1 + 4
    # The fastest of all, which the complete measurement found.
    assert [each[-1] for each in winners_of(bench.winners)] == [32] * 4


def test_a_stopped_call_goes_on_where_it_stopped(bench):
    bench.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        bench.tune()
    assert len(Journal(bench.journal).outcomes) == 2
    assert not bench.winners.exists()
    # Killed in the middle of a line.
    bench.journal.write_bytes(bench.journal.read_bytes()[:-100])
    assert bench.tune() == 0
    assert len(bench.calls) == 1 + 3
    assert winners_of(bench.winners) == ALL
    assert len(Journal(bench.journal).outcomes) == 4


def test_a_spent_budget_ends_in_good_order(bench, monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr("generator.tune.tuning_run.time.monotonic", lambda: float(next(ticks)))
    assert bench.tune("--budget", "3") == 0
    spoken = bench.said()
    done = len(Journal(bench.journal).outcomes)
    assert 0 < done < 4
    assert f"{4 - done} of 4 problems are left; repeat the call to go on" in spoken.err
    assert len(winners_of(bench.winners)) == done and set(winners_of(bench.winners)) < set(ALL)


def test_the_second_run_decides(bench):
    """Fast in the first run alone: memory is given back between the two, which the stand-in sees."""
    fakes.freed = 0
    fakes.write(bench.kernel("rcr", "grouped"), "3e-3, (4e-3 if fakes.freed % 2 else 1e-3), 8e-3")
    bench.tune("--only", "*rcr*")
    (first, second) = json.loads(bench.winners.read_text())["winners"]
    for winner in (first, second):
        assert (winner["config"]["BLOCK_M"], winner["seconds"]) == (16, 3e-3)
        assert (winner["runner_up"]["config"]["BLOCK_M"], winner["runner_up"]["seconds"]) == (32, 4e-3)


@pytest.mark.parametrize(
    ("body", "message", "status"),
    [
        ("out.copy_(result * 1.02)", "wrong result: relative error 0.02", 1),
        ("raise RuntimeError('no such instruction')", "RuntimeError: no such instruction", 1),
        ("raise ValueError('not these sizes')", None, 0),
        ("raise type('OutOfResources', (Exception,), {})('shared memory')", None, 0),
    ],
)
def test_what_is_wrong_or_refused_wins_nothing(bench, body, message, status):
    for layout in ("rcr", "rrr"):
        fakes.write(bench.kernel(layout, "grouped"), "3e-3, 2e-3, 8e-3", body)
    assert bench.tune() == status
    assert [(swizzle, block) for *_, swizzle, block in winners_of(bench.winners)] == [("linear", 32)] * 4
    told = bench.said().err
    assert (message in told) if message is not None else ("tune: gemm" not in told)


def test_a_winner_may_have_neither_rival_nor_library(bench, monkeypatch):
    def none(problem):
        raise NoPeer("not on this device")

    monkeypatch.setattr(competitor, "PEERS", {"cublas": none})
    assert bench.tune("--candidates", "1", "--only", "*rcr*") == 0
    for winner in json.loads(bench.winners.read_text())["winners"]:
        assert winner["library_seconds"] is None and winner["runner_up"] is None


def test_a_lost_device_ends_the_call_and_its_trial_is_not_tried_again(bench, monkeypatch):
    monkeypatch.setattr(fakes, "raised", [])
    fakes.write(bench.kernel("rcr", "linear"), "1e-3, 1e-3, 1e-3", "fakes.raised.append(1); raise RuntimeError('x')")
    assert bench.tune(factory="tests.helpers.tune.fake_gpu:LosesIt") == 1
    told = bench.said().err
    assert "LOST: RuntimeError: x" in told and "3 of 4 problems are left" in told
    fakes.raised.clear()
    assert bench.tune("--only", "*rrr*", factory="tests.helpers.tune.fake_gpu:LosesIt") == 0
    assert winners_of(bench.winners) == ALL[2:]
    assert bench.tune(factory="tests.helpers.tune.fake_gpu:LosesIt") == 1
    assert len(bench.calls) == 1 + 1, "the one that lost it is not tried again, the other of its contract is"


def test_winners_of_other_sizes_stay_and_stale_ones_go(bench):
    bench.tune()
    (bench.folder / "shapes.yaml").write_text("[48x16x16]")
    bench.tune("--only", "*rcr*")
    new = ("gemm_fp16_rcr_none", 48, 16, 16, "grouped", 32)
    assert winners_of(bench.winners) == [*ALL[:2], new, *ALL[2:]]
    fakes.write(bench.kernel("rrr", "grouped"), "3e-3, 2e-3, 8e-3", "out.copy_(result); pass")
    bench.said()
    bench.tune("--only", "*rcr*")
    assert winners_of(bench.winners) == [*ALL[:2], new]
    assert "dropped 2 winners whose kernels have changed since: gemm_fp16_rrr_none__" in bench.said().out


def test_a_file_of_another_place_is_refused_before_anything_is_measured(bench):
    bench.tune()
    bench.winners.write_text(bench.winners.read_text().replace('"triton": "3.7.1"', '"triton": "3.6.0"'))
    bench.journal.unlink()
    with pytest.raises(CallError, match=r"triton 3\.6\.0, and this is NVIDIA H200 .* triton 3\.7\.1"):
        bench.tune()
    assert len(bench.calls) == 1 and not bench.journal.exists()
    bench.winners.write_text("[]")
    with pytest.raises(CallError, match="is not a file of winners"):
        bench.tune()
    assert bench.tune("--tuned", "mine.json") == 0
    assert winners_of(bench.folder / "mine.json") == ALL
    assert bench.winners.read_text() == "[]"


def test_a_change_of_kernel_or_device_is_measured_again(bench, monkeypatch):
    bench.tune()
    fakes.write(bench.kernel("rcr", "linear"), "5e-4, 4e-3, 6e-3")
    bench.tune()
    assert len(bench.calls) == 1 + 2
    assert winners_of(bench.winners)[0] == ("gemm_fp16_rcr_none", 16, 64, 32, "linear", 16)
    monkeypatch.setattr(trial_worker, "METHOD", {**trial_worker.METHOD, "version": 2})
    bench.tune()
    assert len(bench.calls) == 1 + 4


def test_again_chooses_from_the_journal_alone(bench):
    bench.tune()
    before = bench.winners.read_bytes()
    bench.winners.unlink()
    assert tune.main([*AGAIN, "--journal", str(bench.journal)]) == 0
    assert len(bench.executors) == 1 and bench.winners.read_bytes() == before
    assert tune.main([*AGAIN[:-1], "nvidia_a100", "--journal", str(bench.journal)]) == 2
    assert "has no measurement of nvidia_a100" in bench.said().err


def test_nothing_is_fitted_to_what_is_unseen(bench, monkeypatch):
    """Neither a journal with measurements of such a size counts, nor can a call name one, in a file of any name."""
    bench.tune()
    bench.winners.unlink()
    monkeypatch.setattr(suite, "_unseen", lambda: (Shape(16, 64, 32),))
    assert tune.main(AGAIN) == 0
    assert winners_of(bench.winners) == [ALL[1], ALL[3]]
    with pytest.raises(CallError, match=r"files unseen_\*\.yaml, and 1 are among these .*: 16x64x32"):
        bench.tune()
    assert not any(executor.calls for executor in bench.executors[1:])


def test_kernels_measured_one_after_the_other_have_a_winner(bench):
    """Some kernels alone have times and no winner; of one that has changed, only that is measured again."""
    assert bench.tune("--only", "*_linear") == 0
    assert not bench.winners.exists()
    assert len(Journal(bench.journal).outcomes) == 4 and '"whole":false' in bench.journal.read_text()
    assert bench.tune() == 0
    assert winners_of(bench.winners) == ALL


def test_what_another_family_measured_has_times_and_no_winner(bench):
    """It may have other kernels of the contract: what won there need not win here."""
    bench.tune()
    bench.winners.unlink()
    bench.journal.write_text(bench.journal.read_text().replace('"about":"tiny/', '"about":"other/'))
    assert tune.main([*AGAIN, "--journal", str(bench.journal)]) == 1
    assert not bench.winners.exists() and "4 of another family" in bench.said().err


def test_refine_also_tries_what_the_fitted_rates_promise(bench):
    shapes = ", ".join(f"{16 * i}x{64 * i}x{64 * i}" for i in range(1, 6))
    (bench.folder / "shapes.yaml").write_text(f"[{shapes}]")
    bench.tune("--candidates", "6")
    bench.tune("--candidates", "1")
    assert len(bench.calls) == 1 + 10
    refined = len(Journal(bench.journal).outcomes)
    bench.tune("--candidates", "1", "--refine")
    found = list(Journal(bench.journal).outcomes.values())[refined:]
    assert found and all(len({(row.kernel, str(row.config)) for row in o.times}) == 2 for o in found)


def test_a_batch_is_a_size_of_its_own(bench):
    spec = bench.folder / "specs" / "tiny.yaml"
    spec.write_text(fakes.SPEC.replace("dtype: fp16\n", "dtype: fp16\nbatch: strided\n"))
    assert command_line.main([str(spec), "--force"]) == 0
    for path in (bench.folder / "generated" / "tiny").glob("bmm_*.py"):
        fakes.write(path, "3e-3, 2e-3, 8e-3" if "grouped" in path.name else "5e-3, 4e-3, 6e-3")
    (bench.folder / "shapes.yaml").write_text("[3x32x32x32, 5x32x32x32]")
    assert bench.tune() == 0
    found = tuned_file.parse(bench.winners.read_text()).winners
    expected = [(f"bmm_fp16_{layout}_none", (batch, 32, 32, 32)) for layout in ("rcr", "rrr") for batch in (3, 5)]
    assert [(winner.contract, winner.sizes) for winner in found] == expected
