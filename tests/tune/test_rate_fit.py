"""Rates fitted to measurements: what the model made is found again, and what a choice by it loses is told."""

import itertools
import random
from dataclasses import replace

import pytest

from generator.cost.analytic import PRODUCTS
from generator.plan.devices import DEVICES
from generator.runtime import fitted
from generator.tune.outcome import row_of
from generator.tune.rate_fit import fit
from generator.tune.samples import Sample
from tests.helpers.tuned_file import one_seconds

DEVICE = DEVICES["nvidia_h200"]
CONTRACT = "gemm_fp16_rcr_none"


def row(m, n, k, how="tiled"):
    config = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": 4, "num_stages": 3}
    return row_of(CONTRACT, f"{CONTRACT}__{how}", config)


SMALL, LARGE = row(16, 64, 128), row(128, 128, 64)
#: What is to be found again: near what an H200 reaches, and away from where the search starts.
RATES = {
    SMALL: (3, 9e-7, 2e-7, 1.6e-6, 3.1e12, 3.3e-6, -0.1, 0.1),
    LARGE: (2, 7e-7, 4.5e-7, 2.1e-6, 3.6e12, 4e-6, -0.2, 0.3),
}
SIZES = [size for size in itertools.product((1, 128, 512, 2048, 8192), (1024, 4096), (512, 2048, 8192))]
UNSEEN = [size for size in itertools.product((256, 1024, 3000), (3072, 6144), (1024, 3584))]


def seconds(row, rates, sizes):
    return one_seconds(dict(row[2]), rates, sizes, DEVICE.multiprocessors, 2)


def exact(row, sizes):
    return seconds(row, RATES[row], sizes)


def samples(sizes=SIZES):
    """Both rows at every size, as long as the model with the rates takes."""
    return [Sample(row, size, 2, exact(row, size)) for row in RATES for size in sizes]


def test_the_rates_of_the_model_are_found_again():
    found = fit(samples(), DEVICE)
    assert found.rates.keys() == RATES.keys()
    assert found.error < 0.02 and found.regret < 0.003, "nothing is lost where the model is exact"
    for row, rates in found.rates.items():
        # As many programs as have room in the shared memory.
        assert rates[0] == RATES[row][0] and len(rates) == 8
        for size in UNSEEN:
            assert seconds(row, rates, size) == pytest.approx(exact(row, size), rel=0.1), size


def test_times_of_a_device_with_faster_memory_stand_for_sizes_that_were_not_measured():
    """Its own sizes have many rows; those with few rows, which wait for memory, are of the other device."""
    scale = (1.0, 1.5)

    def elsewhere(row, size):
        rated = fitted.rated(dict(row[2]), RATES[row], *scale)
        return fitted.seconds([rated], size, DEVICE.multiprocessors, 2)[0]

    many = samples([size for size in SIZES if size[0] >= 2048])
    few = [Sample(row, size, 2, elsewhere(row, size), scale=scale) for row in RATES for size in SIZES if size[0] < 2048]
    found = fit([*many, *few], DEVICE)
    for row, rates in found.rates.items():
        for size in UNSEEN:
            assert seconds(row, rates, size) == pytest.approx(exact(row, size), rel=0.1), size
    # As if the other memory were this device's.
    wrong = fit([*many, *(replace(sample, scale=(1.0, 1.0)) for sample in few)], DEVICE).rates

    def off(rates):
        few = [size for size in SIZES if size[0] == 1]
        return sum(abs(seconds(SMALL, rates, size) / exact(SMALL, size) - 1) for size in few) / len(few)

    assert 2 * off(found.rates[SMALL]) < off(wrong[SMALL])


def test_the_order_of_the_samples_says_nothing():
    first = fit(samples(SIZES[::3]), DEVICE)
    for seed in range(3):
        shuffled = samples(SIZES[::3])
        random.Random(seed).shuffle(shuffled)
        assert fit(shuffled, DEVICE) == first


