"""Durations of jobs, measured once and shipped, so that every shard of a run computes the same division."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from generator.emit.manifest_reader import remembered
from generator.verify.jobs import Job, Result
from generator.verify.launches import Launch, launches

_FILE = Path(__file__).with_name("job_costs.json")


@dataclass(frozen=True)
class Costs:
    """Seconds by category of job; at the compile level seconds per launch."""

    seconds: Mapping[str, float]

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Costs:
        """The durations in the package's data file."""
        return cls(json.loads(_FILE.read_text(encoding="utf-8")))

    @classmethod
    def measured(cls, results: Iterable[Result]) -> Costs:
        """The mean durations of `results`, cached ones included."""
        sums: dict[str, list[float]] = {}
        for result in results:
            if result.left_out is None and result.seconds:
                count = result.cases if result.job.level == "compile" else 1
                for category in _categories(result.job):
                    entry = sums.setdefault(category, [0.0, 0.0])
                    entry[0] += result.seconds
                    entry[1] += count
        return cls({category: round(total / max(count, 1), 3) for category, (total, count) in sorted(sums.items())})

    def of(self, job: Job) -> float:
        """The expected duration of `job` in seconds."""
        return self.each(job) * _launches(job) if job.level == "compile" else self.each(job)

    def each(self, job: Job) -> float:
        """Seconds of `job`, at the compile level of one of its launches, from the nearest measured category."""
        return next((self.seconds[category] for category in _categories(job) if category in self.seconds), 1.0)

    def text(self) -> str:
        """The content of the data file, as JSON."""
        return json.dumps(dict(self.seconds), indent=1) + "\n"

    def one(self, job: Job, launch: Launch) -> float:
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
