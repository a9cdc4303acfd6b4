"""The outcome of a trial, as typed values that can be sent between processes and written to a journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generator.bench.problem import Shape


@dataclass(frozen=True)
class Measurement:
    """One candidate, or the library, in one pass: the median seconds of a call, or why there is no time."""

    #: `quick`, `again` or `confirm`.
    stage: str
    #: The kernel's name, or that of the library's call.
    kernel: str
    config: Mapping[str, int] | None
    seconds: float | None = None
    rounds: int = 0
    failure: str | None = None
    #: Whether the failure is an honest "not for these sizes" rather than a fault.
    refused: bool = False


@dataclass(frozen=True)
class Rival:
    """A kernel and a row of its table, with the median seconds of a call."""

    kernel: str
    config: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Winner:
    """The fastest for one contract and size, confirmed in a second run beside the runner-up and torch's product.

    Times are median seconds of a call.
    """

    contract: str
    m: int
    n: int
    k: int
    kernel: str
    config: Mapping[str, int]
    seconds: float
    library_seconds: float | None = None
    runner_up: Rival | None = None
    #: Products of a batch; 0 if there is no batch.
    batch: int = 0

    @property
    def shape(self) -> Shape:
        return Shape(self.m, self.n, self.k, batch=self.batch)

    @property
    def place(self) -> tuple[str, tuple[int, ...]]:
        """The contract and the sizes that it is the winner of; winners are sorted by them."""
        return self.contract, self.shape.sizes


@dataclass(frozen=True)
class Outcome:
    """A trial, done: all that was measured, and the winner where there is one."""

    measurements: tuple[Measurement, ...] = ()
    winner: Winner | None = None
    #: Why the device, or the process that used it, was lost.
    lost: str | None = None
    #: Whether every kernel of the contract was a candidate; otherwise only the times are used, not the winner.
    whole: bool = True

    @property
    def faults(self) -> tuple[Measurement, ...]:
        """What was wrong, or raised what is no refusal."""
        return tuple(found for found in self.measurements if found.failure is not None and not found.refused)


def plain(value: Outcome | Winner) -> dict[str, Any]:
    """As JSON holds it."""
    usual = {"batch": 0, "whole": True}
    return {
        name: entry for name, entry in dataclasses.asdict(value).items() if name not in usual or usual[name] != entry
    }


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """An outcome as `plain` wrote it; raise KeyError or TypeError for something else."""
    measurements = tuple(Measurement(**entry) for entry in data["measurements"])
    winner = None if data["winner"] is None else winner_of(data["winner"])
    return Outcome(measurements, winner, data["lost"], data.get("whole", True))


def winner_of(data: Mapping[str, Any]) -> Winner:
    """A winner as `plain` wrote it; raise KeyError or TypeError for something else."""
    rival = data["runner_up"]
    return Winner(**{**data, "runner_up": None if rival is None else Rival(**rival)})
