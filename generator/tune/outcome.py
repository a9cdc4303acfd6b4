"""The outcome of a trial, as typed values that can be sent between processes and written to a journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from generator.bench.problem import Shape
from generator.bench.routing import EVEN


@dataclass(frozen=True)
class Timed:
    """A kernel and a configuration, with the median seconds of a call."""

    kernel: str
    config: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Chosen(Timed):
    """The kernel and configuration that a contract's function runs, timed in the same rounds as the winner."""

    #: Whether the time is that of the function's own call, which copies an operand, runs a kernel of another contract,
    #: or has a configuration that was no candidate; else it is that of a launch of the configuration.
    called: bool = False


@dataclass(frozen=True)
class Failure:
    """One candidate, or torch's product, and why it has no time or a wrong result."""

    #: The kernel's name, or that of torch's product.
    kernel: str
    config: Mapping[str, int] | None
    reason: str
    #: Whether the reason is an honest "not for these sizes" rather than a fault.
    refused: bool = False


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
    runner_up: Timed | None = None
    #: Products of a batch, or groups; 0 if there is one product.
    batch: int = 0
    #: Whether the products are groups: of rows, of `m` each if all have as many, or of K, of `k` each.
    divided: bool = False
    #: How the rows, or K, were spread over the groups (`generator.bench.routing`).
    routing: str = EVEN
    #: Whether K is in groups.
    inner: bool = False

    @property
    def shape(self) -> Shape:
        if self.divided:
            m, k = (self.m, self.k * self.batch) if self.inner else (self.m * self.batch, self.k)
            return Shape(m, self.n, k, groups=self.batch, routing=self.routing, inner=self.inner)
        return Shape(self.m, self.n, self.k, batch=self.batch)

    @property
    def place(self) -> tuple[str, tuple[int, ...]]:
        """The contract and the sizes that it is the winner of; winners are sorted by them."""
        return self.contract, self.shape.sizes


@dataclass(frozen=True)
class Outcome:
    """A trial, done: all that was measured, and the winner where there is one."""

    #: Each configuration that was timed, with the seconds of its last pass.
    times: tuple[Timed, ...] = ()
    failures: tuple[Failure, ...] = ()
    winner: Winner | None = None
    #: The name of torch's product that was timed in the same rounds, if one was.
    library: str | None = None
    #: Why the device, or the process that used it, was lost.
    lost: str | None = None
    #: Whether every kernel of the contract was a candidate; otherwise only the times are used, not the winner.
    whole: bool = True
    #: The choice of the contract's function, if the trial asked for it.
    chosen: Chosen | None = None

    @property
    def regret(self) -> float | None:
        """By how much the choice takes longer than the fastest, as a share of the latter's time.

        None where one of the two has no time.
        """
        if self.chosen is None or self.winner is None:
            return None
        return max(0.0, self.chosen.seconds / self.winner.seconds - 1)

    @property
    def faults(self) -> tuple[Failure, ...]:
        """What was wrong, or raised what is no refusal."""
        return tuple(found for found in self.failures if not found.refused)


def plain(value: Outcome | Winner) -> dict[str, Any]:
    """The value as JSON. An outcome groups configurations by kernel, as lists of values of named parameters."""
    usual = {"batch": 0, "divided": False, "routing": EVEN, "inner": False}
    usual |= {"whole": True, "failures": (), "library": None, "lost": None, "chosen": None}
    found = {
        name: entry for name, entry in dataclasses.asdict(value).items() if name not in usual or usual[name] != entry
    }
    return {**found, "times": _tables(value.times)} if isinstance(value, Outcome) else found


def _tables(times: Iterable[Timed]) -> list[dict[str, Any]]:
    """Times by kernel and the names of its parameters, each row with its seconds at the end."""
    tables: dict[tuple[str, tuple[str, ...]], list[list[float]]] = {}
    for each in times:
        tables.setdefault((each.kernel, tuple(each.config)), []).append([*each.config.values(), each.seconds])
    return [{"kernel": kernel, "names": list(names), "rows": rows} for (kernel, names), rows in tables.items()]


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """An outcome as `plain` wrote it; raise KeyError, TypeError or ValueError for something else."""
    times = tuple(
        Timed(table["kernel"], dict(zip(table["names"], values, strict=True)), seconds)
        for table in data["times"]
        for *values, seconds in table["rows"]
    )
    failures = tuple(Failure(**entry) for entry in data.get("failures", ()))
    winner = None if data["winner"] is None else winner_of(data["winner"])
    chosen = Chosen(**data["chosen"]) if "chosen" in data else None
    return Outcome(times, failures, winner, data.get("library"), data.get("lost"), data.get("whole", True), chosen)


def winner_of(data: Mapping[str, Any]) -> Winner:
    """A winner as `plain` wrote it; raise KeyError or TypeError for something else."""
    rival = data["runner_up"]
    return Winner(**{**data, "runner_up": None if rival is None else Timed(**rival)})
