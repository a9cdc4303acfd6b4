"""The choice of a configuration for groups of which only the device knows the sizes: none of them may make it slow.

A cost model predicts for groups of equal size, and so for several ways in which rows may be spread over groups. The
tuner has measurements of such ways. Every family with groups that compares kernels contains this file.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

#: For each configuration what is to be least, from the costs of all of them for each of several sizes.
Score: TypeAlias = Callable[[Sequence[Sequence[float]]], Sequence[float]]
#: The weight of the worst way in `scores`: 0 is the choice for equal groups alone. With 0.1 a configuration wins that
#: takes 8 % longer for equal groups, where the fastest one takes twice as long as it has to in another way.
CAUTION = 0.1


def ways(groups: int, total: int) -> list[tuple[int, int]]:
    """How `total` rows may be spread: so many groups with so many rows each, the equal groups of all first.

    They are in all groups, skewed, or in one group. By Zipf's law a row is in a group of as many rows, on average, as
    if about the square root of the groups had all of them.
    """
    groups = max(1, groups)
    return [(count, -(-total // count)) for count in dict.fromkeys((groups, math.isqrt(groups), 1))]


def scores(costs: Sequence[Sequence[float]]) -> Sequence[float]:
    """For each configuration a cost, of which the least is to be chosen, from its `costs` for each of the ways.

    The ratio of a cost is to the least one for the same way. The result is the cost for equal groups, the first of
    `costs`, times the power `CAUTION` of how many times as large the worst of the configuration's ratios is as that for
    equal groups: a weighted geometric mean of both.
    """
    if len(costs) == 1:
        return costs[0]
    least = [min(each) for each in costs]
    ratios = [[cost / best for cost, best in zip(own, least)] for own in zip(*costs)]
    return [cost * (max(own) / own[0]) ** CAUTION for cost, own in zip(costs[0], ratios)]


def slowdowns(costs: Sequence[Sequence[float]]) -> list[float]:
    """For each configuration how many times the least cost it has, in sum over the ways."""
    return [sum(each) for each in zip(*([cost / min(own) for cost in own] for own in costs))]


def of_groups(numbers: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The number of groups, M, N and K for each of the `ways`, from the sizes of a call by name."""
    groups, total, n = numbers["G"], numbers["T"], numbers["N"]
    if "K" in numbers:
        return [(count, m, n, numbers["K"]) for count, m in ways(min(total, groups), total)]
    return [(count, numbers["M"], n, k) for count, k in ways(groups, total)]
