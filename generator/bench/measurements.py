"""What was measured, as it is kept: typed records, a JSON file rewritten whole as comparisons are done.

The file holds no samples: of the times of a side their median, mean and deviation, and of two sides that a table
compares the median and the quartiles of the ratios of their times in the same rounds.

A record's key is a digest of everything that its times depend on: kernels, problem, device, versions, method. A run
that finds the key has nothing left to do; another measurement of the same case and shape on the same device and
versions takes the older one's place. There is no date, path or host in the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generator.bench import stats
from generator.files.checked_json import Schema
from generator.files.updating import update
from generator.language import measured_values as values
from generator.language.built_in import chain_of
from generator.language.dtypes import ACCUMULATORS, PRECISIONS, RESULTS
from generator.language.measured_values import Unfit
from generator.language.model import Dtype, Layout
from generator.language.vocabulary import LAYOUT_LETTERS
from generator.problem.product import SHAPE, Problem, shape_of

FORMAT = 2

#: The name of the ceiling that is a bandwidth; the others are those of the types that they multiply.
COPY = "copy"

#: What is timed of a side: on the device without the host, from the call of an idle device to the end with the host
#: included, and until the host is free again.
TIMED = ("gpu", "call", "host")

Environment = Mapping[str, str | int]


@dataclass(frozen=True)
class Timing:
    """What the samples of one side come to, in microseconds a call: one sample a round, of `calls` calls each."""

    method: str
    calls: int
    rounds: int
    median: float
    mean: float
    #: Standard deviation with n - 1 in the denominator.
    deviation: float

    @staticmethod
    def of(method: str, calls: int, samples: Sequence[float]) -> Timing:
        """The statistics of samples in microseconds; raise ValueError for none."""
        deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
        moments = statistics.median(samples), statistics.fmean(samples), deviation
        kept = (stats.rounded(value, stats.STATISTIC_DIGITS) for value in moments)
        return Timing(method, calls, len(samples), *kept)


@dataclass(frozen=True)
class Side:
    """One implementation in a comparison, or the peer."""

    label: str
    #: `kernel`, `contract` or `peer`.
    role: str
    name: str
    family: str | None = None
    digest: str | None = None
    #: The row of CONFIGS that ran, with its index; None where the launch did not show one.
    config: Mapping[str, int] | None = None
    index: int | None = None
    #: Whether the row was asked for, rather than selected by the kernel.
    forced: bool = False
    #: The times, as `TIMED` says.
    gpu: Timing | None = None
    call: Timing | None = None
    host: Timing | None = None
    #: Relative error against float64, and the most that is right.
    error: float | None = None
    tolerance: float | None = None
    #: Why there are no times: a wrong result, or a refusal.
    failure: str | None = None
    #: Whether the failure is an honest "not for these sizes" rather than a fault.
    refused: bool = False
    #: The kernel that a contract's function ran; `config` is then its configuration.
    kernel: str | None = None
    #: The ratio of another side's time to this one's for each word of `TIMED`, by the other's place in the record.
    ratios: Mapping[int, Mapping[str, stats.Ratio]] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonRecord:
    """One comparison, measured."""

    key: str
    case: str
    title: str
    problem: Problem
    environment: str
    method: Mapping[str, str | int]
    sides: tuple[Side, ...]

    def ratio(self, peer: Side | None, side: Side, timed: str) -> stats.Ratio | None:
        """A peer's time over a side's; None where there is no peer, or either has no right result, or both are one."""
        index = next((i for i, own in enumerate(self.sides) if own is peer), -1)
        return side.ratios.get(index, {}).get(timed)

    @property
    def place(self) -> tuple[object, ...]:
        """What only one record of a file is of."""
        return self.case, self.problem, self.environment, self.method["configs"], self.method["peer"]

    @property
    def peer(self) -> Side | None:
        """The first peer, which the table's ratios are to."""
        return next(iter(self.peers.values()), None)

    @property
    def peers(self) -> dict[str, Side]:
        """The peers by the words that asked for them, in that order."""
        sides = [side for side in self.sides if side.role == "peer"]
        return dict(zip(str(self.method["peer"]).split(","), sides))

    @property
    def faults(self) -> tuple[Side, ...]:
        """The sides that went wrong."""
        return tuple(side for side in self.sides if side.failure is not None and not side.refused)


