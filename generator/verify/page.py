"""The results of a run as one HTML page: a table of kernels by levels and targets, with the details of each cell.

The page needs no other file and no network. It contains the results as JSON: the data of the table in one value, and
the details of its cells in parts that are parsed when a cell is opened. The page therefore opens fast for ten thousand
kernels, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator.emit.html_page import html_page
from generator.emit.manifest_reader import Rendered
from generator.files.plain_text import representable
from generator.language.targets import TARGETS
from generator.language.vocabulary import AXES, CONTRACT_AXES
from generator.plan.kernels import Kernel
from generator.verify.folder_names import folder_names
from generator.verify.jobs import LEVELS, Failure, Job, JobResult, JobState, command
from generator.verify.run_report import verdict

#: The number of rows whose details are parsed together.
_PART = 200
#: The largest number of failures of a cell, and of characters of a message: more would only make the page larger.
_FAILURES = 25
_MESSAGE = 8000


@dataclass(frozen=True)
class _Row:
    """A kernel, or a contract's function (`kernel` is None, and `words` has the contract's axes only)."""

    family: Rendered
    name: str
    kernel: Kernel | None
    words: Mapping[str, str]

    @property
    def key(self) -> tuple[Path, bool, str]:
        return self.family.folder, self.kernel is None, self.name


@dataclass(frozen=True)
class _Cell:
    """The cell of a row and column: a result, or the family's reason for having none."""

    result: JobResult | None = None
    left_out: str | None = None
    #: Why configurations of the kernel are not offered on the column's target.
    not_offered: tuple[str, ...] = ()

    @property
    def state(self) -> JobState:
        """The outcome, whose number selects the cell's text and colour."""
        return JobState.LEFT_OUT if self.result is None else self.result.state


@dataclass(frozen=True)
class SummaryLine:
    """A line of the summary: the results of a level, at the compile level for one target."""

    label: str
    kernels: int
    functions: int
    cases: int
    states: tuple[int, ...]
    cached: int
    not_proved: int
    places: tuple[str, ...]


class _Texts:
    """A table of texts that occur many times; a call returns the index of a text."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def __call__(self, text: Any) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def all(self) -> list[Any]:
        return list(self._places)


def page(results: Sequence[JobResult], families: Sequence[Rendered]) -> str:
    """The page of `results`, whose jobs are of `families`, in ASCII; the output is deterministic."""
    families = list({family.folder: family for family in families}.values())
    places = {family.folder: place for place, family in enumerate(families)}
    labels = _labels(families)
    columns = _columns(results)
    table = list(_table(results, families, columns))
    reasons, texts, axes = _Texts(), _Texts(), {axis: _Texts() for axis in AXES}
    rows = [
        [
            places[row.family.folder],
            row.name,
            int(row.kernel is None),
            [axes[axis](row.words[axis]) if axis in row.words else -1 for axis in AXES],
            [_shown(cells[column], reasons) if column in cells else 0 for column in columns],
        ]
        for row, cells in table
    ]
    details = [_details(row, cells, columns, texts) for row, cells in table]
    left_out = list(_left_out(families))
    data = {
        "axes": [[axis, values.all] for axis, values in axes.items()],
        "columns": columns,
        "families": [
            [label, representable(str(family.folder))] for label, family in zip(labels, families, strict=True)
        ],
        "rows": rows,
        "reasons": reasons.all,
        "leftOut": sum(len(names) for *_, names in left_out),
        "part": _PART,
    }
    parts = [details[start : start + _PART] for start in range(0, len(details), _PART)]
    return html_page(
        "page.html.j2",
        {
            "data": data,
            "excluded": left_out,
            "commands": [[_command(family, column) for column in columns] for family in families],
            "texts": texts.all,
            **{f"part-{place}": part for place, part in enumerate(parts)},
        },
        totals=[_total(column, table) for column in columns],
        verdict=verdict(results),
        states={result.state for result in results},
        families=labels,
    )


def _labels(families: Sequence[Rendered]) -> list[str]:
    """The name of each family; where several have it, what tells their folders apart."""
    names, folders = Counter(family.name for family in families), folder_names(family.folder for family in families)
    return [family.name if names[family.name] == 1 else representable(folders[family.folder]) for family in families]


def _columns(results: Iterable[JobResult]) -> list[str]:
    """The labels of the levels and targets in `results`, in the order in which they run."""
    targets = list(TARGETS)
    jobs = {result.job.label: result.job for result in results}

    def place(label: str) -> tuple[int, int]:
        job = jobs[label]
        return LEVELS.index(job.level), targets.index(job.target) if job.target else -1

    return sorted(jobs, key=place)


def _table(
    results: Iterable[JobResult], families: Sequence[Rendered], columns: Sequence[str]
) -> Iterator[tuple[_Row, dict[str, _Cell]]]:
    """Every contract's function, followed by its kernels, each with its cells by column."""
    found: dict[tuple[Path, bool, str], dict[str, JobResult]] = {}
    for result in results:
        own = found.setdefault((result.job.folder, result.job.contract, result.job.name), {})
        if result.job.label not in own or result.failures:
            own[result.job.label] = result
    for family in families:
        reasons: dict[tuple[str, str], list[str]] = {}
        for entry in family.left_out:
            if entry.target is not None:
                reasons.setdefault((entry.name, f"compile {entry.target}"), []).append(entry.reason)
        for row in _rows(family):
            own = found.pop(row.key, {})
            cells: dict[str, _Cell] = {}
            for column in columns:
                notes = tuple(reasons.get((row.name, column), ()))
                if column in own:
                    cells[column] = _Cell(own[column], own[column].left_out, notes)
                elif notes and any(label.startswith("compile ") for label in own):
                    # No job exists for a target that the family excludes: show the family's reason.
                    cells[column] = _Cell(left_out="; ".join(notes))
            yield row, cells
    if found:
        raise ValueError(f"results of names that no family has: {', '.join(name for *_, name in found)}")


