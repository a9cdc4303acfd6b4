"""How an extent is divided into groups, and what each group has of an operand or result."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from generator.plan.contract_call import Argument

if TYPE_CHECKING:
    import torch

#: The word that is meant where none is given.
EVEN = "uniform"

#: Word -> how likely a row is in each of so many groups, as a router of tokens to experts spreads rows.
ROUTING: Mapping[str, Callable[[int], list[float]]] = {
    EVEN: lambda groups: [1.0] * groups,
    # Zipf's law: the second most frequent group has half as many rows as the first, the third a third.
    "zipf": lambda groups: [1 / rank for rank in range(1, groups + 1)],
    "one": lambda groups: [1.0] + [0.0] * (groups - 1),
}


@cache
def ends(rows: int, groups: int, routing: str) -> tuple[int, ...]:
    """The end of each group's rows, the same every time: each row is drawn alone, groups are in no order of size."""
    draw = random.Random(f"{rows} rows in {groups} groups: {routing}")
    likely = ROUTING[routing](groups)
    draw.shuffle(likely)
    counts = [0] * groups
    for group in draw.choices(range(groups), likely, k=rows):
        counts[group] += 1
    return tuple(accumulate(counts))


def spans(ends: Iterable[int], total: int) -> list[tuple[int, int]]:
    """The first and the last but one element of each group: an end counts as between the one before it and `total`."""
    bounds, first = list[tuple[int, int]](), 0
    for end in ends:
        last = max(first, min(end, total))
        bounds.append((first, last))
        first = last
    return bounds


def extents(
    m: int, n: int, k: int, *, batch: int, groups: int = 0, divided: str | None = None, more: int = 0, places: int = 0
) -> dict[str, int]:
    """The sizes of a call by the names of `generator.plan.contract_call`.

    `divided` is the size that groups divide, "M" or "K"; A has `more` rows than the products, and C `places` more.
    """
    sizes = {"B": batch, "M": m, "N": n, "K": k}
    if divided:
        sizes |= {"G": groups, "T": sizes[divided], "R": sizes[divided] + more, "S": sizes[divided] + places}
    return sizes


def part_of(x: Argument, value: torch.Tensor | float, number: int, span: tuple[int, int]) -> torch.Tensor | float:
    """What a group has of an operand or result."""
    if isinstance(value, int | float):
        return value
    divided = [dimension for dimension, extent in enumerate(x.extents) if extent in ("T", "R")]
    if divided:
        return value.narrow(divided[0], span[0], span[1] - span[0])
    return value[number] if x.extents[:1] == ("G",) else value


def parts(
    arguments: Iterable[Argument], values: Mapping[str, torch.Tensor | float], ends: Iterable[int], total: int
) -> Iterator[tuple[int, tuple[int, int], dict[str, torch.Tensor | float]]]:
    """Each group by its number, with its span of `total` and what it has of the operands `values`, by name."""
    known = {x.name: x for x in arguments}
    for number, span in enumerate(spans(ends, total)):
        yield number, span, {name: part_of(known[name], value, number, span) for name, value in values.items()}
