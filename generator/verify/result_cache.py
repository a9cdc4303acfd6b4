"""A cache of results, so that a second run proves only what has changed.

A line of its file has a key, a checksum and a result that passed. The key is the digest of all that the verdict read
(`generator.verify.job_inputs`), as the process that ran the job computed it: any change gives another key, so that no
line is ever out of date. Whoever can write the file can make a wrong kernel pass, so it is in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from generator.emit.manifest_reader import Rendered
from generator.files.locking import alone
from generator.files.reading import FileError, read_bytes
from generator.files.updating import require_regular
from generator.files.user_cache import user_cache
from generator.files.writing import write
from generator.verify.job_inputs import InputReader
from generator.verify.jobs import Job, JobResult, JobState, Subject

NAME = "results.txt"
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{8}) (\{.*\})")
#: The most bytes of the file; what would make it larger replaces the oldest half.
_MOST = 64 << 20
#: Results wait in memory for about so many seconds, because each one that is written waits for the disk.
_SECONDS = 1.0
#: The fields of a result that are stored.
_FIELDS = (
    *("cases", "worst_error", "vendor_error", "subject", "place"),
    *("seconds", "measured", "rows_left_out", "rows", "full"),
)


class ResultCache:
    """The results of earlier runs, in a file in a folder; `device` is the GPU's name, or None without a GPU.

    By default the folder is in the user's cache folder. A cache that cannot be used is a warning on standard error, and
    holds nothing; the warning names the caller's `option` for another folder.
    """

    def __init__(
        self, folder: Path | None, found: Sequence[Rendered], device: str | None, option: str = "--cache"
    ) -> None:
        self._folder, self._device, self._option = folder, device, option
        self._families = {family.folder: family for family in found}
        self._lines: dict[str, str] | None = None
        self._waiting: dict[str, str] = {}
        self._written = time.monotonic()
        self._damaged = self._warned = self._unusable = False
        #: The folders of which a static job has failed.
        self._failing: set[Path] = set()

    def cached(self, jobs: Sequence[Job]) -> tuple[list[JobResult], list[Job]]:
        """The cached results of `jobs`, and the jobs without one."""
        results, left, reader = [], [], InputReader()
        if self._lines is None:
            self._lines = {}
            with self._usable() as path:
                self._lines = self._read(path)
        for job in jobs:
            key = self._key(job, reader.of(job, self._families[job.folder]).digest)
            line = self._waiting.get(key) or self._lines.get(key)
            if line is None:
                left.append(job)
            else:
                results.append(_result(job, json.loads(line)))
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
            values = asdict(result)
            self._waiting[self._key(job, result.inputs)] = json.dumps({name: values[name] for name in _FIELDS})
        if time.monotonic() - self._written > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        self._written = time.monotonic()
        if not self._waiting or self._unusable:
            return
        with self._usable() as path:
            if not path.parent.exists():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Only in a folder of its own: it would hide other files from git.
                write(path.parent / ".gitignore", "*\n")
            require_regular(path)
            added = _text(self._waiting)
            with alone(path.parent):
                if self._damaged or (path.exists() and path.stat().st_size + len(added) > _MOST):
                    write(path, _newest(self._read(path) | self._waiting))
                    self._damaged = False
                else:
                    with path.open("ab") as file:
                        file.write(added)
            self._lines = (self._lines or {}) | self._waiting
            self._waiting = {}

    def _key(self, job: Job, digest: str) -> str:
        """The key of a result: the digest of what was read, and at the level gpu of the device too."""
        device = f"{digest} {self._device}".encode()
        return hashlib.sha256(device).hexdigest() if digest and job.level == "gpu" else digest

    def _read(self, path: Path) -> dict[str, str]:
        """The results in the file by key; of several with one key the last."""
        try:
            lines = read_bytes(path, 2 * _MOST).decode(errors="replace").split("\n")
        except FileNotFoundError:
            return {}
        found, damaged = {}, 0
        for line in filter(None, lines):
            match = _LINE.fullmatch(line)
            if match and match[2] == _checksum(match[1], match[3]):
                found[match[1]] = match[3]
            else:
                damaged += 1
        if damaged:
            self._damaged = True
            self._warn(path, f"{damaged} damaged lines are not used")
        return found

    @contextlib.contextmanager
    def _usable(self) -> Iterator[Path]:
        """The file's path; within, whatever is wrong with the file is a warning."""
        path = Path(NAME)
        try:
            path = (self._folder or user_cache() / "verify") / NAME
            yield path
        except (OSError, ValueError, FileError) as error:
            self._unusable = True
            self._warn(
                getattr(error, "path", path),
                getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error),
            )

    def _warn(self, path: Path, reason: str) -> None:
        if not self._warned:
            self._warned = True
            advice = f"the proofs run without these; remove the file, or choose another folder with {self._option}"
            print(f"warning: {path}: the result cache: {reason}; {advice}", file=sys.stderr)


def _checksum(key: str, value: str) -> str:
    return f"{zlib.crc32(f'{key} {value}'.encode()):08x}"


def _text(results: Mapping[str, str]) -> bytes:
    """The lines of results; each begins with the end of the one before, which a process that was killed left out."""
    return "".join(f"\n{key} {_checksum(key, value)} {value}" for key, value in results.items()).encode()


def _newest(results: Mapping[str, str]) -> bytes:
    """The lines of the results that were stored last, at most half of what the file may have."""
    text = _text(results)
    return text if len(text) <= _MOST // 2 else text[text.find(b"\n", len(text) - _MOST // 2) :]


def _result(job: Job, values: Mapping[str, Any]) -> JobResult:
    subject = values["subject"] and Subject(**values["subject"])
    return JobResult(job, cached=True, **{**{k: _tuples(v) for k, v in values.items()}, "subject": subject})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
