"""The journal of measurements: one JSON line an outcome, written as it comes, read again by the next run.

Several runs may write to one journal at the same time. Each appends while it alone holds the lock of the journal's
folder, and first reads what others have written since. Nothing is taken out: of equal keys the last line counts, and
what was measured with other versions, or of code that has changed since, is passed over.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from generator.files.checked_json import Schema, Wrong
from generator.files.reading import FileError, read_bytes
from generator.files.updating import alone, make_folder, put
from generator.language import measured_values as values
from generator.language.errors import CallError
from generator.language.measured_values import Unfit
from generator.language.tuned_file import PLACE
from generator.tune.outcome import OUTCOME, USUAL, TrialOutcome, outcome_of, plain
from generator.tune.winners import MeasurementSource

#: The layout of a line; a reader refuses one that it does not know.
FORMAT = 2
#: What every line begins with.
_BEGIN = b'{"format":'

LINE = Schema(
    values.mapping(
        {
            "format": values.exactly(FORMAT),
            "key": values.TEXT,
            "about": values.TEXT,
            "place": values.record(MeasurementSource, PLACE),
            "kernels": values.by_name(values.TEXT),
            **OUTCOME,
        },
        optional=USUAL,
    )
)


@dataclass(frozen=True)
class JournalEntry:
    """An outcome, what it is of, where it was measured, and the digests of the code of the kernels that were."""

    about: str
    outcome: TrialOutcome
    place: MeasurementSource
    kernels: Mapping[str, str]

    def line(self, key: str) -> str:
        head = {"format": FORMAT, "key": key, "about": self.about, "place": dataclasses.asdict(self.place)}
        data = {**head, "kernels": dict(self.kernels), **plain(self.outcome)}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def _entry(data: Any) -> tuple[str, JournalEntry]:
    """The key and the outcome of a line with the schema; raises `Unfit` for values that no line has."""
    outcome, kernels = outcome_of(data), data["kernels"]
    named = {each.kernel for each in (*outcome.times, outcome.winner, outcome.chosen) if each is not None}
    if outcome.winner is not None and outcome.winner.runner_up is not None:
        named.add(outcome.winner.runner_up.kernel)
    # The chosen kernel may be of another contract.
    lacking = sorted(named - kernels.keys() - {each.kernel for each in (outcome.chosen,) if each is not None})
    if lacking:
        raise Unfit(f"the digest of {lacking[0]} is missing", "kernels")
    return data["key"], JournalEntry(data["about"], outcome, MeasurementSource(**data["place"]), kernels)


class Journal:
    """The outcomes in a file by key; used as a context, outcomes can be appended.

    A last line that was cut off when a run was killed is ignored, and the next outcome takes its place. A file `.bz2`
    is read alone. Raises `CallError`, which begins with the option that names it, for a file that is something else.
    """

    def __init__(self, path: Path, option: str = "--journal") -> None:
        self.path, self._option = path, option
        #: The outcomes by key, each with what it is of.
        self.kept: dict[str, JournalEntry] = {}
        #: The folder that is locked: that of the file, which `path` may be a link to.
        self._folder = Path(os.path.realpath(path)).parent
        #: What of the file has been read: its bytes up to the end of the last whole line.
        self._read = b""
        self.refresh()

    def refresh(self) -> bytes:
        """Read what other runs have written since; the bytes after the last whole line are returned.

        Raises `CallError` if the file is something else now.
        """
        try:
            data = read_bytes(self.path)
        except FileNotFoundError:
            data = b""
        except FileError as error:
            raise CallError(f"{self._option}: {error}") from None
        whole = data[: data.rfind(b"\n") + 1]
        if not whole.startswith(self._read):
            # Somebody has edited the file.
            self.kept, self._read = {}, b""
        number = self._read.count(b"\n")
        for line in whole[len(self._read) :].split(b"\n")[:-1]:
            number += 1
            key, entry = self._parsed(line, number)
            # What was measured last is last.
            self.kept.pop(key, None)
            self.kept[key] = entry
        rest = data[len(whole) :]
        if rest[: len(_BEGIN)] != _BEGIN[: len(rest)]:
            raise self._wrong("the end of the file is no part of a line", number + 1)
        self._read = whole
        return rest

    def _parsed(self, line: bytes, number: int) -> tuple[str, JournalEntry]:
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            return values.parsed(text, LINE, _entry, number)
        except UnicodeDecodeError:
            reason = "is not UTF-8 text"
        except Wrong as error:
            reason = error.reason + (values.MEASURE_AGAIN if isinstance(error, values.OtherFormat) else "")
        raise self._wrong(reason, number)

    def _wrong(self, reason: str, number: int) -> CallError:
        return CallError(f"{self._option}: {self.path}:{number}: is no outcome: {reason}")

    def __enter__(self) -> Journal:
        if self.path.suffix == ".bz2":
            raise CallError(f"--journal: {self.path}: is packed and cannot be added to; unpack it: bunzip2 {self.path}")
        make_folder(self._folder)
        with alone(self._folder):
            if not self.path.exists():
                put(self.path, b"")
        return self

    def __exit__(self, *_: object) -> None:
        """Everything is in the file."""

    def append(
        self, key: str, about: str, outcome: TrialOutcome, source: MeasurementSource, kernels: Mapping[str, str]
    ) -> None:
        """Keep an outcome, in the file before this returns; `about` names its family, contract and shape.

        Outcomes that other runs have appended are read too. Raises `FileError` if the file cannot be written.
        """
        line = values.checked(JournalEntry(about, outcome, source, kernels).line(key), LINE, _entry, self.path).encode()
        with alone(self._folder):
            rest = self.refresh()
            try:
                with self.path.open("ab") as file:
                    if rest:
                        # While this run holds the lock, no other is within a line: it is of one that was killed.
                        file.truncate(len(self._read))
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise FileError(self.path, f"cannot be written: {error.strerror or error}") from None
            self.refresh()

    @property
    def outcomes(self) -> dict[str, TrialOutcome]:
        """What it holds, by key."""
        return {key: kept.outcome for key, kept in self.kept.items()}

    @property
    def places(self) -> list[MeasurementSource]:
        """Where what it holds was measured, the place of the last outcome last."""
        return list(dict.fromkeys(kept.place for kept in reversed(self.kept.values())))[::-1]

    def standing(self, source: MeasurementSource, family: str, digests: Mapping[str, str]) -> Iterator[TrialOutcome]:
        """What was measured at `source`, whichever call asked for it, of a family's kernels that are what they were.

        An outcome with kernels that have changed since is one of the others only. One of another family, which has some
        of these kernels, is not `whole`.
        """
        for kept in self.kept.values():
            changed = {name for name, digest in kept.kernels.items() if digests.get(name) != digest}
            if kept.place == source:
                outcome = _without(kept.outcome, changed) if changed else kept.outcome
                yield outcome if kept.about.startswith(f"{family}/") else replace(outcome, whole=False)


def _without(outcome: TrialOutcome, kernels: Collection[str]) -> TrialOutcome:
    """An outcome as if kernels had not been measured."""
    times = tuple(timed for timed in outcome.times if timed.kernel not in kernels)
    winner = outcome.winner and outcome.winner.standing(lambda row: row[1] not in kernels)
    return replace(outcome, times=times, winner=winner, whole=False)
