"""The results of a run, on the terminal and as JUnit XML."""

from __future__ import annotations

import io
import os
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from generator.emit.job import counted
from generator.emit.report import ReportTable
from generator.files import output_files
from generator.files.plain_text import representable
from generator.verify.jobs import Job, JobResult, JobState, command


def failure_text(result: JobResult) -> str:
    """For each failed case: the file, the case and its reason, what is wrong, and the command that repeats it."""
    return "\n".join(
        f"FAILED {_place(result.job)}\n"
        f"  case:   {failure.case}: {failure.reason}\n"
        f"  wrong:  {failure.message}\n"
        f"  repeat: {command(result.job, failure)}"
        for failure in result.failures
    )


def undecided_text(results: Iterable[JobResult]) -> str:
    """For each reason why cases are not proved: the first file and case, the number of others, and the command."""
    members_of: dict[tuple[str, str], list[tuple[Job, str]]] = {}
    for result in results:
        for case, reason in result.not_proved:
            members_of.setdefault((result.job.label, reason), []).append((result.job, case))
    lines = []
    for (_, reason), members in members_of.items():
        job, case = members[0]
        kernels = len({member for member, _ in members})
        more = f", and {len(members) - 1} more" * (len(members) > 1) + f", in {kernels} kernels" * (kernels > 1)
        lines += [
            f"NOT PROVED {_place(job)}",
            f"  case:   {case}{more}",
            f"  why:    {reason}",
            f"  repeat: {command(job)}",
        ]
    return "\n".join(lines)


def _place(job: Job) -> str:
    return f"{job.file} ({job.label}{f' contract {job.name}' * job.contract})"


def by_label(results: Iterable[JobResult]) -> dict[str, list[JobResult]]:
    """The results of each level and target."""
    by_word: dict[str, list[JobResult]] = {}
    for result in results:
        by_word.setdefault(result.job.label, []).append(result)
    return by_word


def explanation(result: JobResult) -> str:
    """Why a job did not pass, in one line."""
    if result.failures:
        return f"{result.failures[0].case}: {result.failures[0].message}"
    if result.left_out is not None:
        return result.left_out
    return f"not proved: {': '.join(result.not_proved[0] if result.not_proved else ('no case ran',))}"


def whole_text(result: JobResult) -> str:
    """The failures of a job, then its cases that are not proved; empty if it passed or is left out."""
    return "\n".join(filter(None, (failure_text(result), undecided_text([result]))))


def verdict(results: Iterable[JobResult]) -> str:
    """The outcome of a run in a few words: `all 12 passed`, `2 of 12 failed, 3 not proved (7 cases)`."""
    every = list(results)
    states = Counter(result.state for result in every)
    ran = len(every) - states[JobState.LEFT_OUT]
    if not ran:
        return f"nothing ran: {len(every)} left out" if every else "nothing ran"
    failed, undecided = states[JobState.FAILED], states[JobState.NOT_PROVED]
    if failed:
        words = f"{failed} of {ran} failed"
    else:
        words = f"{states[JobState.PASSED]} of {ran} passed" if undecided else f"all {ran} passed"
    if undecided:
        cases = sum(len(result.not_proved) for result in every if result.state is JobState.NOT_PROVED)
        words += f", {undecided} not proved ({counted(cases, 'case')})"
    rows = sum(len(result.rows_left_out) for result in every)
    if rows:
        words += f", {counted(rows, 'configuration')} left out"
    return words


def summary(results: Sequence[JobResult], seconds: float) -> list[str]:
    """The jobs left out, by reason; the cases not proved; a table; and the verdict."""
    reasons = Counter(f"{r.job.label}: left out: {r.left_out}" for r in results if r.left_out is not None)
    lines = [f"{reason} ({counted(count, 'kernel')})" for reason, count in reasons.items()]
    lines += _rows_left_out(results)
    lines += undecided_text(results).splitlines()
    lines += _aligned(totals(results))
    lines.append(f"{verdict(results)} in {seconds:.1f} s")
    return lines


