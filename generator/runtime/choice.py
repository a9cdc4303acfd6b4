"""The choice of a configuration that does not depend on the number of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Row, figures_of


def least_slowdown(
    cost: Callable[..., float], typical_m: tuple[int, ...]
) -> Callable[[list[Row], tuple[int, ...], torch.device], Row]:
    """The choice that loses least on average over numbers of rows, for any number of rows of a call.

    So a row of the result has the same bits whatever other rows there are.
    """

    def choose(rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
        figures = figures_of(device)
        costs = [[cost(row, m, *sizes[-2:], *figures) for row in rows] for m in typical_m]
        slowdowns = [sum(each / min(of_m) for each, of_m in zip(of_row, costs)) for of_row in zip(*costs)]
        return rows[slowdowns.index(min(slowdowns))]

    return choose
