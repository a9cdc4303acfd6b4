"""Compare what a family renders with its folder."""

from __future__ import annotations

import generator
from generator.emit import code_parts
from generator.emit.apply import MANIFEST, Change, Refused, unified
from generator.emit.job import RenderingJob
from generator.emit.rendering_results import CheckedFolder, FileDifference


def checked(job: RenderingJob, diff: bool = False) -> CheckedFolder:
    """How the job's folder differs from what it renders; with `diff`, each difference has its unified diff."""
    spec, kernels = job.family.spec, tuple(kernel.name for kernel in job.selected)
    try:
        found = job.survey()
    except Refused as error:
        return CheckedFolder(spec.name, job.folder, spec.path, kernels, refused=str(error))
    version = str(job.before.get("generator")) if job.before else None
    older = version not in (None, generator.__version__)
    formatted: list[str] = []
    differences: list[FileDifference] = []
    for change in job.changes(found):
        if change.outcome == "formatted":
            formatted.append(change.name)
        # With `only`, a manifest of an older spec stays right for the other kernels.
        if change.outcome in ("same", "formatted") or (change.name == MANIFEST and job.only is not None and job.before):
            continue
        code = _code(change) if older else ""
        text = "".join(unified(job.folder, change)) if diff else ""
        differences.append(FileDifference(change.name, change.outcome, change.name in found.edited, code, text))
    return CheckedFolder(
        *(spec.name, job.folder, spec.path, kernels, tuple(differences), tuple(formatted)),
        blocked=tuple(found.blocked.values()),
        damage=found.damage,
        version=version,
    )


def _code(change: Change) -> str:
    """What is different in a file of Python: code that Triton compiles, other code, or neither; empty for others."""
    if change.outcome != "updated" or not change.name.endswith(".py"):
        return ""
    try:
        old, new = code_parts.parts(change.old), code_parts.parts(change.new)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return "device code" if old.device != new.device else "host code" if old.host != new.host else "comments"
