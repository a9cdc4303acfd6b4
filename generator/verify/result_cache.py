"""A cache of results, so that a second run proves only what has changed.

A line of its file has a key, a checksum and a result that passed. The key is the digest of all that the verdict read
(`generator.verify.job_inputs`), as the process that ran the job computed it: any change gives another key, so that no
line is ever out of date. Whoever can write the file can make a wrong kernel pass, so it is in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from generator.emit.manifest_reader import Rendered
from generator.files.reading import FileError, read_bytes
from generator.files.updating import update
from generator.files.writing import write
from generator.verify.job_inputs import InputReader
from generator.verify.jobs import Job, JobResult, JobState, Subject

NAME = "results.txt"
#: The folder of the generator below that of the caches of all programs.
_PROGRAM = "gemm-generator"
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{8}) (\{.*\})")
#: The most bytes of the file, whose oldest results make room for others.
_MOST = 32 << 20
#: Results wait in memory for about so many seconds, because the file is always written whole.
_SECONDS = 5.0
#: The fields of a result that are stored.
_FIELDS = ("cases", "worst_error", "place", "seconds", "measured", "rows_left_out", "rows", "full")


class ResultCache:
    """The results of earlier runs, in a file in a folder; `device` is the GPU's name, or None without a GPU.

    By default the folder is in the user's cache folder. A cache that cannot be used is a warning on standard error, and
    holds nothing; the warning names the caller's `option` for another folder. A `fresh` one ignores what it holds.
    """

    def __init__(
        self,
        folder: Path | None,
        families: Sequence[Rendered],
        device: str | None,
        option: str = "--cache",
        *,
        fresh: bool = False,
    ) -> None:
        self._folder, self._device, self._option, self._fresh = folder, device, option, fresh
        self._families = {family.folder: family for family in families}
        self._stored: dict[str, str] | None = None
        self._waiting: dict[str, str] = {}
        self._written = time.monotonic()
        self._warned = False
        #: The folders of which a static job has failed.
        self._failing: set[Path] = set()

    def cached(self, jobs: Sequence[Job]) -> tuple[list[JobResult], list[Job]]:
        """The cached results of `jobs`, and the jobs without one."""
        if self._fresh:
            return [], list(jobs)
        results, left, reader = [], [], InputReader()
        if self._stored is None:
            self._stored = {}
            with self._usable() as path:
                self._stored = self._read(path)
        for job in jobs:
            key = self._key(job, reader.of(job, self._families[job.folder]).digest)
            stored = self._waiting.get(key) or self._stored.get(key)
            if stored is None:
                left.append(job)
            else:
                results.append(_result(job, json.loads(stored)))
        return results, left

    def store(self, result: JobResult) -> None:
        """Store a result that passed, under the digest of what the job has read."""
        job = result.job
        if job.level == "static" and result.failures:
            # What is wrong with the folder's other files is a failure of one job, and must be found again by any other.
            self._failing.add(job.folder)
        if result.state is not JobState.PASSED or result.cached or not result.inputs:
            return
        if job.level != "static" or job.folder not in self._failing:
            values = {name: getattr(result, name) for name in _FIELDS}
            values["subject"] = result.subject and asdict(result.subject)
            self._waiting[self._key(job, result.inputs)] = json.dumps(values)
        if time.monotonic() - self._written > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._waiting:
            with self._usable() as path:
                if not path.parent.exists():
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    # Only in a folder of its own: it would hide other files from git.
                    write(path.parent / ".gitignore", "*\n")
                update(path, lambda: _text(self._read(path) | self._waiting))
            self._stored = (self._stored or {}) | self._waiting
            self._waiting = {}
        self._written = time.monotonic()

    def _key(self, job: Job, digest: str) -> str:
        """The key of a result: the digest of what was read, and at the level gpu of the device too."""
        device = f"{digest} {self._device}".encode()
        return hashlib.sha256(device).hexdigest() if digest and job.level == "gpu" else digest

    def _read(self, path: Path) -> dict[str, str]:
        """The results in the file by key."""
        try:
            lines = read_bytes(path).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        matches = [match for match in map(_LINE.fullmatch, lines) if match and match[2] == _checksum(match[3])]
        if len(matches) < len(lines):
            self._warn(path, f"{len(lines) - len(matches)} damaged lines are not used")
        return {match[1]: match[3] for match in matches}

    @contextlib.contextmanager
    def _usable(self) -> Iterator[Path]:
        """The file's path; within, whatever is wrong with the file is a warning."""
        path = Path(NAME)
        try:
            path = (self._folder or user_cache() / "verify") / NAME
            yield path
        except FileError as error:
            self._warn(error.path, error.reason)
        except (OSError, ValueError) as error:
            self._warn(path, getattr(error, "strerror", None) or str(error))

    def _warn(self, path: Path, reason: str) -> None:
        if not self._warned:
            self._warned = True
            advice = f"the proofs run without these; remove the file, or choose another folder with {self._option}"
            print(f"warning: {path}: the result cache: {reason}; {advice}", file=sys.stderr)


def _text(results: Mapping[str, str]) -> bytes:
    """The lines of the results, less the first ones where these are too many."""
    text = "".join(f"{key} {_checksum(value)} {value}\n" for key, value in results.items()).encode()
    return text if len(text) <= _MOST else text[text.find(b"\n", len(text) - _MOST) + 1 :]


def _checksum(value: str) -> str:
    return f"{zlib.crc32(value.encode()):08x}"


def _result(job: Job, values: Mapping[str, Any]) -> JobResult:
    subject = values["subject"] and Subject(**values["subject"])
    return JobResult(job, cached=True, **{**{name: _tuples(values[name]) for name in _FIELDS}, "subject": subject})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def user_cache() -> Path:
    """The folder of the generator's caches; raises `FileError` if this user has no home."""
    folder = Path(os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME") or ".")
    # A relative one is to be ignored by the XDG Base Directory Specification: it would lead into a checkout.
    if folder.is_absolute():
        return folder / _PROGRAM
    try:
        home = Path.home()
    except RuntimeError:
        raise FileError(Path("~"), "this user has no home, and XDG_CACHE_HOME names no absolute path") from None
    if not home.is_absolute():
        raise FileError(home, "the home of this user is not an absolute path")
    return home.joinpath(*(("Library", "Caches") if sys.platform == "darwin" else (".cache",)), _PROGRAM)
