"""The results of a run as a `RunReport`: a table of kernels by levels and targets, with the details of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

from generator.emit.job import counted
from generator.emit.manifest_reader import Rendered
from generator.emit.report import STATES, Cell, Detail, ReportTable, Row, RunReport
from generator.files.plain_text import representable
from generator.language.targets import TARGETS
from generator.language.vocabulary import AXES, CONTRACT_AXES
from generator.plan.kernels import Kernel
from generator.verify.jobs import LEVELS, Job, JobResult, JobState, command
from generator.verify.run_report import folder_names, totals, verdict

#: The largest number of failures of a cell, and of characters of a message: more would only make the page larger.
_FAILURES = 25
_MESSAGE = 8000
_LEFT_OUT = ("family", "target", "reason", "kernels left out")
_WORDS = frozenset(("kernel", "level", *AXES, *_LEFT_OUT))


def report(results: Sequence[JobResult], families: Sequence[Rendered]) -> RunReport:
    """The report of `results`, whose jobs are of `families`; deterministic."""
    families = list({family.folder: family for family in families}.values())
    names, folders = Counter(family.name for family in families), folder_names(family.folder for family in families)
    # Where several families have a name, what tells their folders apart.
    labels = [family.name if names[family.name] == 1 else representable(folders[family.folder]) for family in families]
    columns = _columns(results)
    of: dict[tuple[Path, bool, str], dict[str, JobResult]] = {}
    for result in results:
        own = of.setdefault((result.job.folder, result.job.contract, result.job.name), {})
        if result.job.label not in own or result.failures:
            own[result.job.label] = result
    rows = [
        ([name, label], words, *_row(family, name, kernel, of.pop((family.folder, kernel is None, name), {}), columns))
        for label, family in zip(labels, families, strict=True)
        for name, kernel, words in _subjects(family)
    ]
    if of:
        raise ValueError(f"results of names that no family has: {', '.join(name for *_, name in of)}")
    values = {axis: dict.fromkeys(words.get(axis, "") for _, words, *_ in rows) for axis in AXES}
    # Axes with one value have no column and are listed once.
    varied = [axis for axis in AXES if len(values[axis].keys() - {""}) > 1]
    same = [f"{axis} {word}" for axis in AXES if axis not in varied for word in values[axis] if word]
    table = [
        Row([*named, *(words.get(axis, "") for axis in varied), *cells], details)
        for named, words, cells, details in rows
    ]
    states = {_state(result) for result in results}
    worst = next((state for state in STATES if state in states and state != "left out"), "")
    places = dict.fromkeys(_place(result) for result in results if result.place)
    left_out = [row for label, family in zip(labels, families, strict=True) for row in _left_out(label, family)]
    return RunReport(
        "verification",
        ReportTable("Kernels", ["kernel", "family", *varied, *columns], table, _WORDS, frozenset(("family", *varied))),
        Cell(verdict(results), worst),
        notes=[f"{counted(len(families), 'family', 'families')}: {', '.join(labels)}"]
        + [*places]
        + ([f"The same for all: {', '.join(same)}"] if same else []),
        summaries=[_linked(totals(results))],
        legend=[
            "A cell has the number of cases that passed (✓), failed (✕) or are not proved (?), or - if the level or "
            "target is left out. ↺: from the cache of results. Click a row for messages, reasons and commands."
        ],
        beside=[ReportTable("Left out of the families", _LEFT_OUT, left_out, _WORDS)],
    )


def _linked(table: ReportTable) -> ReportTable:
    """The totals, whose counts link to the rows that they count."""
    rows = []
    for label, *cells in table.cells:
        linked = [label]
        for name, cell in zip(table.columns[1:], cells, strict=True):
            link = urlencode({"state": name, "in": label.text})
            counted = name in STATES and cell.text != "0"
            linked.append(Cell(cell.text, name, link=link) if counted else cell)
        rows.append(linked)
    return ReportTable(table.title, table.columns, rows, _WORDS)


def _columns(results: Iterable[JobResult]) -> list[str]:
    """The labels of the levels and targets in `results`, in the order in which they run."""
    targets = [None, *TARGETS]
    jobs = {result.job.label: result.job for result in results}
    return sorted(jobs, key=lambda label: (LEVELS.index(jobs[label].level), targets.index(jobs[label].target)))


def _subjects(family: Rendered) -> Iterator[tuple[str, Kernel | None, dict[str, str]]]:
    """Every contract's function, followed by its kernels: name, kernel if it is one, and words."""
    for contract, kernels in family.contracts.items():
        words = kernels[0].variant.words
        yield contract, None, {axis: words[axis] for axis in CONTRACT_AXES}
        for kernel in kernels:
            yield kernel.name, kernel, dict(kernel.variant.words)


