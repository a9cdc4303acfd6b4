"""What travels between the command line and the workers: plain values, nothing of torch or triton."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LEVELS = ("static", "interpret", "gpu")


@dataclass(frozen=True)
class Job:
    """One kernel, or one contract's function, at one level."""

    level: str
    spec: Path
    #: The folder that holds the family's folder.
    out: Path
    #: A kernel's name, or a contract's.
    name: str
    contract: bool = False
    #: Run only the case of this name.
    case: str | None = None


@dataclass(frozen=True)
class Failure:
    """A case that went wrong: its reason to be, what was found, and the command that repeats it."""

    case: str
    reason: str
    message: str


@dataclass(frozen=True)
class Result:
    """What became of a job. It passed unless there are failures; `left_out` says why it was not run at all."""

    job: Job
    file: Path
    cases: int = 0
    failures: tuple[Failure, ...] = ()
    #: Cases that could not be run here, each with the reason.
    not_run: tuple[tuple[str, str], ...] = ()
    left_out: str | None = None
    #: The worst error as a part of what is allowed, and the error as a part of the vendor library's.
    worst_error: float = 0.0
    vendor_error: float | None = None
    #: Digest of the body of the file.
    digest: str = ""
    #: Where it ran: the device's name, and versions of python, torch and triton.
    place: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    #: The process that ran the job can run no other: its device answers nothing after an illegal access.
    lost: bool = False


def command(job: Job, case: str | None = None) -> str:
    """The command that repeats one job, or one case of it."""
    words = ["python -m generator verify", str(job.spec), "--only", job.name, "--level", job.level]
    if job.out != Path("generated"):
        words += ["--out", str(job.out)]
    if case is not None:
        words += ["--case", case]
    return " ".join(words)
