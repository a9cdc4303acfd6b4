"""What a run found: on the terminal, as JUnit XML, and as results keyed by what was proved."""

from __future__ import annotations

import json
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
        case = None if result.job.level == "static" or failure.case in ("import", "process") else failure.case
        lines += [
            f"FAILED {result.file} ({result.job.level}{' contract ' + result.job.name if result.job.contract else ''})",
            f"  case:   {failure.case}: {failure.reason}",
            f"  wrong:  {failure.message}",
            f"  repeat: {command(result.job, case)}",
        ]
    return "\n".join(lines)


def summary(results: Sequence[Result], seconds: float) -> list[str]:
    """What was left out, by reason, and the closing line."""
    lines = []
    reasons: dict[str, int] = {}
    for result in results:
        if result.left_out is not None:
            reason = f"{result.job.level}: left out: {result.left_out}"
            reasons[reason] = reasons.get(reason, 0) + 1
        for case, reason in result.not_run:
            label = f"{result.job.level}: case {case} not run: {reason}"
            reasons[label] = reasons.get(label, 0) + 1
    lines += [f"{reason} ({count} {'kernel' if count == 1 else 'kernels'})" for reason, count in reasons.items()]
    failed = [result for result in results if result.failures]
    for level in dict.fromkeys(result.job.level for result in results):
        at_level = [result for result in results if result.job.level == level and result.left_out is None]
        kernels = sum(not result.job.contract for result in at_level)
        contracts = sum(result.job.contract for result in at_level)
        functions = f", {contracts} contract functions" if contracts else ""
        lines.append(f"{level}: {kernels} kernels{functions}, {sum(result.cases for result in at_level)} cases")
    ran = sum(result.left_out is None for result in results)
    verdict = f"{len(failed)} of {ran} failed" if failed else f"all {ran} passed"
    lines.append(f"{verdict} in {seconds:.1f} s")
    return lines


def write_junit(path: Path, results: Iterable[Result]) -> None:
    """JUnit XML: a suite a level, a test case a kernel."""
    root = ET.Element("testsuites")
    suites: dict[str, list[Result]] = {}
    for result in results:
        suites.setdefault(result.job.level, []).append(result)
    for level, members in suites.items():
        suite = ET.SubElement(root, "testsuite", name=level, tests=str(len(members)))
        suite.set("failures", str(sum(bool(result.failures) for result in members)))
        suite.set("skipped", str(sum(result.left_out is not None for result in members)))
        for result in members:
            name = f"{result.job.spec.stem}.{level}"
            case = ET.SubElement(suite, "testcase", classname=name, name=result.job.name, time=f"{result.seconds:.3f}")
            if result.left_out is not None:
                ET.SubElement(case, "skipped", message=result.left_out)
            if result.failures:
                first = result.failures[0]
                element = ET.SubElement(case, "failure", message=f"{first.case}: {first.message}".translate(_NOT_XML))
                element.text = failure_text(result).translate(_NOT_XML)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def write_results(path: Path, results: Iterable[Result]) -> None:
    """JSON of what passed, keyed by the digest of each kernel's body, then by level; no date, no path."""
    found: dict[str, dict[str, object]] = {}
    for result in results:
        if result.failures or result.left_out is not None or result.job.contract or result.job.case is not None:
            continue
        entry: dict[str, object] = {"kernel": result.job.name, "cases": result.cases}
        if result.job.level != "static":
            entry |= {"worst_error": round(result.worst_error, 4)}
            if result.vendor_error is not None:
                entry["vendor_error"] = round(result.vendor_error, 4)
            if result.not_run:
                entry["not_run"] = dict(result.not_run)
            entry |= dict(result.place)
        found.setdefault(result.digest, {})[result.job.level] = entry
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
