"""The jobs that a level cannot run, and why: another level, Triton version or device has to prove them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from generator.emit.manifest_reader import Rendered
from generator.language.errors import lacks
from generator.language.targets import TARGETS
from generator.plan.kernels import Kernel
from generator.plan.legality import why_not_on
from generator.verify.job_inputs import installed
from generator.verify.jobs import Job, JobResult
from generator.verify.launches import left_out

#: Why the bounds level cannot prove a file that stands alone.
_ALONE = "its file stands alone, without the table CALL that is proved; render it with 'package: plain' to prove it"


def out_of_reach(jobs: Iterable[Job], rendered: Sequence[Rendered], device: str | None) -> dict[Job, JobResult]:
    """The results of the jobs that their level leaves out; `device` is the GPU's architecture, or None if unknown.

    If a level leaves out every job, it proves nothing, and its jobs are not proved instead of left out. Files that
    stand alone are left out at the bounds level as long as another level proves something.
    """
    families = {family.folder: family for family in rendered}
    reasons = {job: why_not(job, families[job.folder], device) for job in jobs}
    working = {job.level for job, reason in reasons.items() if reason is None}
    results = {}
    for job, reason in reasons.items():
        if reason is not None and (job.level in working or (reason == _ALONE and working)):
            results[job] = JobResult(job, left_out=reason)
        elif reason is not None:
            message = f"{reason}; the {job.level} level can prove none of the requested jobs here"
            results[job] = JobResult(job, not_proved=(("every case", message),))
    return results


def why_not(job: Job, family: Rendered, device: str | None) -> str | None:
    """Why the level of `job` leaves it out on a machine with the GPU `device`, or None.

    A contract's function whose first choice cannot run here must select a kernel that can.
    """
    if job.level == "bounds":
        return _ALONE if family.package == "files" else None
    if job.level == "static":
        return None
    kernels = family.contracts[job.name] if job.contract else (family.by_name[job.name],)
    if job.target is not None:
        return _other_triton(kernels[0].triton) or left_out(kernels[0], job.target)
    reasons = [why_not_run(kernel, device) for kernel in kernels]
    if None not in reasons:
        return reasons[0]
    here = [kernel for kernel, reason in zip(kernels, reasons, strict=True) if reason is None]
    if job.contract and job.level == "interpret" and any(kernel.select == "autotune" for kernel in here):
        return "Triton's autotuner needs a GPU"
    return None


def why_not_run(kernel: Kernel, device: str | None) -> str | None:
    """Why the installed Triton, or a GPU of the architecture `device`, cannot run `kernel`, or None."""
    reason = _other_triton(kernel.triton)
    if reason is not None or device is None:
        return reason
    if not any(_runs(device, target) for target in kernel.targets):
        return f"its targets are {', '.join(kernel.targets)}, and the device is {device}"
    return why_not_on(kernel.variant, device) if device in TARGETS else None


@cache
def _other_triton(wanted: str) -> str | None:
    """A message if the version of the installed Triton is not in `wanted`, or None."""
    try:
        here = Version(installed("triton")).base_version
    except PackageNotFoundError:
        raise lacks("verify", "triton", "verify") from None
    return None if here in SpecifierSet(wanted) else f"it needs Triton {wanted}, and {here} is installed"


def _runs(device: str, target: str) -> bool:
    """Whether `device` runs kernels for `target`: later NVIDIA devices run kernels for earlier ones."""
    if TARGETS[target].vendor != "nvidia" or not device.startswith("sm"):
        return device == target
    return int(device[2:]) >= TARGETS[target].capability
