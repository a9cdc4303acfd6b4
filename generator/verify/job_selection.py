"""The jobs of a run: families, levels and targets from the command line, reduced by coverage and shard."""

from __future__ import annotations

import ast
import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from generator.emit import kept_digests
from generator.emit.advice import rendering
from generator.emit.manifest_reader import Rendered, read, remembered
from generator.files.reading import real_path
from generator.language.call_numbers import whole_number
from generator.language.errors import CallError, shown
from generator.plan.families import families
from generator.plan.kernels import Family, Kernel
from generator.verify.coverage import Coverage, CoveringArray, choose
from generator.verify.jobs import LEVELS, Job
from generator.verify.launches import CompiledLaunch, launches

#: Seconds of a job, at the compile level of one launch: the means over all families.
_SECONDS = {"static": 0.01, "bounds": 0.5, "interpret": 4.0, "compile": 0.7, "gpu": 6.0}
#: The most parts that a run can be divided into.
_MOST_PARTS = 100_000


def rendered(paths: Sequence[Path], out: Path, only: str = "*") -> list[Rendered]:
    """The rendered families of the paths, each once: those of specs, then those of folders of rendered families.

    Several paths to one folder, or a spec and its folder, are one family. Raises `SpecError` with every mistake of all
    specs, and `CallError`, with the command to run, if a family is not rendered or was rendered from a different spec.
    """
    families_of = [_of_spec(family, out, only) for family in families(path for path in paths if not path.is_dir())]
    known = {real_path(family.folder) for family in families_of}
    for folder in (path for path in paths if path.is_dir()):
        if real_path(folder) not in known:
            known.add(real_path(folder))
            families_of.append(read(folder))
    return families_of


def _of_spec(family: Family, out: Path, only: str) -> Rendered:
    folder = kept_digests.folder(family, out)
    render = rendering([family.spec.path], out)
    if not folder.is_dir():
        raise CallError(f"{folder} does not exist; render it first: {render}")
    folder_of = read(folder)
    for kernel in family.kernels:
        if fnmatchcase(kernel.name, only) and folder_of.by_name.get(kernel.name) != kernel:
            raise CallError(f"{folder} is out of date with {family.spec.path} ({kernel.name}); render it: {render}")
    return folder_of


def plan(
    families: Sequence[Rendered],
    levels: Sequence[str],
    only: str = "*",
    case: str | None = None,
    targets: Sequence[str] = (),
) -> list[Job]:
    """One job per kernel and level, and one per contract at levels that call its function, of names that match `only`.

    The compile level has one job per target: of `targets`, or of the kernel's own.
    """
    jobs = []
    for level in dict.fromkeys(levels):
        for family in families:
            if not family.kernels:
                raise CallError(f"the manifest of {family.folder} lists no kernel; render the family again")
            for kernel in family.kernels:
                if fnmatchcase(kernel.name, only):
                    wanted = dict.fromkeys(targets or kernel.targets) if level == "compile" else (None,)
                    jobs += [Job(level, family.folder, kernel.name, case=case, target=target) for target in wanted]
            if level in ("interpret", "gpu"):
                names = [name for name in family.functions if fnmatchcase(name, only)]
                jobs += [Job(level, family.folder, name, contract=True, case=case) for name in names]
    return jobs


