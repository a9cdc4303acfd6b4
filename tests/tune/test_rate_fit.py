"""Rates fitted to measurements: what the model made is found again, and what a choice by it loses is told."""

from __future__ import annotations

import itertools
import random

import pytest

from generator.tune.rate_fit import Row, Sample, fit, row_of
from tests.helpers.tuned_file import one_seconds

PROCESSORS = 132
CONTRACT = "gemm_fp16_rcr_none"


def row(m: int, n: int, k: int, how: str = "tiled") -> Row:
    config = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": 4, "num_stages": 3}
    return row_of(CONTRACT, f"{CONTRACT}__{how}", config)


SMALL, LARGE = row(16, 64, 128), row(128, 128, 64)
#: What is to be found again: near what an H200 reaches, and away from where the search starts.
RATES = {
    SMALL: (3, 9e-7, 2e-7, 1.6e-6, 3.1e12, 3.3e-6),
    LARGE: (2, 7e-7, 4.5e-7, 2.1e-6, 3.6e12, 4e-6),
}
SIZES = [size for size in itertools.product((1, 128, 512, 2048, 8192), (1024, 4096), (512, 2048, 8192))]


def exact(row: Row, sizes: tuple[int, int, int]) -> float:
    return one_seconds(dict(row[2]), RATES[row], sizes, PROCESSORS, 2)


def samples(sizes: list[tuple[int, int, int]] = SIZES) -> list[Sample]:
    """Both rows at every size, as long as the model with the rates takes."""
    return [Sample(row, size, 2, exact(row, size)) for row in RATES for size in sizes]


def test_the_rates_of_the_model_are_found_again() -> None:
    found = fit(samples(), PROCESSORS)
    assert found.rates.keys() == RATES.keys()
    assert found.error < 0.02
    # Sizes that no sample had.
    for row, rates in found.rates.items():
        assert rates[0] in (1, 2, 3, 4) and len(rates) == 6
        for size in itertools.product((256, 1024, 3000), (3072, 6144), (1024, 3584)):
            seconds = one_seconds(dict(row[2]), rates, size, PROCESSORS, 2)
            assert seconds == pytest.approx(exact(row, size), rel=0.1), size


def test_the_order_of_the_samples_says_nothing() -> None:
    first = fit(samples(SIZES[::3]), PROCESSORS)
    for seed in range(3):
        shuffled = samples(SIZES[::3])
        random.Random(seed).shuffle(shuffled)
        assert fit(shuffled, PROCESSORS) == first


def test_many_rows_are_fitted_side_by_side_to_the_same_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = SIZES[::5]
    rows = [row(m, n, k) for m in (16, 32, 64, 128) for n in (64, 128) for k in (32, 64)]
    many = [Sample(each, size, 2, exact(SMALL, size) * (1 + i / 8)) for i, each in enumerate(rows) for size in sizes]
    found = {}
    for processors in (1, 2):
        monkeypatch.setattr("os.cpu_count", lambda processors=processors: processors)
        found[processors] = fit(many, PROCESSORS)
    assert len(found[1].rates) == len(rows) and found[1] == found[2]


def test_a_row_of_few_sizes_has_no_rates() -> None:
    few = [sample for sample in samples(SIZES[:4]) if sample.row == LARGE]
    fewer = [sample for sample in samples(SIZES[:3]) if sample.row == SMALL]
    assert fit([*few, *fewer], PROCESSORS).rates.keys() == {LARGE}
    # The same size again is no other size.
    assert fit([*few, *fewer, *fewer], PROCESSORS).rates.keys() == {LARGE}


def test_nothing_measured_is_nothing_fitted() -> None:
    found = fit([], PROCESSORS)
    assert (found.rates, found.error, found.regret) == ({}, 0.0, 0.0)


def test_nothing_is_lost_where_the_model_is_exact() -> None:
    own = samples()
    assert {min(RATES, key=lambda row: exact(row, size)) for size in SIZES} == {SMALL, LARGE}
    assert fit(own, PROCESSORS).regret == 0.0


def test_what_the_model_does_not_know_is_lost() -> None:
    """A row that by chance is far faster at every second size: the model, of the others, does not choose it there."""
    slow = row(64, 64, 64)
    own = [sample for sample in samples() if sample.row == LARGE]
    for index, sample in enumerate(sorted(own, key=lambda sample: sample.sizes)):
        own.append(Sample(slow, sample.sizes, 2, sample.seconds * (0.5 if index % 2 else 2.0)))
    assert fit(own, PROCESSORS).regret > 0.2
