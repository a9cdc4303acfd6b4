"""Statistics, and the order of the rounds."""

from __future__ import annotations

import pytest

from generator.bench import stats


def test_a_ratio_has_the_median_and_the_quartiles_of_the_rounds() -> None:
    assert stats.ratio([3.0, 1.0, 4.0, 1.0, 5.0], [1.0] * 5) == stats.Ratio(3.0, 1.0, 4.0)
    assert stats.ratio([2.0], [1.0]) == stats.Ratio(2.0, 2.0, 2.0)
    for peer in ([], [2.0, 3.0]):
        with pytest.raises(ValueError, match=r"data point|pair up"):
            stats.ratio(peer, [1.0] * (len(peer) // 2))
