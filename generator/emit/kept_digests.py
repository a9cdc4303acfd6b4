"""Families of which a folder of families keeps a digest alone: `digests.json` maps their names to it.

A digest is that of a family's manifest, which has those of all its files, so that a change of any shows in review.
"""

from __future__ import annotations

import atexit
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.emit.advice import rendering
from generator.emit.apply import MANIFEST
from generator.emit.file_digests import digest
from generator.emit.job import RenderingJob, render
from generator.emit.rendering_results import CheckedFolder, FileDifference, RenderedFolder
from generator.files.checked_json import Schema
from generator.files.reading import read_text
from generator.files.updating import alone, make_folder, update
from generator.language.errors import CallError
from generator.plan.kernels import Family

FILE = "digests.json"
_SCHEMA = Schema({"type": "object", "additionalProperties": {"type": "string"}})


def digests(out: Path) -> dict[str, str]:
    """The digests that a folder of families keeps, by family; raises `FileError` for a file that has none."""
    try:
        recorded: dict[str, str] = _SCHEMA.read(out / FILE)
    except FileNotFoundError:
        return {}
    return recorded


def is_kept(job: RenderingJob) -> bool:
    """Whether there is a digest of the job's family, and no folder but what git leaves of one: `__pycache__`."""
    return job.family.spec.name in digests(job.out) and not (job.folder / MANIFEST).is_file()


def _digest(job: RenderingJob) -> str:
    """The digest of what the whole family renders, or of its folder as it is."""
    if (job.folder / MANIFEST).is_file():
        return digest(read_text(job.folder / MANIFEST))
    whole = RenderingJob(job.family, job.out)
    return next(digest(each.new) for each in whole.changes(whole.survey()) if each.name == MANIFEST)


def checked(job: RenderingJob) -> CheckedFolder:
    """How the digest of a family without a folder compares with what its spec renders."""
    name, _, spec, kernels = job.described
    same = digests(job.out)[name] == _digest(job)
    differences = () if same else (FileDifference(f"{FILE}: {name}", "updated"),)
    return CheckedFolder(name, job.out, spec, kernels, differences)


def renewed(job: RenderingJob) -> RenderedFolder | None:
    """Write the digest of a family that has one; None for another, and for a part of one."""
    name = job.family.spec.name
    before = digests(job.out).get(name)
    if before is None or job.only is not None:
        return None
    now = _digest(job)
    if now != before:
        update(job.out / FILE, lambda: json.dumps({**digests(job.out), name: now}, indent=1) + "\n")
    same, updated = ((FILE,), ()) if now == before else ((), (FILE,))
    return RenderedFolder(*job.described, same=same, updated=updated)


@cache
def aside() -> Path:
    """Where families are rendered that have no folder: what is there is removed when this process ends."""
    temporary = TemporaryDirectory(prefix="gemm-generator-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


def folder(family: Family, out: Path) -> Path:
    """The folder of a family in `out`, or where that keeps its digest alone, one that is rendered aside.

    Raises `CallError` if the digest is not that of what the family renders.
    """
    job = RenderingJob(family, out)
    if not is_kept(job):
        return job.folder
    other, wanted = RenderingJob(family, aside(), force=True), digests(out)[family.spec.name]
    make_folder(other.out)
    # Another process that wants the same waits, and then finds it: the manifest is written last.
    with alone(other.out):
        if not (other.folder / MANIFEST).is_file() or _digest(other) != wanted:
            render([other])
    if _digest(other) != wanted:
        message = f"{out / FILE} is out of date with {family.spec.path}"
        raise CallError(f"{message}; renew it: {rendering([family.spec.path], out)}")
    return other.folder
