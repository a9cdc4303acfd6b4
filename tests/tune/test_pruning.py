"""The smallest portfolio: what is taken out loses little everywhere, and nothing more can be taken out."""

import math
import random
import statistics

from generator.plan import devices
from generator.problem.product import Shape
from generator.runtime import fitted
from generator.tune.outcome import ConfirmedWinner, Timed, row_of
from generator.tune.pruning import LARGEST, MEAN, MODELLED, portfolio, predicted, pruned
from generator.tune.rate_fit import RateFit
from generator.tune.samples import Sample
from generator.tune.winners import MeasurementSource, Winners
from tests.helpers.support import variant

CONTRACT = "gemm_fp16_rcr_none"
SIZES = [(m, 1024, 1024) for m in range(1, 41)]


def row(kernel, m):
    return row_of(CONTRACT, f"{CONTRACT}__{kernel}", {"BLOCK_M": m})


def samples(times):
    """The seconds of each configuration at each of the sizes; NaN for sizes at which it was not measured."""
    return [
        Sample(row, size, 2, seconds)
        for row, own in times.items()
        for size, seconds in zip(SIZES, own)
        if not math.isnan(seconds)
    ]


def losses(kept, measured):
    found = []
    for size in sorted({sample.sizes for sample in measured}):
        own = [sample for sample in measured if sample.sizes == size]
        left = min((sample.seconds for sample in own if sample.row in kept), default=math.inf)
        found.append(left / min(sample.seconds for sample in own) - 1)
    return found


def test_what_never_wins_goes_first_and_what_alone_was_measured_stays():
    best, near, slow, alone = row("a", 16), row("a", 32), row("b", 16), row("c", 16)
    nothing = math.nan
    times = {
        best: [1.0] * 39 + [nothing],
        near: [1.001] * 39 + [nothing],
        slow: [2.0] * 39 + [nothing],
        alone: [nothing] * 39 + [1.0],
    }
    assert portfolio(samples(times)) == {best, alone}


def test_one_size_that_would_lose_too_much_keeps_its_configuration():
    usual, rare = row("a", 16), row("b", 16)
    for loss, kept in ((LARGEST * 0.99, {usual}), (LARGEST * 1.01, {usual, rare})):
        assert portfolio(samples({usual: [1.0] * 39 + [1 + loss], rare: [2.0] * 39 + [1.0]})) == kept


def test_a_whole_kernel_goes_before_single_configurations():
    """Without either kernel the other has all that is needed: one of the two remains, not half of each."""
    times = {
        row(kernel, m): [1.0 if size % 2 == m // 32 else 1.5 for size in range(40)] for kernel in "ab" for m in (16, 32)
    }
    kept = portfolio(samples(times))
    assert len(kept) == 2 and len({kernel for _, kernel, _ in kept}) == 1


def test_what_remains_of_random_times_loses_little_and_cannot_be_less():
    draw = random.Random(0)
    times = {row(kernel, m): [draw.uniform(1.0, 1.2) for _ in SIZES] for kernel in "abc" for m in range(16, 26)}
    measured = samples(times)
    kept = portfolio(measured)
    found = losses(kept, measured)
    assert 0 < len(kept) < len(times) and statistics.fmean(found) <= MEAN and max(found) <= LARGEST
    for each in kept:
        less = losses(kept - {each}, measured)
        assert statistics.fmean(less) > MEAN or max(less) > LARGEST
    draw.shuffle(measured)
    assert portfolio(measured) == kept


def test_what_one_contract_needs_the_others_keep():
    one = samples({row("a", 16): [1.0] * 40, row("a", 32): [1.1] * 40, row("a", 64): [1.2] * 40})
    other = [Sample(("gemm_fp16_rrr_none", *each.row[1:]), each.sizes, 2, 1 / each.seconds) for each in one[:80]]
    assert {(contract, config) for contract, _, config in portfolio(one + other)} == {
        (contract, (("BLOCK_M", m),)) for contract in (CONTRACT, "gemm_fp16_rrr_none") for m in (16, 32)
    }


def test_modelled_times_keep_what_no_measured_size_needs():
    best, other = row("a", 16), row("a", 32)
    measured = samples({best: [1.0] * 40, other: [1.2] * 40})
    assert portfolio(measured) == {best}

    def elsewhere(loss):
        sizes = [(m, 64, 65536) for m in (1, 2)]
        return [Sample(each, size, 2, 1 + loss * (each == best)) for each in (best, other) for size in sizes]

    assert portfolio(measured, elsewhere(2 * MODELLED)) == {best, other}
    # The model is not exact: a loss that would count if it were measured does not.
    assert LARGEST < (LARGEST + MODELLED) / 2 < MODELLED
    near = elsewhere((LARGEST + MODELLED) / 2)
    assert portfolio(measured, near) == {best} and portfolio(measured + near) == {best, other}


def test_times_are_modelled_of_what_was_measured_often_at_sizes_that_were_not():
    rates = (1, 1e-6, 1e-6, 1e-6, 4e12, 2e-6, 0.0, 0.0)
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    often, seldom = (row_of(CONTRACT, f"{CONTRACT}__a", config | {"BLOCK_M": m}) for m in (64, 32))
    measured = samples({often: [1.0] * 40, seldom: [1.0] * 3})
    device, fit = devices.named("nvidia_h200"), RateFit({often: rates, seldom: rates}, 0.1, 0.2)
    # In order: not measured; with rows of 2050 bytes; measured; a batch.
    shapes = [Shape(64, 128, 4096), Shape(64, 128, 1025), Shape(*SIZES[0]), Shape(64, 128, 4096, batch=2)]
    (found,) = predicted(fit, measured, shapes, {f"{CONTRACT}__a": variant()}, device)
    assert (found.row, found.sizes) == (often, (64, 128, 4096))
    assert [found.seconds] == fitted.seconds([fitted.rated(config, rates)], found.sizes, device.multiprocessors, 2)


def test_a_winner_that_is_taken_out_is_replaced_by_the_fastest_that_remains():
    out, second, third = (row("a", m) for m in (16, 32, 64))
    measured = samples({out: [1.0], second: [1.01], third: [1.02]})
    config, rival = {"BLOCK_M": 16}, Timed(second[1], {"BLOCK_M": 32}, 1.01)
    winner = ConfirmedWinner(CONTRACT, Shape(*SIZES[0]), out[1], config, 1.0, 1.3, rival)
    fit = RateFit({each: (1, 1.0, 1.0, 1.0, 1.0, 1.0) for each in (out, second, third)}, 0.1, 0.2)
    found = Winners(MeasurementSource("GPU", 1, "2.11", "3.6"), {out[1]: "digest"}, (winner,), fit)
    left = pruned(found, measured, frozenset({second, third}))
    (replaced,) = left.winners
    assert (replaced.config, replaced.seconds, replaced.library_seconds) == ({"BLOCK_M": 32}, 1.01, 1.3)
    assert replaced.runner_up is None and left.fit.rates.keys() == {second, third}
    (same,) = pruned(found, measured, frozenset({out, third})).winners
    assert same.config == config and same.runner_up is None
    assert pruned(found, measured, frozenset({out, second})).winners == (winner,)
