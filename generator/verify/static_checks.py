"""Checks of the text of rendered files: it parses, lints clean, is formatted, and matches digest and manifest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.emit.manifest_reader import Rendered, remembered
from generator.language.errors import CallError
from generator.verify import folder_files, rendered_text
from generator.verify.job_inputs import InputReader, with_inputs
from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.rendered_text import Text

_LINE = "120"


def run(jobs: Sequence[Job]) -> Iterator[JobResult]:
    """The results of the static jobs, one for each kernel's file, folder by folder.

    A folder's other files, and modules that its manifest does not list, count to the first of its jobs here: no choice
    of jobs leaves them out. Such a failure has the file's name in its case.
    """
    before, after = InputReader(), InputReader()
    folders: dict[Path, list[Job]] = defaultdict(list)
    for job in jobs:
        folders[job.folder].append(job)
    for folder, members in folders.items():
        family = remembered(folder)
        inputs = [before.of(job, family) for job in members]
        failures_of = check([*(folder / name for name in family.own_modules), *(job.file for job in members)], family)
        others = list(folder_files.failures(family))
        for name in family.own_modules:
            others += [replace(failure, case=f"{name} {failure.case}") for failure in failures_of[folder / name]]
        for job, own in zip(members, inputs, strict=True):
            result = JobResult(job, cases=1, failures=(*failures_of[job.file], *others))
            others = []
            yield with_inputs(result, own, after.of(job, family))


def check(files: Iterable[Path], family: Rendered | None = None) -> dict[Path, list[Failure]]:
    """The failures of each file, which is one of `family` that its manifest lists; None if there is no manifest.

    Raises `CallError` if ruff is not installed.
    """
    failures: dict[Path, list[Failure]] = {}
    for folder, members in groupby(files, key=lambda file: file.parent):
        failures |= _with_ruff(folder, [(file, rendered_text.check(file, family)) for file in members])
    return failures


def _with_ruff(folder: Path, own: Sequence[tuple[Path, Text]]) -> dict[Path, list[Failure]]:
    """The files of a folder with the failures of their texts, and with what ruff finds in those that are Python."""
    message = f"`ruff format --line-length {_LINE}` would change it"
    parsed = [file.name for file, text in own if text.parsed]
    lint: dict[str, list[Failure]] = defaultdict(list)
    for entry in json.loads(_ruff(folder, parsed, "check", "--select", "F,E9", "--output-format", "json") or "[]"):
        detail = f"line {entry['location']['row']}: {entry['message']} ({entry['code']})"
        lint[os.path.basename(entry["filename"])].append(Failure("lint", "no name is unused or undefined", detail))
    # A diff, since the output of --check differs between versions of ruff.
    lines = _ruff(folder, parsed, "format", "--diff", "--line-length", _LINE).splitlines()
    unformatted = {line[4:] for line, next_ in pairwise(lines) if line[:4] == "--- " and next_[:4] == "+++ "}
    changed = Failure("format", "the template emits finished formatting", message)
    return {
        file: [*text.failures, *lint[file.name], *[changed] * (text.rendered and file.name in unformatted)]
        for file, text in own
    }


def _ruff(folder: Path, names: Sequence[str], *arguments: str) -> str:
    """The standard output of ruff on files of a folder, configured by the arguments alone."""
    if not names:
        return ""
    with TemporaryDirectory() as listed:
        # A command line does not hold the names of thousands of files.
        call = Path(listed, "names")
        call.write_text("\n".join(names), encoding="utf-8")
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--isolated", f"@{call}"]
        # Within the folder, whose own name need not be UTF-8.
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode not in (0, 1) or "No module named ruff" in done.stderr:
        raise CallError(f"the static level needs ruff; install it with pip install ruff: {done.stderr.strip()}")
    return done.stdout
