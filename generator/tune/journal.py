"""The journal of measurements: one JSON line an outcome, written as it comes, read again by the next run."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from generator.language.errors import CallError
from generator.tune.outcome import Outcome, outcome_of, plain
from generator.tune.winners import Place


@dataclass(frozen=True)
class _Kept:
    """An outcome, where it was measured, and the digests of the code of the kernels that were."""

    outcome: Outcome
    place: Place
    kernels: Mapping[str, str]


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
                data = json.loads(line)
                self._kept[data["key"]] = _Kept(outcome_of(data), Place(**data["place"]), data["kernels"])
            except (ValueError, KeyError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise CallError(f"--journal: line {number} of {path} is no outcome ({reason})") from None

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

    def append(self, key: str, about: str, outcome: Outcome, place: Place, kernels: Mapping[str, str]) -> None:
        """Keep an outcome, in the file before this returns; `about` says in the line what it is of."""
        assert self._file is not None
        head = {"key": key, "about": about, "place": dataclasses.asdict(place), "kernels": dict(kernels)}
        line = json.dumps({**head, **plain(outcome)}, ensure_ascii=False, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._kept[key] = _Kept(outcome, place, kernels)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """What it holds, by key."""
        return {key: kept.outcome for key, kept in self._kept.items()}

    @property
    def places(self) -> set[Place]:
        """Where what it holds was measured."""
        return {kept.place for kept in self._kept.values()}

    def standing(self, place: Place, digests: Mapping[str, str]) -> Iterator[Outcome]:
        """What was measured at `place`, whichever call asked for it, of kernels that all are what they were."""
        for kept in self._kept.values():
            if kept.place == place and all(digests.get(name) == digest for name, digest in kept.kernels.items()):
                yield kept.outcome