def _rows_left_out(results: Iterable[JobResult]) -> Iterator[str]:
    """For each target the configurations that it cannot run, which no launcher takes there: how many, and why."""
    for label, members in by_label(results).items():
        rows = [(result.job, reason) for result in members for _, reason in result.rows_left_out]
        if rows:
            many = f"{counted(len(rows), 'configuration')} of {counted(len({job for job, _ in rows}), 'kernel')}"
            reasons = list(dict.fromkeys(reason for _, reason in rows))
            more = f", and {len(reasons) - 1} more" * (len(reasons) > 1)
            yield f"{label}: {many} left out, which no launcher takes there: {reasons[0]}{more}"


def totals(results: Sequence[JobResult]) -> ReportTable:
    """One line per level and target; the seconds are the sum over all workers."""
    columns = ("level", "kernels", "functions", "cases", "failed", "not proved", "left out", "cached", "seconds")
    rows = []
    for label, members in by_label(results).items():
        ran = [result for result in members if result.left_out is None]
        counts = (
            sum(not result.job.contract for result in ran),
            sum(result.job.contract for result in ran),
            sum(result.cases for result in ran),
            sum(result.state is JobState.FAILED for result in ran),
            sum(result.state is JobState.NOT_PROVED for result in ran),
            # Of what ran, configurations that the target cannot run are left out.
            len(members) - len(ran) + sum(len(result.rows_left_out) for result in ran),
            sum(result.cached for result in ran),
        )
        seconds = sum(result.seconds for result in ran if not result.cached)
        rows.append((label, *map(str, counts), f"{seconds:.1f}"))
    return ReportTable("Levels", columns, rows)


def _aligned(table: ReportTable) -> list[str]:
    """The lines of a table whose columns are aligned by blanks."""
    rows = [table.columns, *([cell.text for cell in row] for row in table.cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in rows
    ]


def write_junit(path: Path, results: Iterable[JobResult], *, allow_undecided: bool = False) -> None:
    """Write JUnit XML with one suite per level and target, and one test case per job; raises `FileError`.

    The class of a test case is the folder's name and the level, with as much of the folder's path as tells it from the
    other folders. A job that is not proved is an error, which CI shows as not passed; with `allow_undecided` it is
    skipped instead, with its reason.
    """
    root = ET.Element("testsuites")
    results = list(results)
    names = folder_names({result.job.folder for result in results})
    elements = {JobState.FAILED: "failure", JobState.LEFT_OUT: "skipped", JobState.NOT_PROVED: "error"}
    if allow_undecided:
        elements[JobState.NOT_PROVED] = "skipped"
    for label, members in by_label(results).items():
        suite = ET.SubElement(root, "testsuite", name=label, tests=str(len(members)))
        counts = Counter(elements.get(result.state) for result in members)
        for attribute, word in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(counts[word]))
        for result in members:
            owner = representable(f"{names[result.job.folder]}.{label}")
            name = representable(result.job.name)
            case = ET.SubElement(suite, "testcase", classname=owner, name=name, time=f"{result.seconds:.3f}")
            if result.state in elements:
                message = representable(explanation(result))
                element = ET.SubElement(case, elements[result.state], message=message)
                element.text = representable(whole_text(result)) or None
    ET.indent(root)
    text = io.BytesIO()
    ET.ElementTree(root).write(text, encoding="utf-8", xml_declaration=True)
    output_files.put(path, text.getvalue())


def folder_names(folders: Iterable[Path]) -> dict[Path, str]:
    """For each folder the shortest end of its path that no other has: `ladder`, or `a/ladder` beside `b/ladder`."""
    parts = {folder: Path(os.path.abspath(folder)).parts for folder in folders}
    names: dict[Path, str] = {}
    for length in range(1, max(map(len, parts.values()), default=0) + 1):
        left = {folder: own[-length:] for folder, own in parts.items() if len(own) >= length}
        counts = Counter(left.values())
        names |= {
            folder: Path(*own).as_posix() for folder, own in left.items() if folder not in names and counts[own] == 1
        }
    # Two spellings of one folder.
    return {folder: names.get(folder, folder.as_posix()) for folder in parts}
