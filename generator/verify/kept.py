"""Results kept by what they depend on, so that a second run does only what has changed.

A result is known by the digest of the kernel's text, what the manifest says of it, the level, at the compile level the
launch and its target, the versions of triton, torch and numpy, the device, and the text of the harness. A change to any
of these makes another key: nothing is ever out of date, and only what passed is kept.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import generator
from generator.model import Kernel
from generator.rendered import Rendered
from generator.verify.jobs import Job, Result
from generator.verify.launches import launches

_VERSIONS = ("triton", "torch", "numpy", "ruff", "z3-solver")


@cache
def harness_digest() -> str:
    """Digest of every module of the package: a harness that has changed knows nothing of earlier results."""
    found = hashlib.sha256()
    root = Path(generator.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Kept:
    """The results of earlier runs in a folder; `device` is the GPU's name where there is one."""

    def __init__(self, folder: Path, found: Sequence[Rendered], device: str | None) -> None:
        self.folder, self.device = folder, device
        self.families = {family.folder: family for family in found}

    @cached_property
    def _machine(self) -> list[str]:
        versions = [f"{package} {_installed(package)}" for package in _VERSIONS]
        return [harness_digest(), sys.version, *versions]

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n")
        connection = sqlite3.connect(self.folder / "results.sqlite", timeout=60)
        connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        return connection

    def known(self, jobs: Sequence[Job]) -> tuple[list[Result], list[Job]]:
        """The results that are kept, and the jobs, or the parts of jobs, that are left to do."""
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
                results.append(_result(job, value))
        return results, left

    def whole(self, result: Result, asked: Job) -> Result:
        """The result of `asked`, of which `result` is the part that was not known."""
        if result.job == asked or result.left_out is not None:
            return replace(result, job=asked)
        done = set(result.job.chosen)
        names = [name for name in self._launches(asked) if name not in done]
        values = [value for key in self._keys(asked, names) if (value := self._get(key)) is not None]
        earlier = self._compiled(asked, names, values)
        return replace(
            result, job=asked, cases=result.cases + earlier.cases, measured=earlier.measured + result.measured
        )

    def keep(self, result: Result) -> None:
        """Remember what passed of `result`."""
        job = result.job
        if result.left_out is not None or result.kept or result.not_proved or (job.case and job.level != "compile"):
            return
        if job.level == "compile":
            failed = {failure.case for failure in result.failures}
            found = {name: figures for name, figures in result.measured if name not in failed}
            common = {"digest": result.digest, "place": result.place, "seconds": result.seconds / max(result.cases, 1)}
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
        first: Mapping[str, Any] = values[0] if values else {"digest": "", "place": []}
        place = tuple((str(k), str(v)) for k, v in first["place"])
        seconds = sum(value["seconds"] for value in values)
        return Result(
            job, len(names), digest=first["digest"], place=place, measured=measured, seconds=seconds, kept=True
        )

    def _keys(self, job: Job, names: Sequence[str]) -> list[str]:
        """The key of the job, at the compile level of each launch named."""
        common = [*self._machine, job.level, self._subject(job), job.case or ""]
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

    def _subject(self, job: Job) -> str:
        """What is proved: the texts, and what the manifest says of them."""
        family = self.families[job.folder]
        kernels: tuple[Kernel, ...] = family.contracts[job.name] if job.contract else (family.by_name[job.name],)
        files = [job.file, *(family.file(kernel.name) for kernel in kernels)]
        digests = [_digest(path) for path in dict.fromkeys(files)]
        if job.level == "static" or job.contract:
            digests += [_digest(path) for path in family.own_files]
        return repr((digests, kernels))

    def _get(self, key: str) -> dict[str, Any] | None:
        row = self._connection.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def _put(self, entries: Iterator[tuple[str, Any]] | Sequence[tuple[str, Any]]) -> None:
        rows = [(key, json.dumps(value)) for key, value in entries]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?)", rows)

    def close(self) -> None:
        """Let go of the folder."""
        if "_connection" in self.__dict__:
            with closing(self._connection):
                pass


#: The fields of a result that are kept.
_FIELDS = ("cases", "worst_error", "vendor_error", "digest", "place", "seconds", "measured")


def _result(job: Job, value: Mapping[str, Any]) -> Result:
    place = tuple((str(k), str(v)) for k, v in value["place"])
    return Result(job, **{**value, "place": place, "measured": _measured(value["measured"])}, kept=True)


def _measured(found: Iterable[Any]) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    return tuple((str(name), tuple((str(k), int(v)) for k, v in figures)) for name, figures in found)


@cache
def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
