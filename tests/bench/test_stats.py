"""Statistics, and the order of the rounds."""

from __future__ import annotations

import pytest

from generator.bench import stats


def test_a_ratio_has_the_median_and_the_quartiles_of_the_rounds() -> None:
    assert stats.ratio([3.0, 1.0, 4.0, 1.0, 5.0], [1.0] * 5) == stats.Ratio(3.0, 1.0, 4.0)
    assert stats.ratio([2.0], [1.0]) == stats.Ratio(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="data point"):
        stats.ratio([], [])


def test_ratios_pair_rounds() -> None:
    assert stats.ratios([2.0, 3.0], [1.0, 6.0]) == [2.0, 0.5]
    with pytest.raises(ValueError, match="2 against 1"):
        stats.ratios([2.0, 3.0], [1.0])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_side_takes_each_place_equally_often(count: int) -> None:
    turns = [stats.rotation(count, turn) for turn in range(-2 * count, 2 * count)]
    assert all(sorted(order) == list(range(count)) for order in turns)
    for place in range(count):
        taken = [order[place] for order in turns]
        assert {taken.count(each) for each in range(count)} == {4}


def test_neighbours_change() -> None:
    pairs = {pair for turn in range(6) for pair in zip(stats.rotation(3, turn), stats.rotation(3, turn)[1:])}
    assert len(pairs) == 6


def test_rounded_keeps_significant_digits() -> None:
    assert stats.rounded(123.456789) == 123.46
    assert stats.rounded(0.000123456789, 3) == 0.000123
