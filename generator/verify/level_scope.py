"""What a level leaves out by its nature, and why: another level, Triton or device has to prove it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from generator.emit.manifest_reader import Rendered
from generator.language.errors import CallError
from generator.language.vocabulary import TARGETS
from generator.plan.kernels import Kernel
from generator.verify.jobs import Job, Result
from generator.verify.launches import left_out

#: The case of a job that its level leaves out with all others.
EVERY = "every case"


def out_of_reach(jobs: Iterable[Job], found: Sequence[Rendered], device: str | None) -> dict[Job, Result]:
    """The results of the jobs that their level leaves out; `device` is the GPU's architecture, None if not known.

    A level of which that is every job proves nothing: there they are not proved, rather than left out.
    """
    families = {family.folder: family for family in found}
    reasons = {job: why_not(job, families[job.folder], device) for job in jobs}
    working = {job.level for job, reason in reasons.items() if reason is None}
    results = {}
    for job, reason in reasons.items():
        if reason is not None and job.level in working:
            results[job] = Result(job, left_out=reason)
        elif reason is not None:
            told = f"{reason}; nothing of what is asked of the {job.level} level can be proved here"
            results[job] = Result(job, not_proved=((EVERY, told),))
    return results


def why_not(job: Job, family: Rendered, device: str | None) -> str | None:
    """Why the level of `job` leaves it out on a machine with that GPU, or None."""
    if job.level in ("static", "bounds"):
        return None
    if job.contract:
        return why_not_called(family.contracts[job.name], device, hardware=job.level == "gpu")
    kernel = family.by_name[job.name]
    return why_not_run(kernel, device) if job.target is None else why_not_compiled(kernel, job.target)


def why_not_run(kernel: Kernel, device: str | None) -> str | None:
    """Why the installed Triton, or a GPU of the architecture `device`, cannot run `kernel`, or None."""
    reason = _other_triton(kernel.triton)
    if reason is not None or device is None or any(_runs(device, target) for target in kernel.targets):
        return reason
    return f"it is for {', '.join(kernel.targets)}, and the device is {device}"


def why_not_called(kernels: Sequence[Kernel], device: str | None, *, hardware: bool) -> str | None:
    """Why the function that picks among `kernels` cannot be called, in the interpreter or on hardware, or None.

    A function whose first choice cannot run here must find a kernel that can.
    """
    reasons = [why_not_run(kernel, device) for kernel in kernels]
    if None not in reasons:
        return reasons[0]
    here = [kernel for kernel, reason in zip(kernels, reasons, strict=True) if reason is None]
    if not hardware and any(kernel.select == "autotune" for kernel in here):
        return "without a GPU Triton's autotuner cannot choose"
    return None


def why_not_compiled(kernel: Kernel, target: str) -> str | None:
    """Why the installed Triton compiles nothing of `kernel` for `target`, or None."""
    return _other_triton(kernel.triton) or left_out(kernel, target)


@cache
def _other_triton(wanted: str) -> str | None:
    """How the installed Triton is none of those wanted, or None."""
    try:
        installed = Version(version("triton")).base_version
    except PackageNotFoundError:
        raise CallError("verify needs triton; install the extra: pip install 'gemm-generator[verify]'") from None
    return None if installed in SpecifierSet(wanted) else f"it needs Triton {wanted}, and {installed} is installed"


def _runs(device: str, target: str) -> bool:
    """Whether `device` runs what is made for `target`: later NVIDIA devices run what earlier ones do."""
    if TARGETS[target].vendor != "nvidia" or not device.startswith("sm"):
        return device == target
    return int(device[2:]) >= TARGETS[target].capability
