"""The file of winners: reviewed data for one family on one device, of which a spec may say `tuned`.

One winner a line, sorted, the same bytes for the same winners: a difference between two versions reads as what changed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from generator.bench import measurements
from generator.language.errors import CallError
from generator.language.tuned_file import FORMAT
from generator.tune.outcome import Winner, plain, winner_of
from generator.tune.rate_fit import Fit, row_of


@dataclass(frozen=True)
class Place:
    """What all winners of a file were measured on."""

    device: str
    multiprocessors: int
    torch: str
    triton: str


@dataclass(frozen=True)
class Winners:
    """The contents of a file."""

    place: Place
    #: Kernel -> the digest of its code less its table, for every kernel that a winner or a runner-up names.
    kernels: Mapping[str, str] = field(default_factory=dict)
    winners: tuple[Winner, ...] = ()
    #: The rates of rows for sizes that were not measured.
    fit: Fit = field(default_factory=lambda: Fit({}, 0.0, 0.0))


def read(path: Path) -> Winners:
    """What `path` holds; raise `CallError` for a file that is something else, FileNotFoundError where there is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise CallError(f"{path} has format {data['format']!r}, this version reads {FORMAT}")
        return Winners(
            Place(data["device"], data["multiprocessors"], data["torch"], data["triton"]),
            dict(data["kernels"]),
            tuple(winner_of(entry) for entry in data["winners"]),
            Fit(
                {row_of(e["contract"], e["kernel"], e["config"]): tuple(e["rates"]) for e in data["rates"]},
                data["error"],
                data["regret"],
            ),
        )
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CallError(f"{path} is no file of winners ({type(error).__name__}: {error})") from None


def load(path: Path, place: Place) -> Winners:
    """What `path` holds of `place`, nothing where there is no file.

    Raises `CallError` for a file that is something else, or was measured elsewhere: no file mixes two places.
    """
    try:
        found = read(path)
    except FileNotFoundError:
        return Winners(place)
    if found.place != place:
        raise CallError(
            f"{path} was measured on {spelled(found.place)}, and this is {spelled(place)}; "
            "remove it, or name another with --tuned FILE"
        )
    return found


def spelled(place: Place) -> str:
    """A place in words."""
    return f"{place.device} with {place.multiprocessors} multiprocessors, torch {place.torch} and triton {place.triton}"


def merge(old: Winners, new: Iterable[Winner], fit: Fit, digests: Mapping[str, str]) -> tuple[Winners, list[Winner]]:
    """The winners of both, the new in the place of the old; and the old whose kernel is not what it was.

    `digests` are those of the kernels as they are now. A runner-up that is not what it was is forgotten. The rates of a
    contract are those of `fit` where that has any.
    """
    kept: dict[tuple[str, tuple[int, ...]], Winner] = {}
    stale = []
    for winner in old.winners:
        if not _current(winner.kernel, old.kernels, digests):
            stale.append(winner)
            continue
        rival = winner.runner_up
        if rival is not None and not _current(rival.kernel, old.kernels, digests):
            winner = replace(winner, runner_up=None)
        kept[winner.place] = winner
    kept |= {winner.place: winner for winner in new}
    ordered = tuple(kept[place] for place in sorted(kept))
    dropped = [winner for winner in stale if winner.place not in kept]
    anew = {contract for contract, _, _ in fit.rates}
    rates = {
        row: found
        for row, found in old.fit.rates.items()
        if row[0] not in anew and _current(row[1], old.kernels, digests)
    }
    fit = replace(fit if fit.rates else old.fit, rates={**rates, **fit.rates})
    return Winners(old.place, {name: digests[name] for name in _named(ordered, fit)}, ordered, fit), dropped


def without(found: Winners, left_out: Collection[Winner]) -> Winners:
    """`found` less some winners, and less the kernels that only they name."""
    kept = tuple(winner for winner in found.winners if winner not in left_out)
    return replace(found, winners=kept, kernels={name: found.kernels[name] for name in _named(kept, found.fit)})


def _named(winners: Iterable[Winner], fit: Fit) -> list[str]:
    """The kernels that winners, runners-up and rates name."""
    rivals = [rival for winner in winners for rival in (winner, winner.runner_up) if rival is not None]
    return sorted({rival.kernel for rival in rivals} | {kernel for _, kernel, _ in fit.rates})


def _current(kernel: str, then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return kernel in now and then.get(kernel) == now[kernel]


def dump(found: Winners) -> str:
    """The text of a file, one kernel and one winner a line."""
    place = found.place
    head = {
        "format": FORMAT,
        "device": place.device,
        "multiprocessors": place.multiprocessors,
        "torch": place.torch,
        "triton": place.triton,
        "error": found.fit.error,
        "regret": found.fit.regret,
    }
    kernels = [f"  {_json(name)}: {_json(digest)}" for name, digest in found.kernels.items()]
    winners = [f"  {_json(plain(winner))}" for winner in found.winners]
    lines = [f" {_json(key)}: {_json(value)}," for key, value in head.items()]
    rates = [
        f"  {_json({'contract': contract, 'kernel': kernel, 'config': dict(row), 'rates': list(values)})}"
        for (contract, kernel, row), values in sorted(found.fit.rates.items())
    ]
    lines += [' "kernels": {', ",\n".join(kernels), " },", ' "winners": [', ",\n".join(winners), " ],"]
    lines += [' "rates": [', ",\n".join(rates), " ]"]
    return "\n".join(["{", *(line for line in lines if line), "}"]) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def save(found: Winners, path: Path) -> None:
    """Write the file in one step."""
    measurements.put(path, dump(found))
