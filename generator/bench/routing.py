"""How rows are spread over groups, as a router of tokens to experts spreads them: drawn, the same every time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from itertools import accumulate

#: The word that is meant where none is given.
EVEN = "uniform"

#: Word -> how likely a row is in each of so many groups.
ROUTING: Mapping[str, Callable[[int], list[float]]] = {
    EVEN: lambda groups: [1.0] * groups,
    # Zipf's law: the second most frequent group has half as many rows as the first, the third a third.
    "zipf": lambda groups: [1 / rank for rank in range(1, groups + 1)],
    "one": lambda groups: [1.0] + [0.0] * (groups - 1),
}


@cache
def ends(rows: int, groups: int, routing: str) -> tuple[int, ...]:
    """The end of each group's rows, of which every row is drawn by itself; groups are in no order of their sizes."""
    draw = random.Random(f"{rows} rows in {groups} groups: {routing}")
    likely = ROUTING[routing](groups)
    draw.shuffle(likely)
    counts = [0] * groups
    for group in draw.choices(range(groups), likely, k=rows):
        counts[group] += 1
    return tuple(accumulate(counts))