def _row(
    family: Rendered, name: str, kernel: Kernel | None, own: Mapping[str, JobResult], columns: Iterable[str]
) -> tuple[list[Cell], list[Detail]]:
    """The cells by column of a subject with its results, and the details of its row."""
    cells, details = [], list(_of_row(family, name, kernel, list(own.values())))
    compiled = any(label.startswith("compile ") for label in own)
    for column in columns:
        left_out = [each for each in family.left_out if each.name == name and f"compile {each.target}" == column]
        notes = [each.reason for each in left_out]
        if column in own:
            cells.append(_cell(own[column]))
            details += _details(own[column], notes)
        elif notes and compiled:
            # No job exists for a target that the family excludes: show the family's reason.
            cells.append(Cell("- left out", "left out", "; ".join(notes)))
        else:
            cells.append(Cell(""))
    return cells, details


def _state(result: JobResult) -> str:
    return result.state.name.lower().replace("_", " ")


def _cell(result: JobResult) -> Cell:
    state = _state(result)
    if result.left_out is not None and state == "left out":
        return Cell("- left out", state, result.left_out)
    counts = {"failed": len(result.failures), "not proved": len(result.not_proved)}
    text = f"{STATES[state]} {counts.get(state, result.cases):,}"
    if result.not_proved and state != "not proved":
        text += f" ?{len(result.not_proved)}"
    return Cell(text + " ↺" * result.cached, state)


def _of_row(family: Rendered, name: str, kernel: Kernel | None, results: Sequence[JobResult]) -> Iterator[Detail]:
    """The file, the digests of its code and the configurations."""
    subject = max((r.subject for r in results if r.subject), key=lambda each: each.host, default=None)
    yield Detail("text", f"{Job('', family.folder, name, contract=kernel is None).file}")
    if subject is not None:
        digests = {"device code": subject.device, "host code": subject.host}
        yield Detail("text", ", ".join(f"{part} {digest[:16]}" for part, digest in digests.items() if digest))
    if kernel is not None and any(result.measured for result in results):
        splits = kernel.variant.traits.splits
        for index, t in enumerate(kernel.tiles):
            row = f"row{index}: {t.m} x {t.n} x {t.k}, {t.warps} warps, {t.stages} stages, group {t.group}"
            yield Detail("text", f"{row}, split {t.split}" if splits else row)


def _details(result: JobResult, not_offered: Sequence[str]) -> Iterator[Detail]:
    """Why a job has its state, what it measured, and the command that repeats it if it did not pass."""
    yield Detail("head", result.job.label, _state(result))
    facts = [
        counted(result.cases, "case") if result.cases else "",
        f"largest error: {result.worst_error:.3g} of the allowed one" if result.worst_error else "",
        f"{result.seconds:.1f} s" if result.seconds else "",
        _place(result),
        f"left out: {result.left_out}" if result.left_out is not None else "",
    ]
    yield Detail("text", " · ".join(fact for fact in facts if fact))
    messages = set()
    for failure in result.failures[:_FAILURES]:
        yield Detail("text", f"{failure.case}: {failure.reason}")
        # Launches of one kernel often fail for the same reason: the message is shown once.
        if failure.message not in messages:
            more = f"\n[{len(failure.message) - _MESSAGE} more characters]" * (len(failure.message) > _MESSAGE)
            yield Detail("message", failure.message[:_MESSAGE] + more)
        messages.add(failure.message)
        yield Detail("code", command(result.job, failure))
    if len(result.failures) > _FAILURES:
        yield Detail("text", f"and {len(result.failures) - _FAILURES} failures more")
    for case, reason in result.not_proved:
        yield Detail("text", f"not proved: {case}: {reason}")
    for reason in not_offered:
        yield Detail("text", f"configurations not offered on this target: {reason}")
    lines: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for launch, figures in result.measured:
        lines.setdefault(figures, []).append(launch)
    for figures, launches in lines.items():
        yield Detail("text", f"{', '.join(f'{name} {value:,}' for name, value in figures)}: {', '.join(launches)}")
    if result.state in (JobState.FAILED, JobState.NOT_PROVED):
        yield Detail("code", command(result.job))


def _place(result: JobResult) -> str:
    return ", ".join(value if key == "device" else f"{key} {value}" for key, value in result.place)


def _left_out(label: str, family: Rendered) -> Iterator[list[str]]:
    """Target, reason and names of the kernels that a family leaves out, grouped by reason."""
    together: dict[tuple[str, str], list[str]] = {}
    for entry in family.left_out:
        together.setdefault((entry.target or "every target", entry.reason), []).append(entry.name)
    for (target, reason), names in together.items():
        yield [label, target, reason, ", ".join(names)]