_TIMING = values.record(
    Timing,
    {
        "method": values.TEXT,
        "calls": values.SIZE,
        "rounds": values.SIZE,
        "median": values.ABOVE_0,
        "mean": values.ABOVE_0,
        "deviation": values.SHARE,
    },
)
_RATIO = {"type": "array", "items": values.ABOVE_0, "minItems": 3, "maxItems": 3}
_RATIOS = {
    "type": "object",
    "patternProperties": {"^(0|[1-9][0-9]{0,3})$": values.mapping(dict.fromkeys(TIMED, _RATIO), optional=TIMED)},
    "additionalProperties": False,
}
_SIDE = values.mapping(
    {
        "label": values.TEXT,
        "role": {"type": "string", "enum": ["kernel", "contract", "peer"]},
        "name": values.TEXT,
        **dict.fromkeys(("family", "digest", "failure", "kernel"), values.TEXT),
        "config": values.CONFIG,
        "index": values.COUNT,
        **dict.fromkeys(("forced", "refused"), values.SWITCH),
        **dict.fromkeys(TIMED, _TIMING),
        # The error of a wrong result is of any size.
        **dict.fromkeys(("error", "tolerance"), values.ERROR),
        "ratios": _RATIOS,
    },
    optional=[each.name for each in dataclasses.fields(Side)[3:]],
)
_WORDS = {"type": "object", "additionalProperties": {**values.TEXT, "type": ["string", "integer"]}}
#: The words of a type that `Dtype` does not check.
_WORDS_OF_TYPE = {"acc": ACCUMULATORS.values(), "out": [RESULTS], "precision": [(None,), *PRECISIONS.values()]}
_DTYPE = {
    "type": "object",
    "properties": {name: {"enum": [*dict.fromkeys(itertools.chain(*words))]} for name, words in _WORDS_OF_TYPE.items()},
}
_RECORD = values.mapping(
    {
        **dict.fromkeys(("key", "case", "title"), values.TEXT),
        "shape": SHAPE,
        "layout": {"type": "string", "pattern": f"^[{''.join(LAYOUT_LETTERS)}]{{3}}$"},
        "dtype": _DTYPE,
        "epilogue": {"type": "array"},
        "symmetric": {"type": "boolean"},
        "environment": values.TEXT,
        "method": {
            **_WORDS,
            "properties": dict.fromkeys(("configs", "peer"), values.TEXT),
            "required": ["configs", "peer"],
        },
        "sides": values.entries(_SIDE),
    },
    optional=("symmetric",),
)
SCHEMA = Schema(
    values.mapping(
        {
            "format": values.exactly(FORMAT),
            "environments": {"type": "object", "additionalProperties": _WORDS},
            "ceilings": {
                "type": "object",
                "additionalProperties": {"type": "object", "additionalProperties": values.ABOVE_0},
            },
            "records": values.entries(_RECORD),
        }
    )
)


@dataclass
class BenchmarkResults:
    """The contents of a results file."""

    environments: dict[str, Environment] = field(default_factory=dict)
    #: By environment and name what the device reaches at best, in operations or bytes a second.
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    records: list[ComparisonRecord] = field(default_factory=list)

    def find(self, key: str) -> ComparisonRecord | None:
        """The record with `key`, if it was measured without a fault."""
        return next((record for record in self.records if record.key == key and not record.faults), None)

    def of(self, records: Iterable[ComparisonRecord]) -> BenchmarkResults:
        """The same results with these records only."""
        return dataclasses.replace(self, records=list(records))

    @property
    def by_environment(self) -> dict[str, BenchmarkResults]:
        """The results of each environment that has records, in the order of these."""
        names = dict.fromkeys(record.environment for record in self.records)
        return {name: self.of(record for record in self.records if record.environment == name) for name in names}

    def device(self, environment: str) -> str:
        """The name of an environment's device."""
        return str(self.environments.get(environment, {}).get("device", "unknown device"))

    def put(self, record: ComparisonRecord) -> None:
        """Add a record in the place of an older one of the same case, problem, configurations and environment."""
        others = [other for other in self.records if other.place != record.place]
        at = next((index for index, other in enumerate(self.records) if other.place == record.place), len(others))
        self.records = [*others[:at], record, *others[at:]]


def compared(sides: Sequence[Side], samples: Sequence[Mapping[str, Sequence[float]]]) -> tuple[Side, ...]:
    """The sides with the ratios that a table shows: of ours to the first of them and to peers, of peers to the first.

    `samples` are those of each side by the words of `TIMED`, one a round; empty where a side has no right result.
    """
    ours = [index for index, side in enumerate(sides) if side.role != "peer"]
    peers = [index for index, side in enumerate(sides) if side.role == "peer"]
    compared = []
    for own, side in enumerate(sides):
        others = peers[:1] if side.role == "peer" else [*ours[:1], *peers]
        ratios = {
            other: {word: stats.ratio(samples[other][word], samples[own][word]) for word in samples[own]}
            for other in others
            if own != other and samples[own] and samples[other]
        }
        compared.append(dataclasses.replace(side, ratios=ratios))
    return tuple(compared)


