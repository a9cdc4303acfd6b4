"""The text of rendered files: it parses, lints clean, is formatted, matches its digest, imports what it may."""

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
#: What a rendered file may import besides Python's own library.
_PACKAGES = frozenset({"torch", "triton"})
#: Python's own library: everything but what is installed beside it.
_STANDARD = sys.stdlib_module_names


def run(jobs: Sequence[Job]) -> Iterator[Result]:
    """The results of the static jobs: each kernel's file, with its family's own files counted to its first."""
    files = {job: job.file for job in jobs}
    own = {folder: remembered(folder).own_files for folder in {job.folder for job in jobs}}
    faults = check(sorted({*files.values(), *(file for found in own.values() for file in found)}))
    for job, file in files.items():
        wrong = faults.get(file, [])
        wrong = [*wrong, *(failure for other in own.pop(job.folder, ()) for failure in faults.get(other, []))]
        wrong = [*wrong, *_tables(file, remembered(job.folder).by_name[job.name])]
        _, digest = stated_and_actual_digest(file.read_text())
        if digest != remembered(job.folder).digests.get(job.name):
            wrong = [*wrong, Failure("manifest", "the manifest lists the body's digest", f"it lists no {digest}")]
        yield Result(job, cases=1, failures=tuple(wrong))


def _tables(file: Path, kernel: Kernel) -> Iterator[Failure]:
    """Where the file's tables are not those that the manifest tells of."""
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
                "manifest", "the file's tables are the manifest's", f"{name} is {found.get(name)}, not {table}"
            )


def check(files: Sequence[Path]) -> dict[Path, list[Failure]]:
    """What is wrong with the text of each of `files`; raise `CallError` where ruff is not installed."""
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
        yield "ascii", "the file is ASCII", f"line {line} is not"
    stated, actual = stated_and_actual_digest(text)
    if stated != actual:
        yield "digest", "the body is what its digest says", f"the file states {stated}, its body has {actual}"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        yield "parse", "the file is Python", str(error)
        return
    strange = sorted(_imports(tree) - _PACKAGES - _STANDARD)
    if strange:
        yield "imports", "the file needs torch, triton and Python alone", f"it imports {', '.join(strange)}"


def _imports(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports; those of its own folder are not counted."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _ruff(*arguments: str, files: Sequence[Path]) -> str:
    """The standard output of one call of ruff over all files, with no configuration but the arguments."""
    call = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--isolated", *map(str, files)]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode not in (0, 1) or "No module named ruff" in done.stderr:
        raise CallError(f"the static level needs ruff (pip install ruff): {done.stderr.strip()}")
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
    # A diff, since what a plain check prints has changed between versions.
    lines = _ruff("format", "--diff", "--line-length", _LINE, files=files).splitlines()
    known = {file.resolve(): file for file in files}
    for line, following in pairwise(lines):
        if line.startswith("--- ") and following.startswith("+++ ") and Path(line[4:]).resolve() in known:
            yield known[Path(line[4:]).resolve()]
