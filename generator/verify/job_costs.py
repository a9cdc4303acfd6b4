"""Durations of jobs, measured once and shipped, so that every shard of a run computes the same division."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from generator.emit.manifest_reader import remembered
from generator.files.checked_json import Schema
from generator.files.package_data import data
from generator.language import measured_values as values
from generator.verify.jobs import Job, JobResult
from generator.verify.launches import CompiledLaunch, launches

#: The least duration, for the file has three decimals, and the largest: a day.
_LEAST, _MOST = 0.001, 86400.0
SCHEMA = Schema(values.by_name({"type": "number", "minimum": _LEAST, "maximum": _MOST}))


@dataclass(frozen=True)
class JobCosts:
    """Seconds by category of job; at the compile level seconds per launch."""

    seconds: Mapping[str, float]

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> JobCosts:
        """The durations in the package's data file."""
        return cls.read(data("verify", "job_costs.json"))

    @classmethod
    def read(cls, path: Path) -> JobCosts:
        """The durations in a data file; raises FileNotFoundError or `CallError` if it is not one."""
        return values.read(path, SCHEMA, cls, "a file that verify --costs wrote")

    @classmethod
    def measured(cls, results: Iterable[JobResult]) -> JobCosts:
        """The mean durations of `results`, cached ones included."""
        sums: dict[str, list[float]] = {}
        for result in results:
            if result.left_out is None and result.seconds:
                count = result.cases if result.job.level == "compile" else 1
                for category in _categories(result.job):
                    entry = sums.setdefault(category, [0.0, 0.0])
                    entry[0] += result.seconds
                    entry[1] += count
        means = {category: total / max(count, 1) for category, (total, count) in sorted(sums.items())}
        # A duration of 0 would say that a job costs nothing.
        return cls(
            {
                category: min(_MOST, max(_LEAST, round(mean, 3)))
                for category, mean in means.items()
                if math.isfinite(mean)
            }
        )

    def of(self, job: Job) -> float:
        """The expected duration of `job` in seconds."""
        return self.each(job) * _launches(job) if job.level == "compile" else self.each(job)

    def each(self, job: Job) -> float:
        """Seconds of `job`, at the compile level of one of its launches, from the nearest measured category."""
        return next((self.seconds[category] for category in _categories(job) if category in self.seconds), 1.0)

    def text(self) -> str:
        """The content of the data file, as JSON; raises `Wrong` if no reader would accept it."""
        found = json.dumps(dict(self.seconds), indent=1) + "\n"
        SCHEMA.parse(found)
        return found

    def one(self, job: Job, launch: CompiledLaunch) -> float:
        """The relative cost of compiling one launch of `job`, from its category and the code size of its tile.

        The estimate is not in seconds: it weights the category by the elements of the tile, more for each function of
        the epilogue, and by the warps.
        """
        t = launch.tile
        epilogue = remembered(job.folder).by_name[job.name].variant.epilogue
        functions = sum(isinstance(node, ast.Call) for step in epilogue.steps for node in ast.walk(step.tree))
        return self.each(job) * (1024 * t.warps + t.m * t.n * (1 + 2 * functions) + (t.m + t.n) * t.k)


def _categories(job: Job) -> list[str]:
    """Categories of jobs that take about as long as `job`, the most specific first."""
    words = [f"{job.level} {job.target}" if job.target else job.level, *(["contract"] if job.contract else [])]
    if not job.contract and job.level != "static":
        v = remembered(job.folder).by_name[job.name].variant
        words += [f"{v.schedule} {v.load} {v.masking}", *([v.dtype.precision] if v.dtype.precision else [])]
    return [" ".join(words[:count]) for count in range(len(words), 0, -1)] + ([job.level] if job.target else [])


def _launches(job: Job) -> int:
    if job.chosen:
        return len(job.chosen)
    assert job.target is not None
    return len(launches(remembered(job.folder).by_name[job.name], job.target))
