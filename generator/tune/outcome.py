"""The outcome of a trial, as typed values that can be sent between processes and written to a journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from generator.language import measured_values as values
from generator.language.measured_values import Unfit
from generator.language.tuned_file import TIMED, WINNER, check_winner
from generator.problem.grouping import EVEN
from generator.problem.product import Shape

_Timed = TypeVar("_Timed", bound="Timed")
#: M, N and K, after the number of products if there is a batch.
Sizes = tuple[int, ...]
#: A contract and the sizes of a call.
Place = tuple[str, Sizes]
#: A configuration: contract, kernel, and the entry of `CONFIGS` as sorted pairs.
Row = tuple[str, str, tuple[tuple[str, int], ...]]


def row_of(contract: str, kernel: str, config: Mapping[str, Any]) -> Row:
    """The key of a configuration in samples and rates."""
    return contract, kernel, tuple(sorted(config.items()))


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
class TrialFailure:
    """One candidate, or torch's product, and why it has no time or a wrong result."""

    #: The kernel's name, or that of torch's product.
    kernel: str
    config: Mapping[str, int] | None
    reason: str
    #: Whether the reason is an honest "not for these sizes" rather than a fault.
    refused: bool = False


@dataclass(frozen=True)
class ConfirmedWinner:
    """The fastest for one contract and size, confirmed in a second run beside the runner-up and torch's product.

    Times are median seconds of a call.
    """

    contract: str
    shape: Shape
    kernel: str
    config: Mapping[str, int]
    seconds: float
    library_seconds: float | None = None
    runner_up: Timed | None = None

    @property
    def routing(self) -> str:
        """How rows, or K, were spread over groups; evenly, if there are none."""
        return self.shape.routing or EVEN

    @property
    def place(self) -> Place:
        """The contract and the sizes that it is the winner of; winners are sorted by them."""
        return self.contract, self.shape.sizes

    @property
    def row(self) -> Row:
        return row_of(self.contract, self.kernel, self.config)

    def standing(self, stands: Callable[[Row], bool]) -> ConfirmedWinner | None:
        """The winner, without a runner-up that does not stand; None if it does not stand itself."""
        rival = self.runner_up
        beaten = rival is not None and not stands(row_of(self.contract, rival.kernel, rival.config))
        return (dataclasses.replace(self, runner_up=None) if beaten else self) if stands(self.row) else None


@dataclass(frozen=True)
class TrialOutcome:
    """A trial, done: all that was measured, and the winner where there is one."""

    #: Each configuration that was timed, with the seconds of its last pass.
    times: tuple[Timed, ...] = ()
    failures: tuple[TrialFailure, ...] = ()
    winner: ConfirmedWinner | None = None
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
    def faults(self) -> tuple[TrialFailure, ...]:
        """What was wrong, or raised what is no refusal."""
        return tuple(failure for failure in self.failures if not failure.refused)


def plain(outcome: TrialOutcome) -> dict[str, Any]:
    """The outcome as JSON. It groups configurations by kernel, as lists of values of named parameters."""
    usual = {"whole": True, "failures": (), "library": None, "lost": None, "chosen": None}
    entries = dataclasses.asdict(outcome).items()
    fields = {name: entry for name, entry in entries if name not in usual or usual[name] != entry}
    return {**fields, "times": _tables(outcome.times), "winner": outcome.winner and plain_winner(outcome.winner)}


def plain_winner(winner: ConfirmedWinner) -> dict[str, Any]:
    """The winner as JSON: of groups M, or K, is that of one, and their number is the `batch`."""
    fields, shape = dataclasses.asdict(winner), winner.shape
    *products, m, n, k = shape.sizes
    how = {"batch": sum(products), "divided": bool(shape.groups), "routing": winner.routing, "inner": shape.inner}
    usual = {"batch": 0, "divided": False, "routing": EVEN, "inner": False}
    sizes = {"contract": fields.pop("contract"), "m": m, "n": n, "k": k}
    del fields["shape"]
    return {**sizes, **fields, **{name: word for name, word in how.items() if word != usual[name]}}


def _tables(times: Iterable[Timed]) -> list[dict[str, Any]]:
    """Times by kernel and the names of its parameters, each row with its seconds at the end."""
    tables: dict[tuple[str, tuple[str, ...]], list[list[float]]] = {}
    for each in times:
        tables.setdefault((each.kernel, tuple(each.config)), []).append([*each.config.values(), each.seconds])
    return [{"kernel": kernel, "names": list(names), "rows": rows} for (kernel, names), rows in tables.items()]