def _rows(family: Rendered) -> Iterator[_Row]:
    for contract, kernels in family.contracts.items():
        words = kernels[0].variant.words
        yield _Row(family, contract, None, {axis: words[axis] for axis in CONTRACT_AXES})
        for kernel in kernels:
            yield _Row(family, kernel.name, kernel, kernel.variant.words)


def _shown(cell: _Cell, reasons: _Texts) -> list[int]:
    """The data of a cell: its state, a number, the number of cases not proved, and whether the result is cached.

    The number counts cases that passed, failed or are not proved, by state; if left out, it is the reason's index.
    """
    result = cell.result
    if result is None or cell.state is JobState.LEFT_OUT:
        return [JobState.LEFT_OUT, reasons(cell.left_out), 0, 0]
    counts = {JobState.FAILED: len(result.failures), JobState.NOT_PROVED: len(result.not_proved)}
    return [cell.state, counts.get(cell.state, result.cases), len(result.not_proved), int(result.cached)]


def _details(row: _Row, cells: Mapping[str, _Cell], columns: Sequence[str], texts: _Texts) -> list[Any]:
    """The content of an opened row: digests, configurations, and the details of each cell, or 0 without one."""
    results = [cell.result for cell in cells.values() if cell.result is not None]
    subject = max((result.subject for result in results if result.subject), key=lambda each: each.host, default=None)
    digests = {} if subject is None else {"device code": subject.device, "host code": subject.host}
    tiles = () if row.kernel is None else row.kernel.tiles
    splits = row.kernel is not None and row.kernel.variant.traits.splits
    words = [f"{t.m} x {t.n} x {t.k}, {t.warps} warps, {t.stages} stages, group {t.group}" for t in tiles if results]
    lines = [texts(f"{line}, split {t.split}" if splits else line) for t, line in zip(tiles, words)]
    code = ", ".join(f"{part} {digest[:16]}" for part, digest in digests.items() if digest)
    return [code, lines, [_detail(cells[column], texts) if column in cells else 0 for column in columns]]


def _detail(cell: _Cell, texts: _Texts) -> dict[str, Any]:
    found: dict[str, Any] = {"notOffered": [texts(reason) for reason in cell.not_offered]}
    result = cell.result
    if result is not None:
        found |= {
            "cases": result.cases,
            "seconds": f"{result.seconds:.1f}" if result.seconds else "",
            # Strings, since an error may be infinite, which JSON cannot represent.
            "worst": f"{result.worst_error:.3g}" if result.worst_error else "",
            "vendor": f"{result.vendor_error:.3g}" if result.vendor_error is not None else "",
            "place": texts(_place(result)),
            "failures": [_failure(result, failure, texts) for failure in result.failures[:_FAILURES]],
            "notProved": [[texts(case), texts(reason)] for case, reason in result.not_proved],
        }
        if result.measured:
            found["measured"] = _measured(result, texts)
    return {key: value for key, value in found.items() if value or value == 0}


def _failure(result: JobResult, failure: Failure, texts: _Texts) -> list[int]:
    """Indices of the texts of a failure: case, reason, message and the command that repeats it."""
    message = failure.message
    if len(message) > _MESSAGE:
        message = f"{message[:_MESSAGE]}\n[{len(message) - _MESSAGE} more characters]"
    return [texts(failure.case), texts(failure.reason), texts(message), texts(command(result.job, failure))]


def _measured(result: JobResult, texts: _Texts) -> list[Any]:
    """The names of the figures, then lines of launches that have the same figures, and these figures."""
    lines: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for launch, figures in result.measured:
        lines.setdefault(figures, []).append(texts(launch))
    names = list(dict.fromkeys(name for figures in lines for name, _ in figures))
    values = [[dict(figures).get(name, 0) for name in names] for figures in lines]
    return [[texts(name) for name in names], list(zip(lines.values(), values, strict=True))]


def _place(result: JobResult) -> str:
    return ", ".join(value if key == "device" else f"{key} {value}" for key, value in result.place)


def _command(family: Rendered, column: str) -> list[str]:
    """The command that repeats a job of this family and column: the texts before and after the kernel's name."""
    level, _, target = column.partition(" ")
    before, _, behind = command(Job(level, family.folder, "@", target=target or None)).rpartition("@")
    return [before, behind]


def _total(column: str, table: Sequence[tuple[_Row, Mapping[str, _Cell]]]) -> SummaryLine:
    members = [(row, cells[column]) for row, cells in table if column in cells]
    states = Counter(cell.state for _, cell in members)
    results = [cell.result for _, cell in members if cell.result is not None]
    return SummaryLine(
        column,
        sum(row.kernel is not None for row, _ in members),
        sum(row.kernel is None for row, _ in members),
        sum(result.cases for result in results),
        tuple(states[state] for state in JobState),
        sum(result.cached for result in results),
        sum(len(result.not_proved) for result in results),
        tuple(dict.fromkeys(place for result in results if (place := _place(result)))),
    )


def _left_out(families: Sequence[Rendered]) -> Iterator[tuple[int, str, str, list[str]]]:
    """Family, target, reason and names of the kernels that the families leave out, grouped by reason."""
    for index, family in enumerate(families):
        together: dict[tuple[str, str], list[str]] = {}
        for entry in family.left_out:
            together.setdefault((entry.target or "", entry.reason), []).append(entry.name)
        for (target, reason), names in together.items():
            yield index, target, reason, names
