"""The outcome of a run as one HTML page: kernels by levels and targets, and why what failed or is left out is so.

The page needs no other file and no network. It carries the outcome as JSON: what the table shows in one value, the
details behind its cells in parts that are read when a cell is opened, so that ten thousand kernels open as fast as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from generator.emit.manifest_reader import Rendered
from generator.language.vocabulary import AXES, CONTRACT_AXES, TARGETS
from generator.plan.kernels import Kernel
from generator.verify.jobs import LEVELS, Failure, Job, Result, State, command
from generator.verify.run_report import verdict

#: Rows whose details are read together.
_PART = 200
#: More than this of one cell, or of one message, says nothing new and would make the page heavy.
_FAILURES = 25
_MESSAGE = 8000


@dataclass(frozen=True)
class _Row:
    """A kernel, or a contract's function: that has no kernel of its own, and the contract's axes only."""

    family: Rendered
    name: str
    kernel: Kernel | None
    words: Mapping[str, str]

    @property
    def key(self) -> tuple[Path, bool, str]:
        return self.family.folder, self.kernel is None, self.name


@dataclass(frozen=True)
class _Cell:
    """What a row comes to in a column: a result, or the family's own reason that there is none."""

    result: Result | None = None
    left_out: str | None = None
    #: Why rows of the kernel's table are not offered on the column's target.
    not_offered: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """What became of it, which the page spells and colours by its number."""
        return State.LEFT_OUT if self.result is None else self.result.state


@dataclass(frozen=True)
class Total:
    """A line of the summary: what a level came to, at the compile level for one target."""

    label: str
    kernels: int
    functions: int
    cases: int
    states: tuple[int, ...]
    kept: int
    not_proved: int
    places: tuple[str, ...]


class _Texts:
    """Texts that occur many times, each written once and named by its place."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def __call__(self, text: Any) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def all(self) -> list[Any]:
        return list(self._places)


def page(results: Sequence[Result], families: Sequence[Rendered]) -> str:
    """The page of `results`, whose jobs are of `families`; plain ASCII, and the same for the same results."""
    families = list({family.folder: family for family in families}.values())
    places = {family.folder: place for place, family in enumerate(families)}
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
    made = _environment().get_template("page.html.j2").render(
        totals=[_total(column, table) for column in columns],
        verdict=verdict(results),
        states={result.state for result in results},
        families=families,
        data={
            "axes": [[axis, values.all] for axis, values in axes.items()],
            "columns": columns,
            "families": [[family.name, str(family.folder)] for family in families],
            "rows": rows,
            "reasons": reasons.all,
            "leftOut": sum(len(names) for *_, names in left_out),
            "part": _PART,
        },
        left_out=left_out,
        commands=[[_command(family, column) for column in columns] for family in families],
        parts=[details[start : start + _PART] for start in range(0, len(details), _PART)],
        texts=texts.all,
    )  # fmt: skip
    # What Jinja writes outside of the JSON may hold any letter; the file may be written in any encoding.
    return made.encode("ascii", "xmlcharrefreplace").decode("ascii")


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def _columns(results: Iterable[Result]) -> list[str]:
    """The labels of the levels and targets that occur, in the order in which they run."""
    targets = list(TARGETS)
    jobs = {result.job.label: result.job for result in results}

    def place(label: str) -> tuple[int, int]:
        job = jobs[label]
        return LEVELS.index(job.level), targets.index(job.target) if job.target else -1

    return sorted(jobs, key=place)


def _table(
    results: Iterable[Result], families: Sequence[Rendered], columns: Sequence[str]
) -> Iterator[tuple[_Row, dict[str, _Cell]]]:
    """Every kernel and every contract's function, this before its kernels, with its cells by column."""
    found: dict[tuple[Path, bool, str], dict[str, Result]] = {}
    for result in results:
        known = found.setdefault((result.job.folder, result.job.contract, result.job.name), {})
        if result.job.label not in known or result.failures:
            known[result.job.label] = result
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
                    # Nothing is asked of a target that the family itself leaves out: say why here too.
                    cells[column] = _Cell(left_out="; ".join(notes))
            yield row, cells
    if found:
        raise ValueError(f"results of what no family has: {', '.join(name for *_, name in found)}")


def _rows(family: Rendered) -> Iterator[_Row]:
    for contract, kernels in family.contracts.items():
        words = kernels[0].variant.words
        yield _Row(family, contract, None, {axis: words[axis] for axis in CONTRACT_AXES})
        for kernel in kernels:
            yield _Row(family, kernel.name, kernel, kernel.variant.words)


