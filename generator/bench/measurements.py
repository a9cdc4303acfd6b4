"""What was measured, as it is kept: typed records, a JSON file rewritten whole as comparisons are done.

A record's key is a digest of everything that its times depend on: kernels, problem, device, versions, method. A run
that finds the key has nothing left to do; another measurement of the same case and shape on the same device and
versions takes the older one's place. There is no date, path or host in the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generator.bench.problem import Problem, Shape
from generator.language.built_in import chain_of
from generator.language.errors import CallError
from generator.language.model import Dtype, Layout

FORMAT = 1

#: The name of the ceiling that is a bandwidth; the others are those of the types that they multiply.
COPY = "copy"

_NUMBERS = re.compile(r"\[\n([-+0-9.eE,\s]+)\]")

Environment = Mapping[str, str | int]


@dataclass(frozen=True)
class Timing:
    """Samples of one side in microseconds a call, one a round; `calls` were made for each sample."""

    method: str
    calls: int
    samples: tuple[float, ...]


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
    #: On the device, without the host.
    gpu: Timing | None = None
    #: From the call of an idle device to the end, the host included.
    call: Timing | None = None
    #: Until the host is free again.
    host: Timing | None = None
    #: Relative error against float64, and the most that is right.
    error: float | None = None
    tolerance: float | None = None
    #: Why there are no times: a wrong result, or a refusal.
    failure: str | None = None
    #: Whether the failure is an honest "not for these sizes" rather than a fault.
    refused: bool = False


@dataclass(frozen=True)
class Record:
    """One comparison, measured."""

    key: str
    case: str
    title: str
    problem: Problem
    environment: str
    method: Mapping[str, str | int]
    sides: tuple[Side, ...]

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


@dataclass(frozen=True)
class Ceiling:
    """What the device reaches at best: `rate` in operations or bytes a second."""

    name: str
    rate: float


@dataclass
class Results:
    """The contents of a results file."""

    environments: dict[str, Environment] = field(default_factory=dict)
    ceilings: dict[str, tuple[Ceiling, ...]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def find(self, key: str) -> Record | None:
        """The record with `key`, if it was measured without a fault."""
        return next((record for record in self.records if record.key == key and not record.faults), None)

    def put(self, record: Record) -> None:
        """Add a record in the place of an older one of the same case, problem, rows and environment."""

        def same(other: Record) -> bool:
            return (other.case, other.problem, other.environment, other.method["configs"], other.method["peer"]) == (
                record.case,
                record.problem,
                record.environment,
                record.method["configs"],
                record.method["peer"],
            )

        places = [index for index, other in enumerate(self.records) if same(other)]
        if places:
            self.records[places[0]] = record
            self.records = [other for index, other in enumerate(self.records) if index not in places[1:]]
        else:
            self.records.append(record)

    def ceiling(self, environment: str, name: str) -> float | None:
        """A measured ceiling of an environment, None where it was not measured."""
        return next((c.rate for c in self.ceilings.get(environment, ()) if c.name == name), None)


def digest_of(value: object) -> str:
    """A short digest of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(path: Path) -> Results:
    """The results in `path`, empty where there is no such file; raise `CallError` for a file that is something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Results()
    except (OSError, UnicodeDecodeError) as error:
        raise CallError(f"--json: {path} cannot be read: {error}") from None
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise CallError(f"--json: {path} has format {data['format']!r}, this version reads {FORMAT}")
        return _results(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CallError(f"--json: {path} is no results file ({type(error).__name__}: {error})") from None


def save(results: Results, path: Path) -> None:
    """Write the results to `path` in one step, so that a stopped run leaves the file whole."""
    data = {
        "format": FORMAT,
        "environments": results.environments,
        "ceilings": {name: {c.name: c.rate for c in found} for name, found in results.ceilings.items()},
        "records": [_plain_record(record) for record in results.records],
    }
    put(path, _dump(data))


def put(path: Path, text: str) -> None:
    """Write a file in one step: whole, or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _dump(data: object) -> str:
    """JSON with one value a line, but a list of numbers on one line: a text holds no line end that could match."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    return _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text) + "\n"


def _plain_record(record: Record) -> dict[str, Any]:
    problem = record.problem
    return {
        "key": record.key,
        "case": record.case,
        "title": record.title,
        "shape": problem.shape.numbers,
        "layout": problem.layout.word,
        "dtype": dataclasses.asdict(problem.dtype),
        "epilogue": problem.epilogue.data,
        "environment": record.environment,
        "method": dict(record.method),
        "sides": [
            {
                name: value
                for name, value in dataclasses.asdict(side).items()
                if value is not None and value is not False
            }
            for side in record.sides
        ],
    }


def _results(data: Any) -> Results:
    return Results(
        {name: dict(environment) for name, environment in data["environments"].items()},
        {name: tuple(Ceiling(*pair) for pair in found.items()) for name, found in data["ceilings"].items()},
        [_record(entry) for entry in data["records"]],
    )


def _record(data: Any) -> Record:
    problem = Problem(
        Shape(*data["shape"]),
        Dtype(**data["dtype"]),
        Layout.of(data["layout"]),
        chain_of(data["epilogue"]),
    )
    sides = tuple(_side(entry) for entry in data["sides"])
    return Record(data["key"], data["case"], data["title"], problem, data["environment"], dict(data["method"]), sides)


def _side(data: Any) -> Side:
    values = dict(data)
    for name in ("gpu", "call", "host"):
        if name in values:
            timing = values[name]
            values[name] = Timing(timing["method"], timing["calls"], tuple(timing["samples"]))
    return Side(**values)
