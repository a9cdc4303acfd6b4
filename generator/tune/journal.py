"""The journal of measurements: one JSON line an outcome, written as it comes, read again by the next run.

A run that ends in good order leaves the file without what later outcomes replaced.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from generator.bench import measurements
from generator.language.errors import CallError
from generator.tune.outcome import Outcome, outcome_of, plain
from generator.tune.winners import Place

#: The layout of a line; a reader refuses one that it does not know.
FORMAT = 2


@dataclass(frozen=True)
class _Kept:
    """An outcome, what it is of, where it was measured, and the digests of the code of the kernels that were."""

    about: str
    outcome: Outcome
    place: Place
    kernels: Mapping[str, str]

    def line(self, key: str) -> str:
        head = {"format": FORMAT, "key": key, "about": self.about, "place": dataclasses.asdict(self.place)}
        data = {**head, "kernels": dict(self.kernels), **plain(self.outcome)}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"

    def beside(self, newer: _Kept) -> _Kept | None:
        """What stands of it beside a newer outcome; None if nothing does.

        Of the same problem on the same device, nothing does that was measured with other versions. If a kernel's code
        was another, what stands is the kernels that were not measured again.
        """
        if (self.about, self.place.device) != (newer.about, newer.place.device):
            return self
        if self.place != newer.place:
            return None
        if all(newer.kernels.get(name, digest) == digest for name, digest in self.kernels.items()):
            return self
        kernels = {name: digest for name, digest in self.kernels.items() if name not in newer.kernels}
        return replace(self, outcome=_without(self.outcome, newer.kernels), kernels=kernels) if kernels else None


class Journal:
    """The outcomes in a file by key; used as a context, it holds the file open to append.

    A last line that was cut off when a run was killed is dropped, and the next outcome takes its place. Raises
    `CallError` for a file that is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, _Kept] = {}
        #: Where the last whole line ends.
        self._end = 0
        self._file: IO[bytes] | None = None
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise CallError(f"--journal: {path} cannot be read: {error.strerror}") from None
        whole, newline, _ = text.rpartition(b"\n")
        self._end = len(whole) + len(newline)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._read(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise CallError(f"--journal: line {number} of {path} is no outcome ({reason})") from None

    def _read(self, data: Mapping[str, Any]) -> None:
        found = data.get("format", 1)
        if found != FORMAT:
            raise CallError(
                f"--journal: {self.path} has format {found!r}, this version reads {FORMAT}: name another file, or "
                "remove this one, and what it held is measured again"
            )
        outcome = outcome_of(data)
        self._put(data["key"], _Kept(data["about"], outcome, Place(**data["place"]), data["kernels"]))

    def _put(self, key: str, new: _Kept) -> None:
        """Take in an outcome; of older ones, what it replaces goes."""
        standing = {other: kept.beside(new) for other, kept in self._kept.items() if other != key}
        self._kept = {other: kept for other, kept in standing.items() if kept is not None}
        self._kept[key] = new

    def __enter__(self) -> Journal:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab")
        self._file.truncate(self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is None:
            # In one step, and only of what stands: before, each line was in the file as soon as it was measured.
            text = "".join(kept.line(key) for key, kept in self._kept.items())
            if text.encode() != self.path.read_bytes():
                measurements.put(self.path, text)

    def append(self, key: str, about: str, outcome: Outcome, place: Place, kernels: Mapping[str, str]) -> None:
        """Keep an outcome, in the file before this returns; `about` names its family, contract and shape."""
        assert self._file is not None
        kept = _Kept(about, outcome, place, kernels)
        self._file.write(kept.line(key).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._put(key, kept)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """What it holds, by key."""
        return {key: kept.outcome for key, kept in self._kept.items()}

    @property
    def places(self) -> set[Place]:
        """Where what it holds was measured."""
        return {kept.place for kept in self._kept.values()}

    def standing(self, place: Place, family: str, digests: Mapping[str, str]) -> Iterator[Outcome]:
        """What was measured at `place`, whichever call asked for it, of a family's kernels that are what they were.

        An outcome with kernels that have changed since is one of the others only. One of another family, which has some
        of these kernels, is not `whole`.
        """
        for kept in self._kept.values():
            changed = {name for name, digest in kept.kernels.items() if digests.get(name) != digest}
            if kept.place == place:
                outcome = _without(kept.outcome, changed) if changed else kept.outcome
                yield outcome if kept.about.startswith(f"{family}/") else replace(outcome, whole=False)


def _without(outcome: Outcome, kernels: Collection[str]) -> Outcome:
    """An outcome as if kernels had not been measured."""
    times = tuple(timed for timed in outcome.times if timed.kernel not in kernels)
    winner = outcome.winner
    if winner is not None and winner.kernel in kernels:
        winner = None
    elif winner is not None and winner.runner_up is not None and winner.runner_up.kernel in kernels:
        winner = replace(winner, runner_up=None)
    return replace(outcome, times=times, winner=winner, whole=False)
