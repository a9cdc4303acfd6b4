"""Measured times as samples: several outcomes of a size are combined, and unaligned operands are known."""

from dataclasses import replace

import pytest

from generator.plan.expand import expand
from generator.problem.product import Shape
from generator.tune.outcome import ConfirmedWinner, Timed, TrialOutcome, outcome_of, plain, row_of
from generator.tune.samples import Sample, all_round, moved_by, samples_of
from tests.helpers.support import BASE, read_text

KERNEL = "tiled_pointer_auto_grouped"


def variants(layout):
    spec = read_text(BASE.replace("layout: rcr", f"layout: {layout}"))
    return {kernel.name: kernel.variant for kernel in expand(spec).kernels}


def outcome(contract, sizes, times):
    """Times by BLOCK_M."""
    timed = tuple(Timed(f"{contract}__{KERNEL}", {"BLOCK_M": m}, seconds) for m, seconds in times.items())
    best = min(timed, key=lambda each: each.seconds)
    return TrialOutcome(timed, (), ConfirmedWinner(contract, Shape(*sizes), best.kernel, best.config, best.seconds))


def times_of(outcomes, layout="rcr"):
    found = list(samples_of(outcomes, variants(layout)))
    assert len({sample.row for sample in found}) == len(found) and {sample.width for sample in found} == {2}
    return {dict(sample.row[2])["BLOCK_M"]: sample.seconds for sample in found}


def test_of_several_outcomes_of_a_size_the_median_counts():
    several = {16: 1e-6, 32: 2e-6}, {16: 3e-6}, {16: 2e-6, 64: 3e-6}
    found = times_of([outcome("gemm_fp16_rcr_none", (64, 64, 64), each) for each in several])
    assert found == {16: 2e-6, 32: 2e-6, 64: 3e-6}


def test_what_has_no_winner_or_is_of_another_contract_is_no_sample():
    own = outcome("gemm_fp16_rrr_none", (64, 64, 64), {16: 1e-6})
    assert not list(samples_of([own, TrialOutcome()], variants("rcr")))


@pytest.mark.parametrize(
    ("layout", "sizes", "aligned"),
    [
        # Rows of A and of the transposed B are K elements long, and M does not matter.
        *(("rcr", (1, 64, 4096), True), ("rcr", (64, 64, 72), False)),
        # 208 bytes cross a line of 128 bytes, 32 bytes do not.
        *(("rcr", (64, 64, 104), False), ("rcr", (64, 64, 16), True), ("rrr", (64, 104, 4096), False)),
        # Columns of A are M elements long.
        *(("ccr", (8, 64, 4096), False), ("ccr", (16, 64, 4096), True), ("ccr", (96, 64, 4096), False)),
    ],
)
def test_unaligned_operands_are_known(layout, sizes, aligned):
    (sample,) = samples_of([outcome(f"gemm_fp16_{layout}_none", sizes, {16: 1e-6})], variants(layout))
    assert sample.aligned == aligned


@pytest.mark.parametrize(
    ("dtype", "schedule", "moved"),
    [
        ("fp16", "tiled", ()),
        ("fp32", "split_k", (1, 2)),
        # Each partial sum is written and read: eight bytes for the two of A.
        ("{a: bf16, b: int4, scales: {b: [128, 1]}}", "tiled", (0.25, 4)),
        # B is decoded first: half a byte is read, two are written and two are read again.
        ("{a: bf16, b: int4, scales: {b: [128, 1]}}", "decoded", (2.25, 4)),
        ("{a: bf16, b: int8, scales: {b: [0, 1]}}", "decoded", (2.5, 4)),
        # Half of the elements, and two bits for the place of each.
        ("{a: fp16, sparsity: {b: '2:4'}}", "tiled", (0.5625, 4)),
        ("{a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}", "tiled", ()),
    ],
)
def test_a_sample_knows_what_is_moved(dtype, schedule, moved):
    target = "sm90" if "fp8" in dtype else "sm80"
    words = f"schedule: {schedule}\nload: pointer\nstore: pointer\ntargets: [{target}]\n"
    text = BASE.replace("dtype: fp16", f"dtype: {dtype}") + words
    (variant,) = {kernel.variant for kernel in expand(read_text(text)).kernels}
    assert moved_by(variant) == moved
    contract, kernel = variant.contract, variant.name
    timed = Timed(kernel, {"BLOCK_M": 16}, 1e-6)
    own = TrialOutcome((timed,), (), ConfirmedWinner(contract, Shape(64, 128, 128), kernel, timed.config, 1e-6))
    (sample,) = samples_of([own], {kernel: variant})
    assert sample.moved == moved


