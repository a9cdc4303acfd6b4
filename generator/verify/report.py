"""What a run found, on the terminal and as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path

from generator.verify.jobs import Result, command

# XML 1.0 has no way to write these, not even as an entity.
_NOT_XML = {code: "?" for code in range(32) if chr(code) not in "\t\n\r"}


def failure_text(result: Result) -> str:
    """The file, each case that failed with its reason and what was wrong, and the command that repeats it."""
    lines = []
    for failure in result.failures:
        lines += [
            f"FAILED {result.job.file} ({result.job.label}{f' contract {result.job.name}' * result.job.contract})",
            f"  case:   {failure.case}: {failure.reason}",
            f"  wrong:  {failure.message}",
            f"  repeat: {command(result.job, failure)}",
        ]
    return "\n".join(lines)


def summary(results: Sequence[Result], seconds: float) -> list[str]:
    """What was left out, by reason; a table; and the closing line."""
    lines = []
    reasons: dict[str, int] = {}
    for result in results:
        if result.left_out is not None:
            reason = f"{result.job.label}: left out: {result.left_out}"
            reasons[reason] = reasons.get(reason, 0) + 1
        for case, reason in result.not_run:
            label = f"{result.job.label}: case {case} not run: {reason}"
            reasons[label] = reasons.get(label, 0) + 1
    lines += [f"{reason} ({count} {'kernel' if count == 1 else 'kernels'})" for reason, count in reasons.items()]
    failed = [result for result in results if result.failures]
    lines += _table(results)
    ran = sum(result.left_out is None for result in results)
    verdict = f"{len(failed)} of {ran} failed" if failed else f"all {ran} passed"
    lines.append(f"{verdict} in {seconds:.1f} s")
    return lines


def _table(results: Sequence[Result]) -> list[str]:
    """A line a level and target; the seconds are those of the workers together."""
    rows: list[tuple[str, ...]] = [("level", "kernels", "functions", "cases", "failed", "left out", "known", "seconds")]
    for label in dict.fromkeys(result.job.label for result in results):
        members = [result for result in results if result.job.label == label]
        ran = [result for result in members if result.left_out is None]
        counts = (
            sum(not result.job.contract for result in ran),
            sum(result.job.contract for result in ran),
            sum(result.cases for result in ran),
            sum(bool(result.failures) for result in ran),
            len(members) - len(ran),
            sum(result.kept for result in ran),
        )
        seconds = sum(result.seconds for result in ran if not result.kept)
        rows.append((label, *map(str, counts), f"{seconds:.1f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def write_junit(path: Path, results: Iterable[Result]) -> None:
    """JUnit XML: a suite a level and target, a test case a kernel."""
    root = ET.Element("testsuites")
    suites: dict[str, list[Result]] = {}
    for result in results:
        suites.setdefault(result.job.label, []).append(result)
    for label, members in suites.items():
        suite = ET.SubElement(root, "testsuite", name=label, tests=str(len(members)))
        suite.set("failures", str(sum(bool(result.failures) for result in members)))
        suite.set("skipped", str(sum(result.left_out is not None for result in members)))
        for result in members:
            name = f"{result.job.folder.name}.{label}"
            case = ET.SubElement(suite, "testcase", classname=name, name=result.job.name, time=f"{result.seconds:.3f}")
            if result.left_out is not None:
                ET.SubElement(case, "skipped", message=result.left_out)
            if result.failures:
                first = result.failures[0]
                element = ET.SubElement(case, "failure", message=f"{first.case}: {first.message}".translate(_NOT_XML))
                element.text = failure_text(result).translate(_NOT_XML)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
