"""Checks of the text of rendered files: it parses, lints clean, is formatted, and matches digest and manifest."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from generator.emit.manifest_reader import remembered
from generator.language.errors import CallError
from generator.plan.kernels import Kernel
from generator.verify.jobs import Failure, Job, Result
from generator.verify.loading import stated_and_actual_digest
from generator.verify.manifest_configurations import tables

_LINE = "120"
#: The packages that a rendered file may import besides Python's standard library.
_PACKAGES = frozenset({"torch", "triton"})
#: The modules of Python's standard library.
_STANDARD = sys.stdlib_module_names


def run(jobs: Sequence[Job]) -> Iterator[Result]:
    """The results of the static jobs, one per kernel's file; the family's other files count to its first job."""
    files = {job: job.file for job in jobs}
    own = {folder: remembered(folder).own_files for folder in {job.folder for job in jobs}}
    faults = check(sorted({*files.values(), *(file for found in own.values() for file in found)}))
    for job, file in files.items():
        wrong = faults.get(file, [])
        wrong = [*wrong, *(failure for other in own.pop(job.folder, ()) for failure in faults.get(other, []))]
        wrong = [*wrong, *_tables(file, remembered(job.folder).by_name[job.name])]
        _, digest = stated_and_actual_digest(file.read_text())
        if digest != remembered(job.folder).digests.get(job.name):
            wrong = [*wrong, Failure("manifest", "the manifest lists the body's digest", f"it does not list {digest}")]
        yield Result(job, cases=1, failures=tuple(wrong))


def _tables(file: Path, kernel: Kernel) -> Iterator[Failure]:
    """A failure for each table of the file that differs from the manifest."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    found = {
        target.id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name, table in tables(kernel).items():
        if found.get(name) != repr(table):
            yield Failure(
                "manifest", "the file's tables match the manifest", f"{name} is {found.get(name)}, not {table}"
            )


def check(files: Sequence[Path]) -> dict[Path, list[Failure]]:
    """The failures of each of `files`; raise `CallError` if ruff is not installed."""
    found: dict[Path, list[Failure]] = defaultdict(list)
    for file in files:
        found[file] += [Failure(case, reason, message) for case, reason, message in _text(file)]
    for file, message in _lint(files):
        found[file].append(Failure("lint", "no name is unused or undefined", message))
    parsed = [file for file in files if not any(failure.case == "parse" for failure in found[file])]
    for file in _unformatted(parsed):
        message = f"`ruff format --line-length {_LINE}` would change it"
        found[file].append(Failure("format", "the template emits finished formatting", message))
    return found


def _text(file: Path) -> Iterable[tuple[str, str, str]]:
    text = file.read_bytes().decode("utf-8", errors="replace")
    if not text.isascii():
        line = next(i for i, line in enumerate(text.split("\n"), 1) if not line.isascii())
        yield "ascii", "the file is ASCII", f"line {line} is not ASCII"
    stated, actual = stated_and_actual_digest(text)
    if stated != actual:
        yield "digest", "the body matches its digest", f"the file states {stated}, but its body has {actual}"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        yield "parse", "the file is Python", str(error)
        return
    others = sorted(_imports(tree) - _PACKAGES - _STANDARD)
    if others:
        yield "imports", "the file needs only torch, triton and Python", f"it imports {', '.join(others)}"


def _imports(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports, without relative imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _ruff(*arguments: str, files: Sequence[Path]) -> str:
    """The standard output of ruff on all files, configured by the arguments alone."""
    call = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--isolated", *map(str, files)]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode not in (0, 1) or "No module named ruff" in done.stderr:
        raise CallError(f"the static level needs ruff; install it with pip install ruff: {done.stderr.strip()}")
    return done.stdout


def _lint(files: Sequence[Path]) -> Iterable[tuple[Path, str]]:
    if not files:
        return
    output = _ruff("check", "--select", "F,E9", "--output-format", "json", files=files)
    known = {file.resolve(): file for file in files}
    for entry in json.loads(output):
        message = f"line {entry['location']['row']}: {entry['message']} ({entry['code']})"
        yield known[Path(entry["filename"]).resolve()], message


def _unformatted(files: Sequence[Path]) -> Iterable[Path]:
    if not files:
        return
    # A diff, since the output of --check differs between versions of ruff.
    lines = _ruff("format", "--diff", "--line-length", _LINE, files=files).splitlines()
    known = {file.resolve(): file for file in files}
    for line, following in pairwise(lines):
        if line.startswith("--- ") and following.startswith("+++ ") and Path(line[4:]).resolve() in known:
            yield known[Path(line[4:]).resolve()]
