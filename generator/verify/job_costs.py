"""What jobs take, as measured once and shipped: every shard of a run divides by the same figures."""

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
    """Seconds by kind of job; at the compile level seconds a launch."""

    seconds: Mapping[str, float]

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Costs:
        """The figures that come with the package."""
        return cls(json.loads(_FILE.read_text()))

    @classmethod
    def measured(cls, results: Iterable[Result]) -> Costs:
        """The means over `results`, those of earlier runs among them."""
        sums: dict[str, list[float]] = {}
        for result in results:
            if result.left_out is None and result.seconds:
                count = result.cases if result.job.level == "compile" else 1
                for kind in _kinds(result.job):
                    entry = sums.setdefault(kind, [0.0, 0.0])
                    entry[0] += result.seconds
                    entry[1] += count
        return cls({kind: round(total / max(count, 1), 3) for kind, (total, count) in sorted(sums.items())})

    def of(self, job: Job) -> float:
        """Seconds that `job` can be expected to take."""
        return self.each(job) * _launches(job) if job.level == "compile" else self.each(job)

    def each(self, job: Job) -> float:
        """Seconds of `job`, at the compile level of one of its launches; of the nearest kind that was measured."""
        return next((self.seconds[kind] for kind in _kinds(job) if kind in self.seconds), 1.0)

    def text(self) -> str:
        """As the shipped file has it."""
        return json.dumps(dict(self.seconds), indent=1) + "\n"

    def one(self, job: Job, launch: Launch) -> float:
        """How dear one launch of `job` is beside others: by its kind, and by the code that its tile unrolls to.

        No time: elements of the result and of A and B that a thread holds, each function of the epilogue on the former.
        """
        t = launch.tile
        epilogue = remembered(job.folder).by_name[job.name].variant.epilogue
        functions = sum(isinstance(node, ast.Call) for step in epilogue.steps for node in ast.walk(step.tree))
        return self.each(job) * (1024 * t.warps + t.m * t.n * (1 + 2 * functions) + (t.m + t.n) * t.k)


def _kinds(job: Job) -> list[str]:
    """What takes about as long as `job`, the nearest first: its level and target, then schedule, load and so on."""
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
