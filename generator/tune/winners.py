"""The file of winners: reviewed data for one family on one device, which a spec may name as `tuned`.

The file has one winner on each line, sorted; equal winners give equal bytes, so a diff shows what changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from generator.language import measured_values as values
from generator.language.errors import CallError
from generator.language.measured_values import Unfit
from generator.language.tuned_file import FORMAT, OF_TUNE, PLACE, SCHEMA, contents
from generator.tune.outcome import ConfirmedWinner, plain_winner, row_of, winner_of
from generator.tune.samples import RateFit

_REMEDY = ": name another file with --tuned FILE, or remove this one"


@dataclass(frozen=True)
class MeasurementSource:
    """The device and the versions that all winners of a file were measured with."""

    device: str
    multiprocessors: int
    torch: str
    triton: str


@dataclass(frozen=True)
class Winners:
    """The contents of a file."""

    place: MeasurementSource
    #: Kernel -> the digest of its code without its table, for every kernel that the file names.
    kernels: Mapping[str, str] = field(default_factory=dict)
    winners: tuple[ConfirmedWinner, ...] = ()
    #: The rates of configurations, for sizes that were not measured.
    fit: RateFit = field(default_factory=lambda: RateFit({}, 0.0, 0.0))

    @property
    def contracts(self) -> set[str]:
        """The contracts of which the file has measurements."""
        return {winner.contract for winner in self.winners} | {contract for contract, _, _ in self.fit.rates}


def read(path: Path) -> Winners:
    """The contents of `path`; raise FileNotFoundError if it does not exist, `CallError` if it is not such a file."""
    return values.read(path, SCHEMA, _winners, "a file of winners", remedy=_REMEDY)


def _winners(data: Any) -> Winners:
    """The contents of a file with the schema; raises `Unfit` for values that no file has."""
    data = contents(data)
    if data.get("aten"):
        raise Unfit("has rules of torch's products, which are in a file of their own", "aten")
    for name in OF_TUNE:
        if name not in data:
            raise Unfit(f"must contain {name!r}")
    for key in ("winners", "rates"):
        for index, entry in enumerate(data[key]):
            if key == "winners" and "seconds" not in entry:
                raise Unfit("the seconds are missing", key, index)
            for each in (entry, entry.get("runner_up") or entry):
                if each["kernel"] not in data["kernels"]:
                    raise Unfit(f"the digest of {each['kernel']} is not among the kernels", key, index)
    winners = tuple(winner_of(entry, "winners", index) for index, entry in enumerate(data["winners"]))
    places = set[tuple[str, tuple[int, ...]]]()
    for index, winner in enumerate(winners):
        if winner.place in places:
            raise Unfit("a winner of the same contract and sizes is above", "winners", index)
        places.add(winner.place)
    rates = {row_of(each["contract"], each["kernel"], each["config"]): tuple(each["rates"]) for each in data["rates"]}
    return Winners(
        MeasurementSource(*(data[name] for name in PLACE)),
        data["kernels"],
        winners,
        RateFit(rates, data["error"], data["regret"]),
    )


def load(path: Path, source: MeasurementSource) -> Winners:
    """The contents of `path`; no winners if it does not exist.

    Raises `CallError` if it is not a file of winners, or if it was not measured at `source`: no file mixes two of them.
    """
    try:
        measured = read(path)
    except FileNotFoundError:
        return Winners(source)
    if measured.place != source:
        raise CallError(
            f"{path} was measured on {spelled(measured.place)}, and this is {spelled(source)}; "
            "remove it, or name another with --tuned FILE"
        )
    return measured


def spelled(source: MeasurementSource) -> str:
    """A device and its versions in words."""
    versions = f"torch {source.torch} and triton {source.triton}"
    return f"{source.device} with {source.multiprocessors} multiprocessors, {versions}"


def merge(
    old: Winners, new: Iterable[ConfirmedWinner], fit: RateFit, digests: Mapping[str, str]
) -> tuple[Winners, list[ConfirmedWinner]]:
    """The winners of both, where new ones replace old ones of the same contract and sizes; and the old ones dropped.

    `digests` are those of the kernels as they are now. An old winner is dropped if its kernel has changed, and so is a
    runner-up. The rates of a contract are those of `fit` if that has any, else the old ones.
    """
    same = {name for name, digest in old.kernels.items() if digests.get(name) == digest}
    standing = (winner.standing(lambda row: row[1] in same) for winner in old.winners)
    merged = {winner.place: winner for winner in (*filter(None, standing), *new)}
    ordered = tuple(merged[key] for key in sorted(merged))
    dropped = [winner for winner in old.winners if winner.kernel not in same and winner.place not in merged]
    refitted = {contract for contract, _, _ in fit.rates}
    rates = {row: fitted for row, fitted in old.fit.rates.items() if row[0] not in refitted and row[1] in same}
    fit = replace(fit if fit.rates else old.fit, rates={**rates, **fit.rates})
    rivals = [rival for winner in ordered for rival in (winner, winner.runner_up) if rival is not None]
    named = sorted({rival.kernel for rival in rivals} | {kernel for _, kernel, _ in fit.rates})
    return Winners(old.place, {name: digests[name] for name in named}, ordered, fit), dropped


def dump(measured: Winners) -> str:
    """The text of a file, with one kernel or one winner on each line."""
    head = {"format": FORMAT, **asdict(measured.place), "error": measured.fit.error, "regret": measured.fit.regret}
    rates = [
        {"contract": contract, "kernel": kernel, "config": dict(row), "rates": list(rates)}
        for (contract, kernel, row), rates in sorted(measured.fit.rates.items())
    ]
    return by_lines(
        head, {"kernels": measured.kernels, "winners": list(map(plain_winner, measured.winners)), "rates": rates}
    )


def by_lines(head: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any] | Sequence[Any]]) -> str:
    """An object of JSON with each value of `head`, and each entry of the tables, on a line of its own."""
    parts = [f" {_json(name)}: {_json(value)}" for name, value in head.items()]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            begin, end, entries = "{", "}", [f"{_json(key)}: {_json(each)}" for key, each in table.items()]
        else:
            begin, end, entries = "[", "]", list(map(_json, table))
        lines = ",\n".join(f"  {entry}" for entry in entries)
        parts.append("\n".join(filter(None, (f' "{name}": {begin}', lines, f" {end}"))))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def text_of(measured: Winners, path: Path) -> str:
    """The text of a file, checked; raises `FileError` if no reader would accept it."""
    return values.checked(dump(measured), SCHEMA, _winners, path)