def of_groups(times):
    """The winner for equal groups, and the samples of a size of groups: the seconds by routing and BLOCK_M."""
    contract, found = "gmm_fp16_rcr_none", []
    for routing, own in times.items():
        for m, seconds in own.items():
            row = row_of(contract, f"{contract}__{KERNEL}", {"BLOCK_M": m})
            found.append(Sample(row, (16, 8, 64, 64), 2, seconds, routing=routing))
    # Another size, at which other configurations are fast.
    found += [replace(each, sizes=(16, 9, 64, 64), seconds=1 / each.seconds) for each in found]
    best, seconds = min(times["uniform"].items(), key=lambda each: each[1])
    shape = Shape(128, 64, 64, groups=16, routing="uniform")
    return ConfirmedWinner(contract, shape, f"{contract}__{KERNEL}", {"BLOCK_M": best}, seconds), found


@pytest.mark.parametrize(
    ("uniform", "zipf", "one", "best"),
    [
        ({16: 1.0, 64: 1.05}, {}, {}, 16),  # Equal groups alone.
        ({16: 1.0, 64: 1.05}, {}, {16: 1.1, 64: 1.0}, 16),  # Hardly slow.
        ({16: 1.0, 64: 1.05}, {}, {16: 3.0, 64: 1.0}, 64),  # Slow for one.
        ({16: 1.0, 64: 1.3}, {}, {16: 3.0, 64: 1.0}, 16),  # Too dear.
        ({16: 1.0, 64: 1.05}, {16: 1.0, 64: 1.0}, {16: 3.0, 64: 1.0}, 64),  # Three ways.
        ({16: 1.0, 64: 1.05}, {}, {16: 3.0, 128: 1.0}, 16),  # Not measured.
        ({16: 1.0, 64: 1.05}, {}, {64: 1.0}, 64),  # Failed.
    ],
)
def test_one_winner_of_several_routings(uniform, zipf, one, best):
    times = {"uniform": uniform, "zipf": zipf, "one": one}
    winner, samples = of_groups({routing: each for routing, each in times.items() if each})
    found = all_round(winner, samples)
    assert (found.config, found.seconds) == ({"BLOCK_M": best}, uniform[best])
    assert found.routing == "uniform" and found.place == winner.place
    assert (found == winner) == (best == 16) and (found.runner_up is None) == (best == 16)


def test_a_routing_is_kept_with_an_outcome_and_makes_a_sample_of_its_own():
    winner, _ = of_groups({"uniform": {16: 1.0}})
    zipf = replace(winner.shape, routing="zipf")
    skewed = TrialOutcome((Timed(winner.kernel, winner.config, 4.0),), (), replace(winner, shape=zipf, seconds=4.0))
    assert outcome_of(plain(skewed)) == skewed and skewed.winner is not None
    assert str(skewed.winner.shape) == "16g128x64x64:zipf" and skewed.winner.place == winner.place
    evenly = TrialOutcome((Timed(winner.kernel, winner.config, 1.0),), (), winner)
    assert "routing" not in plain(evenly)["winner"] and outcome_of(plain(evenly)) == evenly
    spec = read_text(BASE + "batch: grouped\n")
    known = {kernel.name: kernel.variant for kernel in expand(spec).kernels}
    found = {sample.routing: sample.seconds for sample in samples_of([evenly, skewed], known)}
    assert found == {"uniform": 1.0, "zipf": 4.0}
