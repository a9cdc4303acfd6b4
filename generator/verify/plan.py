"""Which jobs a call comes to, and the static level, which needs no worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from generator.errors import CallError
from generator.families import families as read_families
from generator.model import Family
from generator.verify import static
from generator.verify.jobs import Job, Result
from generator.verify.loading import stated_and_actual_digest


def families(specs: Sequence[Path]) -> dict[Path, Family]:
    """Each spec expanded; raise `SpecError` with every mistake of all of them."""
    return {family.spec.path: family for family in read_families(specs)}


def plan(
    found: dict[Path, Family], levels: Sequence[str], out: Path, only: str = "*", case: str | None = None
) -> list[Job]:
    """One job a kernel and level, and one a contract at the levels that run; those whose name matches `only`."""
    jobs = []
    for level in levels:
        for path, family in found.items():
            names = [(kernel.name, False) for kernel in family.kernels]
            if level != "static":
                names += [(name, True) for name in dict.fromkeys(k.variant.contract for k in family.kernels)]
            jobs += [Job(level, path, out, name, contract, case) for name, contract in names if fnmatchcase(name, only)]
    return jobs


def shard(jobs: Sequence[Job], index: int, count: int) -> list[Job]:
    """Every `count`-th job from the `index`-th (from 1): disjoint, the same each time, together all of them."""
    return list(jobs[index - 1 :: count])


def require_rendered(jobs: Sequence[Job], found: dict[Path, Family]) -> None:
    """Raise `CallError`, with the command that mends it, where a job's file is not there."""
    for job in jobs:
        file = _file(job, found)
        if not file.exists():
            out = "" if job.out == Path("generated") else f" --out {job.out}"
            raise CallError(f"{file} is not there; render it first: python -m generator {job.spec}{out}")


def run_static(jobs: Sequence[Job], found: dict[Path, Family]) -> Iterator[Result]:
    """The results of the static jobs: each kernel's file, with its family's `__init__.py` counted to its first."""
    files = {job: _file(job, found) for job in jobs}
    packages = {file.parent / "__init__.py" for file in files.values()}
    faults = static.check(sorted({*files.values(), *(file for file in packages if file.exists())}))
    for job, file in files.items():
        wrong = faults.get(file, [])
        if file.parent / "__init__.py" in packages:
            packages.remove(file.parent / "__init__.py")
            wrong = wrong + faults.get(file.parent / "__init__.py", [])
        _, digest = stated_and_actual_digest(file.read_text())
        yield Result(job, file, cases=1, failures=tuple(wrong), digest=digest)


def _file(job: Job, found: dict[Path, Family]) -> Path:
    return job.out / found[job.spec].spec.name / ("__init__.py" if job.contract else f"{job.name}.py")
