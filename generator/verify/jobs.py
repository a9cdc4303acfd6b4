"""What travels between the command line and the workers: plain values, nothing of torch or triton."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path

from generator.emit.code_parts import Parts

#: In the order in which they run: what is quick and finds the most comes first.
LEVELS = ("static", "bounds", "interpret", "compile", "gpu")


#: Levels whose job is one case: `--case` chooses nothing there.
WHOLE = ("static", "bounds")


@dataclass(frozen=True)
class Job:
    """One kernel, or one contract's function, at one level."""

    level: str
    #: The family's folder, which its manifest describes.
    folder: Path
    #: A kernel's name, or a contract's.
    name: str
    contract: bool = False
    #: Run only the cases whose name matches.
    case: str | None = None
    #: What is compiled for, at the compile level.
    target: str | None = None
    #: At the compile level, the launches that are compiled: none means every one.
    chosen: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The level, with the target where there is one: `compile sm90`."""
        return f"{self.level} {self.target}" if self.target else self.level

    def takes(self, case: str) -> bool:
        """Whether a case, or a launch, is one that the job runs."""
        return (not self.chosen or case in self.chosen) and (self.case is None or fnmatchcase(case, self.case))

    @property
    def file(self) -> Path:
        """What is proved: a kernel's file, or the package that holds a contract's function."""
        return self.folder / ("__init__.py" if self.contract else f"{self.name}.py")


@dataclass(frozen=True, order=True)
class Subject:
    """What is proved of a kernel: its code, by meaning, as far as a level's result depends on it.

    The name is part of it, since the types of a kernel's operands are in the name and not always in the code.
    """

    kernel: str
    device: str
    #: Empty at the compile level: code of the host alone leaves what is compiled as it is.
    host: str = ""

    @classmethod
    def of(cls, job: Job, parts: Parts) -> Subject | None:
        """What a job proves of the kernel whose file has these parts.

        None where that is no kernel's code: the static level is about the text, a contract about several kernels.
        """
        if job.contract or job.level == "static":
            return None
        return cls(job.name, parts.device, "" if job.level == "compile" else parts.host)


class State(IntEnum):
    """What became of a job."""

    PASSED = 0
    FAILED = 1
    #: Not for this level, version or machine, by what the kernel is: another has to prove it.
    LEFT_OUT = 2
    #: The level should have decided cases and could not, or ran none.
    NOT_PROVED = 3


@dataclass(frozen=True)
class Failure:
    """A case that went wrong: its reason to be, what was found, and the command that repeats it."""

    case: str
    reason: str
    message: str


@dataclass(frozen=True)
class Result:
    """What became of a job, which `state` sums up; `left_out` says why it was not run at all."""

    job: Job
    cases: int = 0
    failures: tuple[Failure, ...] = ()
    #: Cases that could not be decided here, each with the reason. They are not among `cases`.
    not_proved: tuple[tuple[str, str], ...] = ()
    left_out: str | None = None
    #: The worst error as a part of what is allowed, and the error as a part of the vendor library's.
    worst_error: float = 0.0
    vendor_error: float | None = None
    #: What it was found of; None of a contract's function, at the static level, and where the file is no Python.
    subject: Subject | None = None
    #: Where it ran: the device's name, and versions of python, torch and triton.
    place: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    #: The process that ran the job can run no other: its device answers nothing after an illegal access.
    lost: bool = False
    #: Of each launch that was compiled, its name and what was read from the machine code.
    measured: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    #: It passed in an earlier run, and nothing that it depends on has changed since.
    kept: bool = False

    @property
    def state(self) -> State:
        """What it comes to: nothing has passed that failed a case, left one undecided, or ran none."""
        if self.failures:
            return State.FAILED
        if self.left_out is not None:
            return State.LEFT_OUT
        return State.NOT_PROVED if self.not_proved or not self.cases else State.PASSED

    @property
    def short(self) -> bool:
        """Whether cases wanted memory and may run next time; what bounds does not understand never is."""
        return bool(self.not_proved) and self.job.level != "bounds"

    @property
    def partial(self) -> bool:
        """Whether part of the kernel's cases alone ran."""
        return bool(self.job.case or self.job.chosen) or self.short


def command(job: Job, failure: Failure | None = None) -> str:
    """The command, quoted for a shell, that repeats one job, or of it the one case that failed."""
    words = ["python", "-m", "generator", "verify", str(job.folder), "--only", job.name, "--level", job.level]
    if job.target is not None:
        words += ["--target", job.target]
    if failure is not None and job.level not in WHOLE and failure.case not in ("import", "process"):
        words += ["--case", failure.case]
    return shlex.join(words)


def status(results: Iterable[Result], *, allow_undecided: bool = False) -> int:
    """The exit status of a run: 1 where something failed, or was not proved and need be, else 0."""
    wrong = {State.FAILED} if allow_undecided else {State.FAILED, State.NOT_PROVED}
    return 1 if any(result.state in wrong for result in results) else 0
