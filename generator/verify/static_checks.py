"""Checks of the text of rendered files: it parses, lints clean, is formatted, and matches digest and manifest."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.emit.manifest_reader import Rendered, remembered
from generator.language.errors import CallError
from generator.plan.claims import waits
from generator.plan.kernels import Kernel
from generator.verify import folder_files, rendered_text
from generator.verify.job_inputs import InputReader, with_inputs
from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.manifest_configurations import tables
from generator.verify.parallel import each
from generator.verify.rendered_text import Listed, Text

_LINE = "120"
#: The most bytes of names in one call of ruff: all systems but one take 128 KiB of arguments at least.
_MOST = 24_000 if sys.platform == "win32" else 100_000
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
    with contextlib.closing(texts := each(_text, work, _MANY)):
        checked = zip((file for file, _ in work), texts, strict=True)
        while group := list(islice(checked, _GROUP)):
            yield from _with_ruff(group)


def _with_ruff(group: Sequence[tuple[Path, Text]]) -> Iterator[tuple[Path, list[Failure]]]:
    """The files with the failures of their texts, and with what ruff finds in those that are Python."""
    lint: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    parsed = [file for file, text in group if text.parsed]
    for path, message in _lint(parsed):
        lint[path].append(Failure("lint", "no name is unused or undefined", message))
    unformatted = set(_unformatted(parsed))
    message = f"`ruff format --line-length {_LINE}` would change it"
    for file, text in group:
        found = [*text.failures, *lint.get(_key(file), ())]
        if text.rendered and _key(file) in unformatted:
            found.append(Failure("format", "the template emits finished formatting", message))
        yield file, found


def _text(work: tuple[Path, Listed | None]) -> Text:
    return rendered_text.check(*work)


def _ruff(*arguments: str, files: Sequence[Path]) -> Iterator[str]:
    """The standard output of ruff on parts of the files, configured by the arguments alone."""
    with TemporaryDirectory() as links:
        for part in _parts(_nameable(files, Path(links))):
            call = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--isolated", "--", *part]
            done = subprocess.run(call, capture_output=True, encoding="utf-8", errors="surrogateescape")
            if done.returncode not in (0, 1) or "No module named ruff" in done.stderr:
                raise CallError(f"the static level needs ruff; install it with pip install ruff: {done.stderr.strip()}")
            yield done.stdout


def _nameable(files: Iterable[Path], links: Path) -> Iterator[str]:
    """The absolute paths of the files; by a link in the folder `links` where ruff cannot read one that is not UTF-8."""
    made: dict[str, str] = {}
    for file in files:
        # A relative path could begin with a character that ruff takes for something else.
        folder, name = os.path.split(os.path.abspath(file))
        if folder not in made:
            made[folder] = folder
            try:
                os.fsencode(folder).decode()
            except UnicodeDecodeError:
                made[folder] = str(links / str(len(made)))
                os.symlink(folder, made[folder])
        yield os.path.join(made[folder], name)


def _parts(paths: Iterable[str]) -> Iterator[list[str]]:
    """The paths in parts that a command line can hold."""
    part: list[str] = []
    size = 0
    for path in paths:
        length = len(os.fsencode(path)) + 1
        if part and size + length > _MOST:
            yield part
            part, size = [], 0
        part.append(path)
        size += length
    if part:
        yield part


def _lint(files: Sequence[Path]) -> Iterator[tuple[tuple[str, str], str]]:
    for output in _ruff("check", "--select", "F,E9", "--output-format", "json", files=files):
        for entry in json.loads(output):
            message = f"line {entry['location']['row']}: {entry['message']} ({entry['code']})"
            yield _key(_named(entry["filename"])), message


def _unformatted(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    known = {_key(file) for file in files}
    # A diff, since the output of --check differs between versions of ruff.
    for output in _ruff("format", "--diff", "--line-length", _LINE, files=files):
        for line, following in pairwise(output.splitlines()):
            if line.startswith("--- ") and following.startswith("+++ ") and _key(_named(line[4:])) in known:
                yield _key(_named(line[4:]))


def _named(text: str) -> Path:
    """The path that ruff writes as UTF-8, as Python spells it in the encoding of the file system."""
    return Path(os.fsdecode(text.encode(errors="surrogateescape")))


def _key(file: Path) -> tuple[str, str]:
    """The same for all paths that lead to a file by its own name, as ruff and a caller spell it."""
    folder, name = os.path.split(os.path.abspath(file))
    return _real(folder), name


@cache
def _real(folder: str) -> str:
    return os.path.realpath(folder)