#: The schema of `Chosen`.
CHOSEN = values.record(Chosen, {**TIMED["properties"], "called": values.SWITCH})
_FAILURE = values.record(
    TrialFailure,
    {
        "kernel": values.TEXT,
        "config": values.or_null(values.CONFIG),
        "reason": values.TEXT,
        "refused": values.SWITCH,
    },
)
#: Of a row its last entry is the seconds, and the others are those of a configuration, as `_timed` checks.
_ROW = {"type": "array", "items": {**values.ABOVE_0}, "minItems": 1}
_TABLE = values.mapping({"kernel": values.NAME, "names": values.entries(values.NAME), "rows": values.entries(_ROW, 1)})
#: The properties of an outcome in the schema of what has one.
OUTCOME = {
    "times": values.entries(_TABLE),
    "winner": values.or_null(WINNER),
    "failures": values.entries(_FAILURE),
    "library": values.or_null(values.TEXT),
    "lost": values.or_null(values.TEXT),
    "whole": values.SWITCH,
    "chosen": values.or_null(CHOSEN),
}
#: Those that may be missing, because they have a usual value.
USUAL = tuple(name for name in OUTCOME if name not in ("times", "winner"))


def outcome_of(data: Mapping[str, Any]) -> TrialOutcome:
    """An outcome as `plain` wrote it, with the schema `OUTCOME`; raises `Unfit` for values that no outcome has."""
    times = tuple(timed for index, table in enumerate(data["times"]) for timed in _timed(table, index))
    if len({(each.kernel, *sorted(each.config.items())) for each in times}) < len(times):
        raise Unfit("a configuration appears twice", "times")
    for index, entry in enumerate(data.get("failures", ())):
        values.configuration(entry["config"] or {}, "failures", index, "config")
    failures = tuple(TrialFailure(**entry) for entry in data.get("failures", ()))
    winner = None if data["winner"] is None else winner_of(data["winner"], "winner")
    chosen = None if data.get("chosen") is None else timed_of(Chosen, data["chosen"], "chosen")
    contracts = {each.kernel.partition("__")[0] for each in times}
    if len(contracts) > 1 or (winner is not None and times and winner.contract not in contracts):
        raise Unfit("the times are of several contracts, or not of the winner's", "times")
    return TrialOutcome(times, failures, winner, data.get("library"), data.get("lost"), data.get("whole", True), chosen)


def _timed(table: Mapping[str, Any], index: int) -> Iterable[Timed]:
    """The times of a table, each row with as many values as there are names, and the seconds behind them."""
    kernel, names = table["kernel"], table["names"]
    values.of_contract(kernel, kernel.partition("__")[0], "times", index, "kernel")
    if len(set(names)) < len(names):
        raise Unfit("a name appears twice", "times", index, "names")
    for number, (*config, seconds) in enumerate(table["rows"]):
        steps = "times", index, "rows", number
        if len(config) != len(names):
            raise Unfit(f"there are {len(config) + 1} values; expected {len(names)} and the seconds", *steps)
        wrong = [f"{value!r} is not a value of {name}" for name, value in zip(names, config) if not _whole(value)]
        if wrong or not _is_time(seconds):
            raise Unfit(wrong[0] if wrong else f"{seconds!r} are not the seconds of a call", *steps)
        config_read = dict(zip(names, config))
        values.configuration(config_read, *steps)
        yield Timed(kernel, config_read, seconds)


def _whole(value: object) -> bool:
    return type(value) is int and 1 <= value <= values.LARGEST_VALUE


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and values.SECONDS["minimum"] <= value <= values.SECONDS["maximum"]


def winner_of(data: Mapping[str, Any], *steps: str | int) -> ConfirmedWinner:
    """A winner from `plain_winner`, with the schema `WINNER`; raises `Unfit`, with `steps` to it, if there is none."""
    check_winner(data, *steps)
    given = {"batch": 0, "divided": False, "routing": EVEN, "inner": False, **data}
    m, n, k, batch, divided, routing, inner = map(given.pop, ("m", "n", "k", "batch", "divided", "routing", "inner"))
    if divided:
        m, k = (m, k * batch) if inner else (m * batch, k)
        shape = Shape(m, n, k, groups=batch, routing=routing, inner=inner)
    else:
        shape = Shape(m, n, k, batch=batch)
    fault = shape.fault
    if not divided and routing != EVEN:
        fault = f"the routing is {routing!r}, and only groups have one"
    if fault is not None:
        raise Unfit(fault, *steps)
    rival = given.pop("runner_up", None)
    return ConfirmedWinner(**given, shape=shape, runner_up=None if rival is None else Timed(**rival))


def timed_of(of: type[_Timed], data: Mapping[str, Any], *steps: str | int) -> _Timed:
    """A time with the schema `TIMED`, or `CHOSEN`; raises `Unfit`, with `steps` to it, for a wrong configuration."""
    values.configuration(data["config"], *steps, "config")
    return of(**data)
