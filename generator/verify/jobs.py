"""The values that the command line and the workers exchange; importing them needs neither torch nor triton."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path

from generator.emit import code_parts
from generator.files.program import program

#: In the order in which they run: fast levels that find most mistakes come first.
LEVELS = ("static", "bounds", "interpret", "compile", "gpu")


#: Levels whose job is a single case, to which `--case` does not apply.
WHOLE = ("static", "bounds")


@dataclass(frozen=True)
class Recorded:
    """What a record has of configurations of a kernel whose code is the same: a job then runs the others alone."""

    #: Each configuration, as `manifest_configurations.label_of` names it, with the number of cases that passed.
    rows: tuple[tuple[str, int], ...]
    worst_error: float = 0.0


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
    #: The target of the compile level.
    target: str | None = None
    #: At the compile level, the launches to compile; empty means all.
    chosen: tuple[str, ...] = ()
    #: At the levels interpret and gpu: configurations whose cases are recorded, and do not run.
    recorded: Recorded | None = None

    @property
    def label(self) -> str:
        """The level, followed by the target if there is one: `compile sm90`."""
        return f"{self.level} {self.target}" if self.target else self.level

    def takes(self, case: str) -> bool:
        """Whether the job runs this case or launch."""
        return (not self.chosen or case in self.chosen) and (self.case is None or fnmatchcase(case, self.case))

    @property
    def file(self) -> Path:
        """The file under proof: a kernel's, or the `__init__.py` with a contract's function."""
        return self.folder / ("__init__.py" if self.contract else f"{self.name}.py")


@dataclass(frozen=True, order=True)
class Subject:
    """The code of a kernel that a level's result depends on, as digests of syntax trees.

    The name is part of it, since it states the types of a kernel's operands, which the code does not always do.
    """

    kernel: str
    device: str
    #: Empty at the compile level, whose results do not depend on host code.
    host: str = ""
    #: The digest without the configurations: what a proof of one of them depends on.
    code: str = field(default="", compare=False)


def subject(job: Job) -> Subject | None:
    """The code that a job proves; None if its file is no Python.

    Also None for the static level, which checks the text, and for a contract, which has several kernels.
    """
    if job.contract or job.level == "static":
        return None
    try:
        parts = code_parts.of_file(job.file)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Subject(job.name, parts.device, "" if job.level == "compile" else parts.host, parts.timed)


class JobState(IntEnum):
    """The outcome of a job."""

    PASSED = 0
    FAILED = 1
    #: The kernel does not support this level, version or machine: another one has to prove it.
    LEFT_OUT = 2
    #: The level could not decide some cases, or ran none.
    NOT_PROVED = 3


@dataclass(frozen=True)
class Failure:
    """A case that failed: its name, the reason for the case, and a message about what was found."""

    case: str
    reason: str
    message: str


@dataclass(frozen=True)
class JobResult:
    """The outcome of a job, which `state` summarises; `left_out` is the reason if the job did not run."""

    job: Job
    cases: int = 0
    failures: tuple[Failure, ...] = ()
    #: Cases that could not be decided, each with the reason. `cases` does not count them.
    not_proved: tuple[tuple[str, str], ...] = ()
    left_out: str | None = None
    #: The largest ratio of an error to the allowed one.
    worst_error: float = 0.0
    #: The code under proof; None for a contract's function, at the static level, and if the file is not Python.
    subject: Subject | None = None
    #: The device's name, and the versions of python, torch and triton.
    place: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    #: The worker process cannot run further jobs: its GPU returns errors only after an illegal access.
    lost: bool = False
    #: For each compiled launch, its name and the figures read from the machine code.
    measured: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    #: The configurations that the target of a compile job cannot run, and that no launcher takes there: the index of
    #: each in the table, and the reason.
    rows_left_out: tuple[tuple[int, str], ...] = ()
    #: The cases that passed by configuration, at the levels interpret and gpu, and the configuration of the full list.
    rows: tuple[tuple[str, int], ...] = ()
    full: str = ""
    #: The digest of all that the job has read, by the process that ran it; none if that is not known.
    inputs: str = ""
    #: The result comes from the result cache.
    cached: bool = False

    @property
    def state(self) -> JobState:
        """The outcome; a job passes only if it ran cases and every one passed."""
        if self.failures:
            return JobState.FAILED
        if self.left_out is not None:
            return JobState.LEFT_OUT
        return JobState.NOT_PROVED if self.not_proved or not self.cases else JobState.PASSED

    @property
    def short(self) -> bool:
        """Whether cases lacked memory and may run next time; this does not apply to the bounds level."""
        return bool(self.not_proved) and self.job.level != "bounds"

    @property
    def partial(self) -> bool:
        """Whether only some of the kernel's cases ran."""
        return bool(self.job.case or self.job.chosen) or self.short


def command(job: Job, failure: Failure | None = None) -> str:
    """The shell command that repeats a job, or only the case of `failure`."""
    words = [*program().split(), "verify", str(job.folder), "--only", job.name, "--level", job.level]
    if job.target is not None:
        words += ["--target", job.target]
    if failure is not None and job.level not in WHOLE and failure.case not in ("import", "process"):
        words += ["--case", failure.case]
    return shlex.join(words)


def status(results: Iterable[JobResult], *, allow_undecided: bool = False) -> int:
    """The exit status of a run: 1 if a job failed, or was not proved without `allow_undecided`; else 0."""
    wrong = {JobState.FAILED} if allow_undecided else {JobState.FAILED, JobState.NOT_PROVED}
    return 1 if any(result.state in wrong for result in results) else 0
