"""Statistics, and the order of the rounds."""

from __future__ import annotations

from itertools import pairwise

import pytest

from generator.bench import stats


def test_a_ratio_has_the_median_and_the_quartiles_of_the_rounds() -> None:
    assert stats.ratio([3.0, 1.0, 4.0, 1.0, 5.0], [1.0] * 5) == stats.Ratio(3.0, 1.0, 4.0)
    assert stats.ratio([2.0], [1.0]) == stats.Ratio(2.0, 2.0, 2.0)
    for peer in ([], [2.0, 3.0]):
        with pytest.raises(ValueError, match=r"data point|pair up"):
            stats.ratio(peer, [1.0] * (len(peer) // 2))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_side_takes_each_place_equally_often(count: int) -> None:
    turns = [stats.rotation(count, turn) for turn in range(-2 * count, 2 * count)]
    assert all(sorted(order) == list(range(count)) for order in turns)
    for place in range(count):
        taken = [order[place] for order in turns]
        assert {taken.count(each) for each in range(count)} == {4}
    neighbours = {pair for order in turns for pair in pairwise(order)}
    assert len(neighbours) == min(count * (count - 1), 2 * count), "each in both directions"