def covered(
    jobs: Sequence[Job],
    families: Sequence[Rendered],
    coverage: Coverage,
    aside: Collection[Job] = (),
    levels: Collection[str] = LEVELS,
) -> tuple[list[Job], list[CoveringArray]]:
    """The jobs without those that `coverage` does not choose, and its choice at each of `levels`; `aside` stays.

    Each level chooses among kernels, and the compile level among launches of kernels; with the coverage `kernels` that
    level chooses the same kernels as the others, with one launch each. A contract's function is chosen if one of its
    kernels is. Raises `CallError` if no job of a level that has jobs is chosen.
    """
    if coverage.word == "all":
        return list(jobs), []
    kernels = {(family.folder, kernel.name): kernel for family in families for kernel in family.kernels}
    able = [job for job in jobs if job not in aside and job.level in levels]
    chosen = {job: [job] for job in jobs if job in aside or job.level not in levels}
    choices = []
    for level in dict.fromkeys(job.level for job in able):
        members = [job for job in able if job.level == level]
        alone = [(job, kernels[job.folder, job.name]) for job in members if not job.contract]
        offered = [(job, *each) for job, kernel in alone for each in _combinations(job, kernel, coverage)]
        # With `kernels` all levels choose the same kernels, so that costs, which differ by level, are not used.
        costs = [cost for *_, cost in offered] if coverage.of_launches else None
        choices.append(choose([point for _, _, point, _ in offered], coverage, costs))
        names: dict[Job, list[str]] = {}
        for job, launch, *_ in (offered[index] for index in choices[-1].indices):
            names.setdefault(job, []).extend(launch)
        if not names:
            message = f"coverage {coverage.word} chooses no job at the {level} level, which has {len(members)}"
            raise CallError(f"{message}; use a larger share, or 'kernels'")
        contracts = {(job.folder, kernel.variant.contract) for job, kernel in alone if job in names}
        chosen |= {job: [replace(job, chosen=tuple(own))] for job, own in names.items()}
        chosen |= {job: [job] for job in members if job.contract and (job.folder, job.name) in contracts}
    return [each for job in jobs for each in chosen.get(job, ())], choices


def _combinations(
    job: Job, kernel: Kernel, coverage: Coverage
) -> Iterator[tuple[tuple[str, ...], dict[str, str], float]]:
    """What of a kernel to choose among: at the compile level every launch, or the cheapest aligned one.

    Each has the launch's name, if it is one, the values of the axes, and the cost.
    """
    words = dict(kernel.variant.words)
    if job.target is None:
        yield (), words, 1.0
        return
    words["target"] = job.target
    launched = {launch: cost_of_launch(job, launch) for launch in launches(kernel, job.target)}
    if coverage.of_launches:
        for launch, cost in launched.items():
            yield (launch.name,), words | {"row": launch.row_label, "class": launch.case.name}, cost
    elif launched:
        # A kernel without a configuration that fits has no aligned launch, only those that must not fit.
        least = min(launched, key=lambda launch: (launch.case.name != "aligned", launched[launch]))
        yield (least.name,), words, launched[least]


def part(text: str) -> tuple[int, int]:
    """The numbers of `I/N`; raise ValueError for anything else."""
    index, _, count = text.partition("/")
    try:
        of = whole_number(count, 1, _MOST_PARTS)
        return whole_number(index, 1, of), of
    except ValueError:
        message = f"expected I/N with I from 1 to N, such as 1/4, and N up to {_MOST_PARTS}, got {shown(text)}"
        raise ValueError(message) from None


def shard(jobs: Sequence[Job], index: int, count: int, cost: Callable[[Job], float] = lambda job: 1.0) -> list[Job]:
    """The `index`-th (from 1) of `count` disjoint parts of nearly equal cost; the division is deterministic."""
    parts: list[tuple[float, int]] = [(0.0, part) for part in range(count)]
    mine = set()
    # Most expensive first, each to the part with the smallest load (Graham's LPT rule, within 4/3 of the optimum).
    for place, job in sorted(enumerate(jobs), key=lambda entry: (-cost(entry[1]), entry[0])):
        load, part = heapq.heappop(parts)
        heapq.heappush(parts, (load + cost(job), part))
        if part == index - 1:
            mine.add(place)
    return [job for place, job in enumerate(jobs) if place in mine]


def cost(job: Job) -> float:
    """The expected duration of a job in seconds."""
    if job.target is None:
        return _SECONDS[job.level]
    many = len(job.chosen) or len(launches(remembered(job.folder).by_name[job.name], job.target))
    return _SECONDS[job.level] * many


def cost_of_launch(job: Job, launch: CompiledLaunch) -> float:
    """The relative cost of compiling a launch: the elements of its tile, more for each function of the epilogue."""
    t = launch.tile
    epilogue = remembered(job.folder).by_name[job.name].variant.epilogue
    functions = sum(isinstance(node, ast.Call) for step in epilogue.steps for node in ast.walk(step.tree))
    return 1024 * t.warps + t.m * t.n * (1 + 2 * functions) + (t.m + t.n) * t.k
