"""A cache of results, keyed by everything that they depend on, so that a second run only proves what has changed.

The key of a result has these parts: the syntax tree of the code that the level depends on (the text at the static
level; for a contract's function, the code of all kernels that it may run); the library in the family's folder; the
kernel's entry in the manifest; the level, and at the compile level launch and target; the modules of this package that
the level imports; the versions of the packages that these import; and the device. Any change gives another key, so that
no entry is ever out of date. Only results that passed are stored. Comments and docstrings, in kernels and in this
package, change no key.

Whoever knows this could compute keys, and store results of proofs that never ran. So the folder is the user's and not a
checkout's, and each entry is signed with a secret of this user on this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from generator.emit import code_parts, syntax_digest
from generator.emit.manifest_reader import Rendered
from generator.emit.render import SHARED_MEMORY
from generator.files.checked_json import Schema
from generator.files.reading import FileError, read_bytes, read_text
from generator.files.signed_store import SignedStore
from generator.files.user_cache import secret, user_cache
from generator.plan.kernels import Kernel
from generator.verify import dependencies, folder_files
from generator.verify.installed import installed
from generator.verify.jobs import Job, JobResult, Subject
from generator.verify.launches import launches
from generator.verify.offered_rows import left_out_rows

_RUNS = ("triton", "torch", "numpy")
#: The comments at the head of a module.
_COMMENTS = re.compile(r"(?:#.*\n)*")
#: The installed packages that results of a level depend on.
PACKAGES = {"static": ("ruff",), "bounds": ("z3-solver",), "interpret": _RUNS, "compile": _RUNS, "gpu": _RUNS}


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return ""


class ResultCache:
    """The results of earlier runs, in a folder; `device` is the GPU's name, or None without a GPU.

    By default the folder is the user's. A cache that cannot be used is a warning on standard error, and holds nothing;
    the warning names the caller's `option` for another folder.
    """

    def __init__(
        self, folder: Path | None, found: Sequence[Rendered], device: str | None, option: str = "--cache"
    ) -> None:
        self.device = device
        self.families = {family.folder: family for family in found}
        self._parts: dict[Path, code_parts.Parts] = {}
        self._store = SignedStore(
            lambda: folder or user_cache() / "verify",
            secret,
            ("results", "parts"),
            lambda path, reason: _warn(path, reason, option),
        )
        #: The folders of which a static job has failed, and each folder's state at the static level.
        self._failing: set[Path] = set()
        self._states: dict[Path, str] = {}
        self._machines: dict[str, list[str]] = {}
        #: The modules of each folder's library, each with its digest.
        self._libraries: dict[Path, list[tuple[str, str]]] = {}

    def cached(self, jobs: Sequence[Job]) -> tuple[list[JobResult], list[Job]]:
        """The cached results of `jobs`, and the jobs or parts of jobs without one."""
        results, left = [], []
        for job in jobs:
            if job.level == "compile":
                names = self._launches(job)
                values = [self._get(key, _LAUNCH) for key in self._keys(job, names)]
                missing = tuple(name for name, value in zip(names, values, strict=True) if value is None)
                if names and not missing:
                    results.append(self._compiled(job, names, [value for value in values if value is not None]))
                else:
                    left.append(replace(job, chosen=missing) if len(missing) < len(names) else job)
                continue
            value = self._get(self._keys(job, [""])[0], _RESULT)
            if value is None:
                left.append(job)
            else:
                results.append(_result(job, self._subject(job), value))
        return results, left

    def whole(self, result: JobResult, asked: Job) -> JobResult:
        """The result of the job `asked`, of which `result` is the part that was not cached."""
        if result.job == asked or result.left_out is not None:
            return replace(result, job=asked)
        done = set(result.job.chosen)
        names = [name for name in self._launches(asked) if name not in done]
        values = [value for key in self._keys(asked, names) if (value := self._get(key, _LAUNCH)) is not None]
        earlier = self._compiled(asked, names, values)
        return replace(
            result, job=asked, cases=result.cases + earlier.cases, measured=earlier.measured + result.measured
        )

    def store(self, result: JobResult) -> None:
        """Store what passed of `result`, unless some of its cases did not run."""
        job = result.job
        if result.left_out is not None or result.cached or result.not_proved:
            return
        if job.level != "compile" and (job.case or job.chosen or job.recorded):
            return
        if job.level == "compile":
            failed = {failure.case for failure in result.failures}
            found = {name: figures for name, figures in result.measured if name not in failed}
            common = {"place": result.place, "seconds": result.seconds / max(result.cases, 1)}
            values = [common | {"measured": figures} for figures in found.values()]
            self._store.put("results", zip(self._keys(job, list(found)), values, strict=True))
        elif job.level == "static" and (result.failures or job.folder in self._failing):
            # What is wrong with the folder's other files is a failure of one job, and must be found again by any other.
            self._failing.add(job.folder)
        elif not result.failures:
            entry = asdict(result)
            self._store.put("results", [(self._keys(job, [""])[0], {key: entry[key] for key in _FIELDS})])

    def _launches(self, job: Job) -> list[str]:
        assert job.target is not None
        kernel = self.families[job.folder].by_name[job.name]
        return [launch.name for launch in launches(kernel, job.target) if job.takes(launch.name)]

    def _compiled(self, job: Job, names: Sequence[str], values: Sequence[Mapping[str, Any]]) -> JobResult:
        measured = _measured((name, value["measured"]) for name, value in zip(names, values, strict=True))
        first: Mapping[str, Any] = values[0] if values else {"place": []}
        place = tuple((str(k), str(v)) for k, v in first["place"])
        seconds = sum(value["seconds"] for value in values)
        subject = self._subject(job)
        assert job.target is not None
        rows = left_out_rows(self.families[job.folder].by_name[job.name], job.target)
        return JobResult(
            *(job, len(names)),
            subject=subject,
            place=place,
            measured=measured,
            seconds=seconds,
            rows_left_out=rows,
            cached=True,
        )

    def _machine(self, level: str) -> list[str]:
        """The modules and versions that the results of a level depend on."""
        if level not in self._machines:
            versions = [f"{package} {_installed(package)}" for package in PACKAGES[level]]
            self._machines[level] = [dependencies.harness_digest(level), sys.version, *versions]
        return self._machines[level]

    def _keys(self, job: Job, names: Sequence[str]) -> list[str]:
        """The key of the job for each of `names`: launches at the compile level, else one empty name."""
        common = [*self._machine(job.level), job.level, self._what(job), job.case or ""]
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
            code: list[object] = [_digest(job.file), self._state(family)]
            code += [family.digests[job.name], family.files[job.file.name]]
        elif job.contract:
            own = [path for path in family.own_files if path.parent == family.folder]
            files = [*own, *(family.file(kernel.name) for kernel in kernels)]
            code = [*((path.name, self._parts_of(path)) for path in files), self._library(family)]
        else:
            code = [self._subject(job), self._library(family)]
        return repr((code, kernels))

    def _library(self, family: Rendered) -> list[tuple[str, str]]:
        """The modules of the family's library, which every level but the static one reads or runs, with digests."""
        if family.folder not in self._libraries:
            folder = family.folder / "_runtime"
            found = [*sorted(folder.rglob("*.py")), *family.folder.glob(SHARED_MEMORY)]
            self._libraries[family.folder] = [(os.path.relpath(path, folder), _tree(path)) for path in found]
        return self._libraries[family.folder]

    def _state(self, family: Rendered) -> str:
        if family.folder not in self._states:
            self._states[family.folder] = folder_files.state(family)
        return self._states[family.folder]

    def _subject(self, job: Job) -> Subject | None:
        """The code of a kernel that a job depends on, as in `loading.subject`."""
        return None if job.contract or job.level == "static" else Subject.of(job, self._parts_of(job.file))

    def _parts_of(self, path: Path) -> code_parts.Parts:
        """The parts of a file, cached by its text; if it is not Python, each part is the text."""
        if path not in self._parts:
            text = _digest(path)
            key = "".join(
                (text, *(dependencies.module(name).digest for name in (code_parts.__name__, syntax_digest.__name__)))
            )
            found = self._store.get("parts", key, _PARTS)
            if found is None:
                try:
                    found = asdict(code_parts.of_file(path))
                except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                    found = asdict(code_parts.Parts(text, text, text))
                self._store.put("parts", [(key, found)])
            self._parts[path] = code_parts.Parts(**found)
        return self._parts[path]

    def _get(self, key: str, schema: Schema) -> Any:
        return self._store.get("results", key, schema)

    def close(self) -> None:
        """Store what is not stored yet, and close the database."""
        self._store.close()


