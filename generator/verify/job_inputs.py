"""What a verdict depends on, as one digest: whatever a job reads, byte for byte.

The process that runs a job takes its inputs before the job and after it. If they are the same, the verdict is about
these bytes, and the result cache stores it under their digest; if not, the job has failed. A file that is changed and
changed back has another time of change, so that this is noticed too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path

from generator.emit.manifest_reader import Rendered, remembered
from generator.files.package_data import PACKAGE
from generator.files.reading import FileError, read_bytes
from generator.verify import folder_files
from generator.verify.jobs import Failure, Job, JobResult

#: The modules of packages that have another name.
_MODULES = {"z3-solver": "z3"}
#: The files of a package that may state its version, and how.
_STATING = ("__init__.py", "version.py", "_version.py")
_VERSION = re.compile(r"""^__version__(?:: str)? = ["']([^"']+)["']""", re.MULTILINE)
_RUNS = ("triton", "torch", "numpy")
#: The installed packages that results of a level depend on.
PACKAGES = {"static": ("ruff",), "bounds": ("z3-solver", *_RUNS), "interpret": _RUNS, "compile": _RUNS, "gpu": _RUNS}


@dataclass(frozen=True)
class JobInputs:
    """What one job reads: the digest, or none where Python could import what no digest is of; the files' times."""

    digest: str
    times: tuple[tuple[int, ...], ...]


class InputReader:
    """Takes the inputs of jobs as they are now; each file is read once, whatever the number of jobs."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[str | None, tuple[int, ...]]] = {}
        #: What jobs of a folder, at the level static or another, read of its manifest; None as for `JobInputs.digest`.
        self._manifests: dict[tuple[Path, bool], str | None] = {}

    def of(self, job: Job, family: Rendered) -> JobInputs:
        """The inputs of a job: this package, the versions of others, the job, the manifest, and the family's files.

        Of the manifest only the static level reads more than the entries of the job's kernels. The files are those of
        these kernels, and all that are no kernel's, such as `_runtime`.
        """
        static = job.level == "static"
        of = family.folder, static
        if of not in self._manifests:
            entries = _digest(family.contents) if static else ""
            self._manifests[of] = None if folder_files.unlisted(family, compiled=static) else entries
        kernels = family.contracts[job.name] if job.contract else (family.by_name[job.name],)
        names = [f"{kernel.name}.py" for kernel in kernels] + family.own_names
        digests, times = zip(*(self._file(family.folder / name) for name in names), strict=True)
        read = [repr(replace(job, folder=Path())), repr(kernels), self._manifests[of], names, digests]
        return JobInputs("" if self._manifests[of] is None else _digest([*_environment(job.level), *read]), times)

    def _file(self, path: Path) -> tuple[str | None, tuple[int, ...]]:
        """The digest of a file, None where there is none, and what changes whenever the file does."""
        if path not in self._files:
            try:
                status = os.stat(path)
                digest = hashlib.sha256(read_bytes(path)).hexdigest()
                times = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                self._files[path] = digest, times
            except (OSError, FileError) as error:
                self._files[path] = None if isinstance(error, FileNotFoundError) else str(error), ()
        return self._files[path]


def _digest(read: object) -> str:
    return hashlib.sha256(json.dumps(read).encode()).hexdigest()


def run_with_inputs(job: Job, run: Callable[[Job], JobResult]) -> JobResult:
    """The result of a job, with the digest of what was read; `run` runs it in this process."""
    family = remembered(job.folder)
    before = InputReader().of(job, family)
    return with_inputs(run(job), before, InputReader().of(job, family))


def with_inputs(result: JobResult, before: JobInputs, after: JobInputs) -> JobResult:
    """The result of a job that had these inputs before it ran and after it; it has failed if they are not the same."""
    if before == after:
        return replace(result, inputs=before.digest)
    message = f"a file of {result.job.folder} changed while the job ran; run it again"
    failure = Failure("process", "the files under proof stay as they are", message)
    # The process may have loaded modules that are no longer there: other jobs are for another one.
    return replace(result, failures=(*result.failures, failure), lost=True)


@cache
def _environment(level: str) -> tuple[str, ...]:
    """This package, Python, and the packages that the level runs."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE)
        if "__pycache__" not in name.parts and path.is_file():
            digest.update(json.dumps([name.as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()]).encode())
    return digest.hexdigest(), sys.version, *(f"{package} {_version(package)}" for package in PACKAGES[level])


def _version(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return ""


def installed(package: str) -> str:
    """The version of the package that an import would take; raises PackageNotFoundError if there is none.

    A folder that is put first in PYTHONPATH may hold another version than the one that `importlib.metadata` finds, and
    no metadata: the version is then the one that the package's own text states.
    """
    spec = find_spec(_MODULES.get(package, package))
    if spec is None or spec.origin is None:
        return version(package)
    folder = Path(spec.origin).parent
    for distribution in distributions(name=package, path=[str(folder.parent)]):
        return distribution.version
    for name in _STATING:
        text = (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""
        if stated := _VERSION.search(text):
            return stated[1]
    raise PackageNotFoundError(package)
