"""Measuring on a fake device, with kernels of plain torch: what is checked, what is timed, what is refused."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from generator.bench import check, measure, random_operands
from generator.bench.benchmark_run import BenchmarkOptions, run
from generator.bench.comparison_plan import Comparison, Contestant
from generator.bench.competitor import row_of
from generator.bench.measure import DeviceLost, Options, calls_for
from generator.bench.measurements import load
from generator.emit.loading import load_kernel
from generator.epilogue.chain import Epilogue
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape
from tests.helpers.bench.fake_device import FakeDevice
from tests.helpers.support import GENERATED

KERNEL = """
import torch

CONFIGS = [{"BLOCK_M": 16}, {"BLOCK_M": 32}]
calls = []


def gemm(a, b, *, out=None, config=None, **operands):
    calls.append(config)
    if out is None:
        out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
    result = (a.double() @ b.double()).to(out.dtype)
    BODY
    return out
"""
RIGHT = "out.copy_(result)"
OPTIONS = Options(rounds=3)


def contestant(folder, label, body=RIGHT):
    text = KERNEL.replace("BODY", body)
    path = folder / f"gemm__{label}.py"
    path.write_text(text)
    return Contestant(label, "family", path.stem, path, hashlib.sha256(text.encode()).hexdigest(), None)


def problem(dtype="fp16", epilogue=None, layout="rcr"):
    return Problem(Shape(24, 40, 32), Dtype.of(dtype), Layout.of(layout), epilogue or Epilogue())


def measured(*contestants, options=OPTIONS, of=None, device=None, peers=("cublas",)):
    comparison = Comparison("case", "A case", of or problem(), contestants, peers)
    return measure.measure(comparison, device or FakeDevice(), "env", options)


def test_every_side_is_timed_in_every_round(tmp_path):
    record = measured(contestant(tmp_path, "one"), contestant(tmp_path, "two"))
    roles = {"one": "kernel", "two": "kernel", "torch.matmul": "peer"}
    assert {side.label: side.role for side in record.sides} == roles
    for side in record.sides:
        assert side.failure is None and side.gpu is not None and side.call is not None and side.host is not None
        for timing, each in ((side.gpu, 1e6), (side.call, 2e6), (side.host, 1e6)):
            assert (timing.rounds, timing.median, timing.mean, timing.deviation) == (3, each, each, 0.0)
        assert side.error is not None and side.tolerance is not None and 0 < side.error < side.tolerance


def test_the_sides_take_turns(tmp_path):
    device = FakeDevice()
    measured(contestant(tmp_path, "one"), contestant(tmp_path, "two"), options=Options(rounds=4), device=device)
    replays = {replay: number for number, replay in enumerate(dict.fromkeys(device.replays))}
    order = [replays[replay] for replay in device.replays]
    # Before the rounds each side is replayed in a row (timed, then checked); after them each is checked once.
    rounds = order[-4 * 4 - 3 : -3]
    read = [tuple(rounds[start + 1 : start + 4]) for start in range(0, 16, 4)]
    assert read == [(0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    # A replay that is not read leads.
    assert rounds[::4] == [each[-1] for each in read] and order[-3:] == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("out.copy_(result * 1.02)", "wrong result: relative error 0.02"),
        ("out[:16].copy_(result[:16])", "wrong result: relative error inf"),
        ("out.copy_(result); out[3, 5] += 30", "wrong result"),
        ("return result", "wrong result"),
        ("raise RuntimeError('no such instruction')", "RuntimeError: no such instruction"),
        ("raise ValueError('M is 24, not a multiple of 16')", "ValueError: M is 24, not a multiple of 16"),
    ],
)
def test_a_wrong_side_is_not_timed_and_the_others_are(tmp_path, body, message):
    record = measured(contestant(tmp_path, "wrong", body), contestant(tmp_path, "right"))
    wrong, right, peer = record.sides
    assert wrong.failure is not None and wrong.failure.startswith(message)
    assert wrong.gpu is None and right.gpu is not None and peer.gpu is not None
    # A refusal is no fault.
    assert wrong.refused is ("ValueError" in body) and record.faults == (() if wrong.refused else (wrong,))


def test_one_wrong_element_is_seen_where_the_norm_sees_nothing():
    large = Problem(Shape(1024, 1024, 16), Dtype.of("bf16"), Layout.of("rrr"), Epilogue())
    (one,) = random_operands.make_sets(large, "cpu", 1, seed=0)
    (expected,) = check.expect(large, one, torch.Generator())
    out = expected.parts[0].value.to(torch.bfloat16)
    out[1000, 3] += 2
    verdict = check.judge(large, out, expected)
    assert verdict.error < verdict.tolerance
    assert verdict.fault is not None and "one element" in verdict.fault


def test_a_side_that_turns_wrong_during_the_rounds_has_no_times(tmp_path):
    body = "out.copy_(result if len(calls) < 20 else result * 2)"
    wrong, _ = measured(contestant(tmp_path, "late", body)).sides
    assert wrong.gpu is None
    assert wrong.failure is not None and wrong.failure.endswith("(right at first, wrong after the rounds)")


def test_every_row_is_measured_where_asked(tmp_path):
    body = "assert config != 1; out.copy_(result)"
    record = measured(contestant(tmp_path, "one", body), options=Options(rounds=2, configs="all"))
    sides = [("one", None, False), ("one [0]", 0, True), ("one [1]", 1, True), ("torch.matmul", None, False)]
    assert [(side.label, side.index, side.forced) for side in record.sides] == sides
    assert record.sides[1].config == {"BLOCK_M": 16}
    assert record.sides[2].failure is not None


def test_rounds_end_with_the_time(tmp_path):
    """The fake clock counts a second a reading: five in a round of two sides, two more for the time itself."""
    few = measured(contestant(tmp_path, "one"), options=Options(rounds=40, seconds=60.0))
    side = few.sides[0]
    assert side.gpu is not None and 5 <= side.gpu.rounds < 10
    least = measured(contestant(tmp_path, "one"), options=Options(rounds=40, seconds=1.0))
    assert all(each.gpu is not None and each.gpu.rounds == 5 for each in least.sides)
    assert least.method["seconds"] == "1.0" and "seconds" not in OPTIONS.method(())


def test_padded_operands_are_right_on_both_sides(tmp_path):
    for layout in ("rcr", "rrc"):
        of = replace(problem(layout=layout), shape=Shape(24, 40, 32, 3))
        (one,) = random_operands.make_sets(of, "cpu", 1, seed=0)
        outer = [one.a.stride(0), one.b.stride(1 if layout == "rcr" else 0), max(one.out.stride())]
        assert outer == [35, 35 if layout == "rcr" else 43, 43 if layout == "rcr" else 27]
        record = measured(contestant(tmp_path, "one"), of=of)
        assert all(side.failure is None for side in record.sides)


@pytest.mark.parametrize("layout", ["rcr", "crc"])
def test_batches_are_checked_and_compared_with_their_own_product(tmp_path, layout):
    epilogue = chain_of(("bias", "add"))
    batch = replace(problem(epilogue=epilogue, layout=layout), shape=Shape(24, 40, 32, batch=3))
    (found,) = random_operands.make_sets(batch, "cpu", 1, seed=1)
    assert found.a.shape == (3, 24, 32) and found.b.shape == (3, 32, 40) and found.out.shape == (3, 24, 40)
    assert batch.flops == 3 * problem().flops
    plain = replace(batch, epilogue=Epilogue())
    record = measured(contestant(tmp_path, "one"), of=plain)
    assert [side.label for side in record.sides] == ["one", "torch.bmm"]
    assert all(side.failure is None for side in record.sides)
    wrong = "out.copy_(result); out[-1, -1, -1] = 77"
    side, _ = measured(contestant(tmp_path, "two", wrong), of=plain).sides
    assert side.failure is not None and "wrong result" in side.failure


def test_a_lost_device_stops_everything(tmp_path):
    class Lost(FakeDevice):
        def synchronize(self):
            raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(DeviceLost, match="illegal memory access"):
        measured(contestant(tmp_path, "one"), device=Lost())


@pytest.mark.parametrize(
    ("seconds", "sets", "calls"),
    [(1.0, 4, 1), (3e-3, 1, 1), (1e-3, 3, 3), (1e-5, 7, 203), (1e-9, 8, 2000), (5e-3, 64, 1), (2e-5, 512, 512)],
)
def test_a_sample_is_long_and_goes_round_the_sets(seconds, sets, calls):
    assert calls_for(seconds, sets) == calls


def test_sets_outgrow_the_cache():
    one = problem()
    assert random_operands.count_sets(one, 0) == 1
    count = random_operands.count_sets(one, 50_000)
    assert count * one.bytes >= 2 * 50_000 > (count - 1) * one.bytes
    assert one.bytes == 2 * (24 * 32 + 32 * 40 + 24 * 40)


@pytest.mark.parametrize(
    "word", ["bias+bias_m+add+relu", "bias+swiglu+scale_n", "bias+save+silu+row_sum+col_sum+row_amax+save"]
)
def test_random_rows_and_columns_judge_as_the_whole_does(monkeypatch, word):
    of = problem("fp16", chain_of(tuple(word.split("+"))), "rcc")
    (one,) = random_operands.make_sets(of, "cpu", 1, seed=0)
    whole = check.expect(of, one, torch.Generator())
    monkeypatch.setattr(check, "_WHOLE", 0)
    monkeypatch.setattr(check, "_SAMPLED", 5)
    sampled = check.expect(of, one, torch.Generator())
    assert [each.name for each in sampled] == ["result", *(output.name for output in of.epilogue.outputs)]
    for one_result, all_of_it in zip(sampled, whole, strict=True):
        (part,) = all_of_it.parts
        assert part.value.shape == one_result.shape == all_of_it.shape
        assert len(one_result.parts) == (2 if len(one_result.shape) == 2 else 1)
        for some in one_result.parts:
            torch.testing.assert_close(some.value, part.value[some.at])
        out = part.value.half() if len(one_result.shape) == 2 else part.value.float()
        assert check.judge(of, out, one_result).fault is None
        out[one_result.parts[0].at] *= 2
        fault = check.judge(of, out, one_result).fault
        assert fault is not None and fault.startswith(f"wrong {one_result.name}: ")


def test_a_stopped_run_keeps_what_was_done_and_goes_on(tmp_path, capsys, monkeypatch):
    one, two = comparisons(tmp_path, "one", "two")
    call, real = BenchmarkOptions(json=tmp_path / "kept.json", rounds=2), measure.measure

    def stopped(comparison, *rest):
        if comparison.case == "two":
            raise KeyboardInterrupt
        return real(comparison, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(measure, "measure", stopped)
        run(call, [one, two], FakeDevice(), scale=1024)
    kept = load(tmp_path / "kept.json")
    assert [record.case for record in kept.records] == ["one"]
    assert run(call, [one, two], FakeDevice(), scale=1024) == 0
    assert "1 of 2 comparisons are already in " in capsys.readouterr().err
    after = load(tmp_path / "kept.json")
    assert after.records[0] == kept.records[0]
    assert [record.case for record in after.records] == ["one", "two"]
    silent = FakeDevice()
    assert run(call, [one, two], silent, scale=1024) == 0
    assert not silent.replays, "nothing is timed again"


def comparisons(folder, *names):
    return [Comparison(name, name.title(), problem(), (contestant(folder, name),)) for name in names]


@pytest.mark.parametrize("what", ["kernel", "device", "rounds"])
def test_a_change_of_what_times_depend_on_is_measured_again(tmp_path, what):
    call = BenchmarkOptions(json=tmp_path / "kept.json", rounds=2)
    (one,) = comparisons(tmp_path, "one")
    assert run(call, [one], FakeDevice(), scale=1024) == 0
    device = FakeDevice()
    if what == "kernel":
        one = replace(one, contestants=(contestant(tmp_path, "one", RIGHT + "; pass"),))
    elif what == "device":
        device.environment["driver"] = "2"
    else:
        call.rounds = 3
    assert run(call, [one], device, scale=1024) == 0
    assert device.replays
    assert len(load(tmp_path / "kept.json").records) == (2 if what == "device" else 1)


def test_a_wrong_result_is_the_exit_status_and_has_no_ratio(tmp_path, capsys):
    one = Comparison("one", "One", problem(), (contestant(tmp_path, "wrong", "out.zero_()"),))
    call = BenchmarkOptions(json=tmp_path / "kept.json", rounds=2)
    assert run(call, [one], FakeDevice(), scale=1024) == 1
    spoken = capsys.readouterr()
    assert "| wrong | — | FAILED: wrong result" in spoken.out
    assert "bench: one 24x40x32 wrong: wrong result" in spoken.err
    device = FakeDevice()
    assert run(call, [one], device, scale=1024) == 1
    assert device.replays, "a wrong result is measured again"


def test_no_memory_for_the_operands_is_a_failure_of_the_comparison(tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError("out of memory")

    monkeypatch.setattr(random_operands, "make_sets", full)
    record = measured(contestant(tmp_path, "one"))
    assert [side.failure for side in record.sides] == ["MemoryError: out of memory"] * 2


def test_the_row_that_a_kernel_chooses_is_known():
    call = load_kernel(GENERATED / "fp16_rcr" / "gemm_fp16_rcr_none__tiled_descriptor_auto_grouped.py").CALL
    index, row = row_of(call, random_operands.shadow(problem())).values()
    assert row == call.configs[index] == call.chosen((24, 40, 32), torch.device("meta"))
    best = SimpleNamespace(all_kwargs=lambda: {**call.configs[1], "num_ctas": 1})
    tuner = SimpleNamespace(kernel=lambda of: SimpleNamespace(best_config=best))
    tuned = SimpleNamespace(tunes=True, tuner=tuner, configs=call.configs)
    assert row_of(tuned, random_operands.shadow(problem())) == {"index": 1, "config": call.configs[1]}
