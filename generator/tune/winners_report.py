"""A report of a file of winners: for each contract the mean and the smallest ratio to torch's product."""

from __future__ import annotations

from collections.abc import Sequence

from generator.bench.summary import geometric_mean, row
from generator.tune.outcome import ConfirmedWinner
from generator.tune.winners import Winners

#: Rows of C up to which a product reads its weights once, and little else.
_FEW_ROWS = 64


def render(found: Winners) -> str:
    """`found` as Markdown, with geometric means; the last lines give the error of the fitted cost model."""
    columns = ["contract", "sizes", "mean ratio", "M up to 64", "larger M", "smallest ratio", "under 0.93"]
    place = found.place
    lines = [
        f"{place.device}, torch {place.torch}, triton {place.triton}.",
        "",
        row(columns),
        row(["---"] * len(columns)),
    ]
    for contract in dict.fromkeys(winner.contract for winner in found.winners):
        lines.append(row(_cells(contract, [winner for winner in found.winners if winner.contract == contract])))
    error, regret = f"{found.fit.error:.1%}", f"{found.fit.regret:.1%}"
    lines += [
        "",
        f"The median error of the fitted cost model is {error}. At sizes that it was not fitted to, its choice takes",
        f"{regret} longer than the fastest measured configuration (geometric mean).",
    ]
    return "\n".join(lines) + "\n"


def _cells(contract: str, winners: Sequence[ConfirmedWinner]) -> list[str]:
    ratios = {
        winner.shape: winner.library_seconds / winner.seconds
        for winner in winners
        if winner.library_seconds is not None
    }
    few = [ratio for shape, ratio in ratios.items() if shape.m <= _FEW_ROWS]
    many = [ratio for shape, ratio in ratios.items() if shape.m > _FEW_ROWS]
    if not ratios:
        return [contract, str(len(winners)), *["—"] * 5]
    smallest = min(ratios, key=lambda key: ratios[key])
    means = [f"{geometric_mean(values):.3f}" if values else "—" for values in (list(ratios.values()), few, many)]
    under = sum(ratio < 0.93 for ratio in ratios.values())
    return [contract, str(len(winners)), *means, f"{ratios[smallest]:.3f} at {smallest}", str(under)]
