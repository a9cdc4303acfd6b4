"""The choice of a configuration for groups of which only the device knows the sizes: none of them may make it slow.

The cost models predict for groups of equal size. A configuration is compared for several ways in which rows may be
spread over groups. Every family with groups contains this file.
"""

import math
from collections.abc import Sequence

#: The exponent of the worst ratio in `scores`: 0 is the choice for equal groups alone. With 0.1 a configuration that is
#: 2.6 times as slow as it could be for some other way may win 10 % for equal groups, and no more.
CAUTION = 0.1


def ways(groups: int, total: int) -> list[tuple[int, int]]:
    """How `total` rows may be spread: so many groups with so many rows each, equal groups first.

    They are in all groups, skewed, or in one group. By Zipf's law a row is in a group of as many rows, on average, as
    if about the square root of the groups had all of them.
    """
    groups = max(1, groups)
    return [(count, -(-total // count)) for count in dict.fromkeys((groups, math.isqrt(groups), 1))]


def scores(costs: Sequence[Sequence[float]]) -> list[float]:
    """For each configuration a number, of which the least is to be chosen; `costs` has its costs for each way.

    It is the cost for equal groups, which are the first of `costs`, times the power `CAUTION` of the worst ratio: of a
    cost to the least one for the same way.
    """
    least = [min(each) for each in costs]
    worst = (max(cost / best for cost, best in zip(own, least)) for own in zip(*costs))
    return [even * ratio**CAUTION for even, ratio in zip(costs[0], worst)]