def digest_of(value: object) -> str:
    """A short digest of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(path: Path) -> BenchmarkResults:
    """The results in `path`, empty where there is no such file; raise `CallError` for a file that is something else."""
    try:
        return values.read(path, SCHEMA, _results, "a results file", "--json", values.MEASURE_AGAIN)
    except FileNotFoundError:
        return BenchmarkResults()


def add(results: BenchmarkResults, fresh: Sequence[ComparisonRecord], path: Path) -> None:
    """Add what a run has measured, and the environments and ceilings of its results, to the results in `path`.

    What other runs have written there stays, and `results` have it afterwards too. Raises what `load` raises, and
    `FileError` if the file cannot be written.
    """

    def merged() -> str:
        stored = load(path)
        stored.environments |= results.environments
        for name, ceilings in results.ceilings.items():
            stored.ceilings[name] = {**stored.ceilings.get(name, {}), **ceilings}
        for record in fresh:
            stored.put(record)
        results.environments, results.ceilings, results.records = (
            stored.environments,
            stored.ceilings,
            stored.records,
        )
        return text_of(results, path)

    update(path, merged)


def text_of(results: BenchmarkResults, path: Path) -> str:
    """The text of a file, checked; raises `FileError` if no reader would accept it."""
    head = {"format": FORMAT, "environments": results.environments, "ceilings": results.ceilings}
    return values.checked(_dump(head, [_plain_record(record) for record in results.records]), SCHEMA, _results, path)


def _dump(head: Mapping[str, object], records: Sequence[Mapping[str, Any]]) -> str:
    """JSON with one value of `head` a line, one record a line, and each of its sides on a line of its own."""
    lines = json.dumps(head, indent=1, ensure_ascii=False)[: -len("\n}")]
    return lines + ',\n "records": [\n' + ",\n".join(map(_record_lines, records)) + "\n ]\n}\n"


def _record_lines(record: Mapping[str, Any]) -> str:
    head = _json({name: value for name, value in record.items() if name != "sides"})
    sides = ",\n".join(f"   {_json(side)}" for side in record["sides"])
    return f'  {head[:-1]}, "sides": [\n{sides}\n  ]}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain_record(record: ComparisonRecord) -> dict[str, Any]:
    problem = record.problem
    return {
        "key": record.key,
        "case": record.case,
        "title": record.title,
        "shape": problem.shape.numbers,
        "layout": problem.layout.word,
        "dtype": problem.dtype.data,
        "epilogue": problem.epilogue.data,
        **({"symmetric": True} if problem.symmetric else {}),
        "environment": record.environment,
        "method": dict(record.method),
        "sides": [_plain_side(side) for side in record.sides],
    }


def _plain_side(side: Side) -> dict[str, Any]:
    """A side without what it lacks."""
    fields = dataclasses.asdict(side)
    return {name: value for name, value in fields.items() if not (value is None or value is False or value == {})}


def _results(data: Any) -> BenchmarkResults:
    """The contents of a file with the schema; raises `Unfit` for values that no file has."""
    records = [_as_written(entry, index) for index, entry in enumerate(data["records"])]
    for index, record in enumerate(records):
        if record.environment not in data["environments"]:
            raise Unfit("there is no such environment", "records", index, "environment")
    for name in data["ceilings"].keys() - data["environments"].keys():
        raise Unfit("there is no such environment", "ceilings", name)
    return BenchmarkResults(data["environments"], data["ceilings"], records)


def _as_written(data: Any, index: int) -> ComparisonRecord:
    """The record of an entry; raises `Unfit` for one that would not be written so again."""
    try:
        record = _record(data)
        problem = record.problem
        same = json.dumps(_plain_record(record), sort_keys=True) == json.dumps(data, sort_keys=True)
        # A problem whose operands cannot be described raises here, rather than where a table is made.
        if problem.flops and problem.held and problem.aligned_rows is not None and same:
            return record
        reason, steps = "another spelling", tuple[str, ...]()
    except Unfit as error:
        reason, steps = error.reason, error.steps
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason, steps = f"{type(error).__name__}: {error}", ()
    raise Unfit(f"is not what a kernel has ({reason})"[:300], "records", index, *steps)


def _record(data: Any) -> ComparisonRecord:
    problem = Problem(
        shape_of(data["shape"], "shape"),
        Dtype.from_data(data["dtype"]),
        Layout.of(data["layout"]),
        chain_of(data["epilogue"]),
        data.get("symmetric", False),
    )
    sides = tuple(_side(entry, "sides", index) for index, entry in enumerate(data["sides"]))
    peers = str(data["method"]["peer"]).split(",")
    if sum(side.role == "peer" for side in sides) > len(peers):
        raise Unfit(f"the method has {len(peers)} peers, and the sides have more", "sides")
    for own, other in ((own, other) for own, side in enumerate(sides) for other in side.ratios):
        if other >= len(sides):
            raise Unfit("there is no such side", "sides", own, "ratios", other)
    return ComparisonRecord(
        data["key"], data["case"], data["title"], problem, data["environment"], data["method"], sides
    )


def _side(data: Any, *steps: str | int) -> Side:
    values.configuration(data.get("config") or {}, *steps, "config")
    typed = {name: Timing(**data[name]) for name in TIMED if name in data}
    ratios = {
        int(other): {word: stats.Ratio(*numbers) for word, numbers in of_side.items()}
        for other, of_side in data.get("ratios", {}).items()
    }
    return Side(**(data | typed | {"ratios": ratios}))
