"""Render, check and list the families of specs: the functions of the command line and of `import generator`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from generator.cost import tuned
from generator.emit import kept_digests
from generator.emit.additions import require_additions
from generator.emit.apply import MANIFEST, has_manifest
from generator.emit.job import RenderingJob, checked
from generator.emit.job import render as written
from generator.emit.rendering_results import (
    CheckedFolder,
    CheckResult,
    FamilyVariants,
    RenderedFolder,
    RenderResult,
    VariantsResult,
)
from generator.emit.staging import stage as staged
from generator.files.reading import FileError
from generator.language.errors import CallError, Mistake, nearest, shown
from generator.language.vocabulary import ADDITIONS, PACKAGE
from generator.plan.families import families
from generator.plan.kernels import Family

#: A path, or several.
Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


def render(
    specs: Paths,
    out: str | os.PathLike[str] = "generated",
    *,
    only: str | None = None,
    package: str | None = None,
    additions: Iterable[str] = (),
    force: bool = False,
    stage: bool = False,
    digests: bool = False,
    report: Callable[[Mistake | RenderedFolder], object] | None = None,
) -> RenderResult:
    """Render specs, given by path, each into a folder of `out` that has its name.

    `only` is a pattern of kernels' names; `package` takes the place of the specs' key, and `additions` are added to
    the words of their key `with`; `force` overwrites files edited by hand; `stage` adds to git's index what was
    rendered. With `digests`, a family of which `out` has no folder and keeps a digest in `digests.json` has that
    renewed, and gets no folder. `report` is called with each warning, before anything is written, and with each folder
    when it is written.

    Nothing is written if a spec is wrong (`SpecError`, with every mistake), if the call is (`CallError`), or if a
    folder or file in the way is not the generator's or was edited (`Refused`).
    """
    # A hook of a formatter that runs after the one that renders would change the files at each commit.
    jobs, warnings = _jobs(
        specs, out, only, package, additions, force=force, keeps_layout=stage and not force, report=report
    )
    aside = {job.folder for job in jobs if digests and kept_digests.is_kept(job)}
    done = written([job for job in jobs if job.folder not in aside], report)
    for job in jobs:
        # Of a family that has a folder as well, it is the folder that is reported.
        each = kept_digests.renewed(job)
        if each is not None and job.folder in aside:
            done += (each,)
            if report is not None:
                report(each)
    if stage:
        staged(jobs)
    return RenderResult(done, warnings)


def check(
    specs: Paths,
    out: str | os.PathLike[str] = "generated",
    *,
    only: str | None = None,
    package: str | None = None,
    additions: Iterable[str] = (),
    orphans: bool = False,
    diff: bool = False,
    report: Callable[[Mistake | Path | CheckedFolder], object] | None = None,
) -> CheckResult:
    """Compare what specs would render with the folders in `out`; write nothing.

    With `orphans`, rendered folders of `out` that none of the specs makes count, too. With `diff`, each difference has
    its unified diff. `report` is called with each warning, each orphan and each folder, in this order. `only`,
    `package` and `additions` are those of `render`.

    Raises `SpecError` and `CallError` as `render` does.
    """
    jobs, warnings = _jobs(specs, out, only, package, additions, report=report)
    without_spec = _orphans(Path(out), [job.family for job in jobs]) if orphans else ()
    done: list[CheckedFolder] = []
    if report is not None:
        for path in without_spec:
            report(path)
    for job in (job for job in jobs if job.selected):
        done.append(kept_digests.checked(job) if kept_digests.is_kept(job) else checked(job, diff))
        if report is not None:
            report(done[-1])
    return CheckResult(tuple(done), without_spec, warnings)


def variants(
    specs: Paths,
    *,
    only: str | None = None,
    package: str | None = None,
    additions: Iterable[str] = (),
    report: Callable[[Mistake], object] | None = None,
) -> VariantsResult:
    """The variants of specs, and what is left out and why; nothing is rendered.

    `report` is called with each warning. `only`, `package` and `additions` are those of `render`. Raises `SpecError`
    and `CallError` as `render` does.
    """
    jobs, warnings = _jobs(specs, "generated", only, package, additions, report=report)
    listed = []
    for job in jobs:
        named = job.family.spec.name, job.family.spec.path, job.family.spec.summary
        listed.append(FamilyVariants(*named, job.selected, job.left_out, job.never_chosen, job.family))
    return VariantsResult(tuple(listed), warnings)


def paths_of(given: Paths) -> list[Path]:
    """The paths of a call, which may be one path; raises `CallError` for none, and for what is no path."""
    # A mapping would be taken for the paths that its keys are.
    # So would an open file for the paths that its lines are.
    single = str, bytes, os.PathLike, Mapping, io.IOBase
    several = isinstance(given, Iterable) and not isinstance(given, single)
    paths: list[Any] = list(given) if several else [given]  # type: ignore[arg-type]
    if not paths:
        raise CallError("no spec given: name at least one")
    for path in paths:
        if not isinstance(path, (str, os.PathLike)) or "\n" in str(path):
            raise CallError(f"a spec is given by the path of its file, got {shown(path)}")
        try:
            Path(path).is_dir()
        except OSError as error:
            raise FileError(Path(path), f"cannot be read: {error.strerror}") from None
    return [Path(path) for path in paths]


def folder_of(out: object) -> Path:
    """The folder in which families are; raises `CallError` for what is no path."""
    if not isinstance(out, (str, os.PathLike)) or not os.fspath(out):
        raise CallError(f"out: expected the path of a folder, got {shown(out)}")
    return Path(os.fspath(out))


def require_pattern(name: str, word: object) -> None:
    """Raise `CallError` for a pattern of names that is no text."""
    if word is not None and not isinstance(word, str):
        raise CallError(f"{name}: expected a pattern of names, got {shown(word)}")


def _jobs(
    specs: Paths,
    out: str | os.PathLike[str],
    only: str | None,
    package: str | None,
    additions: Iterable[str],
    *,
    force: bool = False,
    keeps_layout: bool = False,
    report: Callable[[Mistake], object] | None = None,
) -> tuple[list[RenderingJob], tuple[Mistake, ...]]:
    """A job for each family, and the warnings of the specs; raises `CallError` and `SpecError`."""
    require_pattern("only", only)
    folder = folder_of(out)
    if package is not None and package not in PACKAGE:
        raise CallError(f"package: {package!r} is not known; {nearest(package, PACKAGE)}")
    additions = [additions] if isinstance(additions, str) else [*additions]
    for index, word in enumerate(additions):
        if word not in ADDITIONS:
            raise CallError(f"with: {shown(word)} is not known; {nearest(str(word), ADDITIONS)}")
        if word in additions[:index]:
            raise CallError(f"with: {shown(word)} is listed twice")
    wanted = families(paths_of(specs), package, additions)
    require_additions(wanted)
    warnings: list[Mistake] = []
    for family in wanted:
        spec = family.spec
        warnings += spec.warnings
        for file, reason in tuned.left_out(family):
            warnings.append(Mistake(spec.path, *spec.positions["tuned", file], f"tuned: {file!r} {reason}"))
    if report is not None:
        for warning in warnings:
            report(warning)
    jobs = [RenderingJob(family, folder, only, force, keeps_layout) for family in wanted]
    if only is not None and not any(job.selected for job in jobs):
        names = [kernel.name for family in wanted for kernel in family.kernels]
        raise CallError(f"--only {only!r} matches no kernel; there are {len(names)}, the first {names[0]}")
    return jobs, tuple(warnings)


def _orphans(out: Path, wanted: Sequence[Family]) -> tuple[Path, ...]:
    """Rendered folders that belong to no spec."""
    names = {family.spec.name for family in wanted}
    folders = sorted(path.parent for path in out.glob(f"*/{MANIFEST}"))
    return tuple(folder for folder in folders if folder.name not in names and has_manifest(folder))