def _warn(path: Path, reason: str, option: str) -> None:
    advice = f"the proofs run without these; remove the file, or choose another folder with {option}"
    print(f"warning: {path}: the result cache: {reason}; {advice}", file=sys.stderr)


def _pairs(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON Schema of a list of names, each with a value."""
    return {
        "type": "array",
        "items": {
            "type": "array",
            "items": [{"type": "string"}, value],
            "minItems": 2,
            "maxItems": 2,
        },
    }


_FIGURES = _pairs({"type": "integer"})
#: The fields of a result that are stored.
_FIELDS: Mapping[str, Any] = {
    "cases": {"type": "integer", "minimum": 1},
    "worst_error": {"type": "number"},
    "vendor_error": {"type": ["number", "null"]},
    "place": _pairs({"type": "string"}),
    "seconds": {"type": "number"},
    "measured": _pairs(_FIGURES),
    "rows": _FIGURES,
    "full": {"type": "string"},
}


def _object(fields: Mapping[str, Any]) -> Schema:
    return Schema({"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False})


_RESULT = _object(_FIELDS)
#: A launch that was compiled: where, in how many seconds, and the figures of its machine code.
_LAUNCH = _object({"place": _FIELDS["place"], "seconds": _FIELDS["seconds"], "measured": _FIGURES})
_PARTS = _object({part.name: {"type": "string"} for part in fields(code_parts.Parts)})


def _result(job: Job, subject: Subject | None, value: Mapping[str, Any]) -> JobResult:
    place = tuple((str(k), str(v)) for k, v in value["place"])
    rows = tuple((str(name), int(count)) for name, count in value["rows"])
    found = {**value, "place": place, "measured": _measured(value["measured"]), "rows": rows}
    return JobResult(job, subject=subject, **found, cached=True)


def _measured(found: Iterable[Any]) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    return tuple((str(name), tuple((str(k), int(v)) for k, v in figures)) for name, figures in found)


def _tree(path: Path) -> str:
    """The digest of a module's syntax tree; of its text if it is not Python in UTF-8."""
    try:
        text = read_text(path)
        head = _COMMENTS.match(text)
        if head is None or "coding" in head[0]:
            return _digest(path)
        # Families have the same modules with another comment at their head, and each text is parsed once.
        return syntax_digest.digest(text[head.end() :])
    except (FileNotFoundError, FileError, SyntaxError, ValueError, RecursionError, MemoryError):
        return _digest(path)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except (FileNotFoundError, FileError):
        return ""