def _shown(cell: _Cell, reasons: _Texts) -> list[int]:
    """What the table shows: state, number of cases or of a reason, cases not proved, known from before.

    The cases are those that passed, that failed, or that are not proved, as the state says.
    """
    result = cell.result
    if result is None or cell.state is State.LEFT_OUT:
        return [State.LEFT_OUT, reasons(cell.left_out), 0, 0]
    counts = {State.FAILED: len(result.failures), State.NOT_PROVED: len(result.not_proved)}
    return [cell.state, counts.get(cell.state, result.cases), len(result.not_proved), int(result.kept)]


def _details(row: _Row, cells: Mapping[str, _Cell], columns: Sequence[str], texts: _Texts) -> list[Any]:
    """What an opened row tells: digests, rows of the tile table, and the details of each cell, 0 where none is."""
    results = [cell.result for cell in cells.values() if cell.result is not None]
    subject = max((result.subject for result in results if result.subject), key=lambda each: each.host, default=None)
    digests = {} if subject is None else {"device code": subject.device, "host code": subject.host}
    tiles = () if row.kernel is None else row.kernel.tiles
    splits = row.kernel is not None and row.kernel.variant.traits.splits
    words = [f"{t.m} x {t.n} x {t.k}, {t.warps} warps, {t.stages} stages, group {t.group}" for t in tiles if results]
    lines = [texts(f"{line}, split {t.split}" if splits else line) for t, line in zip(tiles, words)]
    told = ", ".join(f"{part} {digest[:16]}" for part, digest in digests.items() if digest)
    return [told, lines, [_detail(cells[column], texts) if column in cells else 0 for column in columns]]


def _detail(cell: _Cell, texts: _Texts) -> dict[str, Any]:
    told: dict[str, Any] = {"notOffered": [texts(reason) for reason in cell.not_offered]}
    result = cell.result
    if result is not None:
        told |= {
            "cases": result.cases,
            "seconds": f"{result.seconds:.1f}" if result.seconds else "",
            # Texts, since an error may be infinite, for which JSON has no number.
            "worst": f"{result.worst_error:.3g}" if result.worst_error else "",
            "vendor": f"{result.vendor_error:.3g}" if result.vendor_error is not None else "",
            "place": texts(_place(result)),
            "failures": [_failure(result, failure, texts) for failure in result.failures[:_FAILURES]],
            "notProved": [[texts(case), texts(reason)] for case, reason in result.not_proved],
        }
        if result.measured:
            told["measured"] = _measured(result, texts)
    return {key: value for key, value in told.items() if value or value == 0}


def _failure(result: Result, failure: Failure, texts: _Texts) -> list[int]:
    """Case, reason, message and the command that repeats it."""
    message = failure.message
    if len(message) > _MESSAGE:
        message = f"{message[:_MESSAGE]}\n[{len(message) - _MESSAGE} more characters]"
    return [texts(failure.case), texts(failure.reason), texts(message), texts(command(result.job, failure))]


def _measured(result: Result, texts: _Texts) -> list[Any]:
    """Launches that came to the same figures together: the figures' names, then per line launches and figures."""
    lines: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for launch, figures in result.measured:
        lines.setdefault(figures, []).append(texts(launch))
    names = list(dict.fromkeys(name for figures in lines for name, _ in figures))
    values = [[dict(figures).get(name, 0) for name in names] for figures in lines]
    return [[texts(name) for name in names], list(zip(lines.values(), values, strict=True))]


def _place(result: Result) -> str:
    return ", ".join(value if key == "device" else f"{key} {value}" for key, value in result.place)


def _command(family: Rendered, column: str) -> list[str]:
    """The command that repeats a job of this family and column, without its name: what stands before and behind."""
    level, _, target = column.partition(" ")
    before, _, behind = command(Job(level, family.folder, "@", target=target or None)).rpartition("@")
    return [before, behind]


def _total(column: str, table: Sequence[tuple[_Row, Mapping[str, _Cell]]]) -> Total:
    members = [(row, cells[column]) for row, cells in table if column in cells]
    states = Counter(cell.state for _, cell in members)
    results = [cell.result for _, cell in members if cell.result is not None]
    return Total(
        column,
        sum(row.kernel is not None for row, _ in members),
        sum(row.kernel is None for row, _ in members),
        sum(result.cases for result in results),
        tuple(states[state] for state in State),
        sum(result.kept for result in results),
        sum(len(result.not_proved) for result in results),
        tuple(dict.fromkeys(place for result in results if (place := _place(result)))),
    )


def _left_out(families: Sequence[Rendered]) -> Iterator[tuple[int, str, str, list[str]]]:
    """Family, target, reason and names of what the families have not, what has the same reason together."""
    for index, family in enumerate(families):
        together: dict[tuple[str, str], list[str]] = {}
        for entry in family.left_out:
            together.setdefault((entry.target or "", entry.reason), []).append(entry.name)
        for (target, reason), names in together.items():
            yield index, target, reason, names
