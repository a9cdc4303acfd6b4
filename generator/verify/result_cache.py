"""A cache of results, keyed by everything that they depend on, so that a second run only proves what has changed.

The key of a result has these parts: the syntax tree of the code that the level depends on (the text at the static
level; for a contract's function, the code of all kernels that it may run); the kernel's entry in the manifest; the
level, and at the compile level launch and target; the modules of this package that the level imports; the versions of
the packages that these import; and the device. Any change gives another key, so that no entry is ever out of date. Only
results that passed are stored. Comments and docstrings, in kernels and in this package, change no key.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from generator.emit import code_parts, syntax_digest
from generator.emit.manifest_reader import Rendered
from generator.plan.kernels import Kernel
from generator.verify import dependencies
from generator.verify.installed import installed
from generator.verify.jobs import Job, Result, Subject
from generator.verify.launches import launches

_RUNS = ("triton", "torch", "numpy")
#: The installed packages that results of a level depend on.
PACKAGES = {"static": ("ruff",), "bounds": ("z3-solver",), "interpret": _RUNS, "compile": _RUNS, "gpu": _RUNS}


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return ""


class ResultCache:
    """The results of earlier runs, in a folder; `device` is the GPU's name, or None without a GPU."""

    def __init__(self, folder: Path, found: Sequence[Rendered], device: str | None) -> None:
        self.folder, self.device = folder, device
        self.families = {family.folder: family for family in found}
        self._parts: dict[Path, code_parts.Parts] = {}

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n")
        connection = sqlite3.connect(self.folder / "results.sqlite", timeout=60)
        for name in ("results", "parts"):
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        return connection

    def cached(self, jobs: Sequence[Job]) -> tuple[list[Result], list[Job]]:
        """The cached results of `jobs`, and the jobs or parts of jobs without one."""
        results, left = [], []
        for job in jobs:
            if job.level == "compile":
                names = self._launches(job)
                values = [self._get(key) for key in self._keys(job, names)]
                missing = tuple(name for name, value in zip(names, values, strict=True) if value is None)
                if names and not missing:
                    results.append(self._compiled(job, names, [value for value in values if value is not None]))
                else:
                    left.append(replace(job, chosen=missing) if len(missing) < len(names) else job)
                continue
            value = self._get(self._keys(job, [""])[0])
            if value is None:
                left.append(job)
            else:
                results.append(_result(job, self._subject(job), value))
        return results, left

    def whole(self, result: Result, asked: Job) -> Result:
        """The result of the job `asked`, of which `result` is the part that was not cached."""
        if result.job == asked or result.left_out is not None:
            return replace(result, job=asked)
        done = set(result.job.chosen)
        names = [name for name in self._launches(asked) if name not in done]
        values = [value for key in self._keys(asked, names) if (value := self._get(key)) is not None]
        earlier = self._compiled(asked, names, values)
        return replace(
            result, job=asked, cases=result.cases + earlier.cases, measured=earlier.measured + result.measured
        )

    def store(self, result: Result) -> None:
        """Store what passed of `result`, unless some of its cases did not run."""
        job = result.job
        if result.left_out is not None or result.cached or result.not_proved or (job.case and job.level != "compile"):
            return
        if job.level == "compile":
            failed = {failure.case for failure in result.failures}
            found = {name: figures for name, figures in result.measured if name not in failed}
            common = {"place": result.place, "seconds": result.seconds / max(result.cases, 1)}
            values = [common | {"measured": figures} for figures in found.values()]
            self._put(zip(self._keys(job, list(found)), values, strict=True))
        elif not result.failures:
            entry = asdict(result)
            self._put([(self._keys(job, [""])[0], {key: entry[key] for key in _FIELDS})])

    def _launches(self, job: Job) -> list[str]:
        assert job.target is not None
        kernel = self.families[job.folder].by_name[job.name]
        return [launch.name for launch in launches(kernel, job.target) if job.takes(launch.name)]

    def _compiled(self, job: Job, names: Sequence[str], values: Sequence[Mapping[str, Any]]) -> Result:
        measured = _measured((name, value["measured"]) for name, value in zip(names, values, strict=True))
        first: Mapping[str, Any] = values[0] if values else {"place": []}
        place = tuple((str(k), str(v)) for k, v in first["place"])
        seconds = sum(value["seconds"] for value in values)
        subject = self._subject(job)
        return Result(job, len(names), subject=subject, place=place, measured=measured, seconds=seconds, cached=True)

    @cached_property
    def _machines(self) -> dict[str, list[str]]:
        """For each level, the modules and versions that its results depend on."""
        versions = {package: _installed(package) for packages in PACKAGES.values() for package in packages}
        return {
            level: [
                dependencies.harness_digest(level),
                sys.version,
                *(f"{each} {versions[each]}" for each in packages),
            ]
            for level, packages in PACKAGES.items()
        }

    def _keys(self, job: Job, names: Sequence[str]) -> list[str]:
        """The key of the job for each of `names`: launches at the compile level, else one empty name."""
        common = [*self._machines[job.level], job.level, self._what(job), job.case or ""]
        if job.level == "compile":
            common[-1] = job.target or ""
        if job.level == "gpu":
            common.append(self.device or "")
        start = hashlib.sha256(json.dumps(common).encode())
        keys = []
        for name in names:
            digest = start.copy()
            digest.update(name.encode())
            keys.append(digest.hexdigest())
        return keys

    def _what(self, job: Job) -> str:
        """The subject of the proof: the code or texts, and their entries in the manifest."""
        family = self.families[job.folder]
        kernels: tuple[Kernel, ...] = family.contracts[job.name] if job.contract else (family.by_name[job.name],)
        if job.level == "static":
            code: list[object] = [_digest(path) for path in (job.file, *family.own_files)]
            code.append(family.digests[job.name])
        elif job.contract:
            files = [*family.own_files, *(family.file(kernel.name) for kernel in kernels)]
            code = [(path.name, self._parts_of(path)) for path in files]
        else:
            code = [self._subject(job)]
        return repr((code, kernels))

    def _subject(self, job: Job) -> Subject | None:
        """The code of a kernel that a job depends on, as in `loading.subject`."""
        return Subject.of(job, self._parts_of(job.file))

    def _parts_of(self, path: Path) -> code_parts.Parts:
        """The parts of a file, cached by its text; if it is not Python, each part is the text."""
        if path not in self._parts:
            text = _digest(path)
            key = "".join(
                (text, *(dependencies.module(name).digest for name in (code_parts.__name__, syntax_digest.__name__)))
            )
            found = self._get(key, "parts")
            if found is None:
                try:
                    found = asdict(code_parts.of_file(path))
                except (OSError, SyntaxError, ValueError):
                    found = asdict(code_parts.Parts(text, text, text))
                self._put([(key, found)], "parts")
            self._parts[path] = code_parts.Parts(**found)
        return self._parts[path]

    def _get(self, key: str, table: str = "results") -> dict[str, Any] | None:
        row = self._connection.execute(f"SELECT value FROM {table} WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def _put(self, entries: Iterator[tuple[str, Any]] | Sequence[tuple[str, Any]], table: str = "results") -> None:
        rows = [(key, json.dumps(value)) for key, value in entries]
        with self._connection:
            self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the database."""
        if "_connection" in self.__dict__:
            with closing(self._connection):
                pass


#: The fields of a result that are stored.
_FIELDS = ("cases", "worst_error", "vendor_error", "place", "seconds", "measured")


def _result(job: Job, subject: Subject | None, value: Mapping[str, Any]) -> Result:
    place = tuple((str(k), str(v)) for k, v in value["place"])
    found = {**value, "place": place, "measured": _measured(value["measured"])}
    return Result(job, subject=subject, **found, cached=True)


def _measured(found: Iterable[Any]) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    return tuple((str(name), tuple((str(k), int(v)) for k, v in figures)) for name, figures in found)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
