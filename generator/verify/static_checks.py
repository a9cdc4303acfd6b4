"""Checks of the text of rendered files: it parses, lints clean, is formatted, and matches digest and manifest."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import groupby, islice, pairwise, starmap
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.emit.manifest_reader import Rendered, remembered
from generator.files.parent_process import begin_worker
from generator.language.errors import CallError
from generator.plan.claims import waits
from generator.plan.kernels import Kernel
from generator.verify import folder_files, rendered_text
from generator.verify.job_inputs import InputReader, with_inputs
from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.manifest_configurations import tables
from generator.verify.rendered_text import Listed, Text
from generator.verify.worker_pool import workers_by_default

#: The items that a worker gets at a time.
_CHUNK = 100
_LINE = "120"
#: The files whose results are known at a time.
_GROUP = 2000
#: From this number of files on, workers check the texts.
_MANY = 1000


def run(jobs: Sequence[Job]) -> Iterator[JobResult]:
    """The results of the static jobs, one for each kernel's file.

    A folder's other files, and modules that its manifest does not list, count to the first of its jobs here: no choice
    of jobs leaves them out. Such a failure has the file's name in its case.
    """
    families = {job.folder: remembered(job.folder) for job in jobs}
    readers = InputReader(), InputReader()
    before = [readers[0].of(job, families[job.folder]) for job in jobs]
    own = {folder: [*folder_files.failures(family), *_own_modules(family)] for folder, family in families.items()}
    listed = [(job.file, _listed(families[job.folder], families[job.folder].by_name[job.name])) for job in jobs]
    for job, inputs, (_, failures) in zip(jobs, before, [*check(listed)], strict=True):
        result = JobResult(job, cases=1, failures=(*failures, *own.pop(job.folder, ())))
        yield with_inputs(result, inputs, readers[1].of(job, families[job.folder]))


def _own_modules(family: Rendered) -> Iterator[Failure]:
    """What is wrong with the family's modules other than kernels' files."""
    names, unformatted = family.own_modules, family.recorded.unformatted
    entries = [Listed(family.files[name], unformatted=unformatted.get(name, "")) for name in names]
    listed = [(family.folder / name, entry) for name, entry in zip(names, entries, strict=True)]
    for name, (_, failures) in zip(names, check(listed), strict=True):
        yield from (replace(failure, case=f"{name} {failure.case}") for failure in failures)


def _listed(family: Rendered, kernel: Kernel) -> Listed:
    text = {name: repr(table) for name, table in tables(kernel, alone=family.package == "files").items()}
    file = f"{kernel.name}.py"
    unformatted = family.recorded.unformatted.get(file, "")
    return Listed(family.files[file], family.digests[kernel.name], text, waits(kernel.variant), unformatted)


def check(files: Iterable[tuple[Path, Listed | None]]) -> Iterator[tuple[Path, list[Failure]]]:
    """Each file and its failures, in order; the manifest's entry is None for a file without a manifest.

    Raises `CallError` if ruff is not installed.
    """
    work = list(files)
    with contextlib.closing(texts := _texts(work)):
        checked = zip((file for file, _ in work), texts, strict=True)
        while group := list(islice(checked, _GROUP)):
            yield from _with_ruff(group)


def _with_ruff(group: Sequence[tuple[Path, Text]]) -> Iterator[tuple[Path, list[Failure]]]:
    """The files with the failures of their texts, and with what ruff finds in those that are Python."""
    message = f"`ruff format --line-length {_LINE}` would change it"
    for folder, members in groupby(group, key=lambda entry: entry[0].parent):
        own = list(members)
        parsed = [file.name for file, text in own if text.parsed]
        lint: dict[str, list[Failure]] = defaultdict(list)
        for entry in json.loads(_ruff(folder, parsed, "check", "--select", "F,E9", "--output-format", "json") or "[]"):
            told = f"line {entry['location']['row']}: {entry['message']} ({entry['code']})"
            lint[os.path.basename(entry["filename"])].append(Failure("lint", "no name is unused or undefined", told))
        # A diff, since the output of --check differs between versions of ruff.
        lines = _ruff(folder, parsed, "format", "--diff", "--line-length", _LINE).splitlines()
        unformatted = {line[4:] for line, next_ in pairwise(lines) if line[:4] == "--- " and next_[:4] == "+++ "}
        for file, text in own:
            found = [*text.failures, *lint[file.name]]
            if text.rendered and file.name in unformatted:
                found.append(Failure("format", "the template emits finished formatting", message))
            yield file, found


def _texts(work: Sequence[tuple[Path, Listed | None]]) -> Generator[Text, None, None]:
    """What is wrong with each text, in order; of many in worker processes, which closing the iterator ends."""
    workers = workers_by_default()
    if len(work) < _MANY or workers < 2:
        yield from starmap(rendered_text.check, work)
        return
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=begin_worker)
    try:
        yield from executor.map(rendered_text.check, *zip(*work, strict=True), chunksize=_CHUNK)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


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