def test_fits_side_by_side_give_the_same_rates(monkeypatch):
    sizes = SIZES[::5]
    rows = [row(m, n, k) for m in (16, 32, 64, 128) for n in (64, 128) for k in (32, 64)]
    many = [Sample(each, size, 2, exact(SMALL, size) * (1 + i / 8)) for i, each in enumerate(rows) for size in sizes]
    found = {}
    for processors in (1, 2):
        monkeypatch.setattr("os.cpu_count", lambda processors=processors: processors)
        found[processors] = fit(many, DEVICE)
    assert len(found[1].rates) == len(rows) and found[1] == found[2]


def slower(factor):
    """Rates of eight rows by which a step takes `factor` times as long as where the search starts."""
    found = {}
    for m, n, k in itertools.product((64, 128), repeat=3):
        step, resident = factor * m * n * k / PRODUCTS, min(4, DEVICE.shared_memory // ((m + n) * k * 3 * 2))
        found[row(m, n, k)] = (resident, 1.5 * step, step, 1e-6, 4e12, 2e-6, 0.0, 0.0)
    return found


def test_a_row_that_was_measured_once_has_the_rates_expected_of_it():
    """At the smallest size, which tells little of its steps: they take as many times as long as those of other rows."""
    rates, once = slower(2.0), row(128, 64, 64)
    own = [Sample(each, size, 2, seconds(each, rates[each], size)) for each in rates for size in SIZES]
    found = fit([sample for sample in own if sample.row != once or sample.sizes == SIZES[0]], DEVICE).rates
    assert found.keys() == rates.keys()
    for size in UNSEEN:
        assert seconds(once, found[once], size) == pytest.approx(seconds(once, rates[once], size), rel=0.1), size


def test_a_row_that_was_measured_at_a_lower_clock_rate_alone_is_not_taken_for_slower():
    """All rows took a tenth longer at every fourth size, and the fastest one was measured at these sizes alone."""
    rates = slower(1.5)
    first = row(128, 128, 64)
    fast = row(128, 128, 64, "other")
    rates[fast] = (rates[first][0], *(0.96 * value for value in rates[first][1:4]), 4.2e12, 1.9e-6, 0.0, 0.0)
    slow = SIZES[::4]
    own = [
        Sample(each, size, 2, seconds(each, rates[each], size) * (1.1 if size in slow else 1.0))
        for each in rates
        for size in (slow if each == fast else SIZES)
    ]
    found = fit(own, DEVICE).rates
    for size in UNSEEN:
        assert seconds(fast, found[fast], size) < seconds(first, found[first], size), size


def test_unaligned_samples_do_not_count():
    others = [replace(each, seconds=each.seconds * 3, aligned=False) for each in samples(UNSEEN)]
    assert fit([*samples(), *others], DEVICE) == fit(samples(), DEVICE)


def test_unaligned_samples_count_where_a_contract_has_few_others():
    """As with a column-major A, whose columns have as many elements as M."""
    unaligned = [replace(each, aligned=False) for each in samples()]
    assert fit(unaligned, DEVICE) == fit(samples(), DEVICE)
    few = [each for each in samples() if each.sizes in SIZES[:3]]
    assert fit([*few, *(each for each in unaligned if each.sizes not in SIZES[:3])], DEVICE) == fit(samples(), DEVICE)


def test_a_contract_of_few_sizes_has_no_rates():
    assert fit(samples(SIZES[:4]), DEVICE).rates.keys() == RATES.keys()
    assert fit(samples(SIZES[:3]), DEVICE).rates == fit([], DEVICE).rates == {}
    # The same sizes of another contract are no other sizes.
    others = [replace(each, row=("gemm_fp16_rrr_none", *each.row[1:])) for each in samples(SIZES[3:6])]
    assert fit([*samples(SIZES[:3]), *others], DEVICE).rates == {}


def test_what_the_model_does_not_know_is_lost():
    """A row that by chance is far faster at every second size: the model, of the others, does not choose it there."""
    slow = row(64, 64, 64)
    own = [sample for sample in samples() if sample.row == LARGE]
    for index, sample in enumerate(sorted(own, key=lambda sample: sample.sizes)):
        own.append(Sample(slow, sample.sizes, 2, sample.seconds * (0.5 if index % 2 else 2.0)))
    assert fit(own, DEVICE).regret > 0.2
