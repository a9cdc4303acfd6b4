"""What jobs take, as measured once and shipped: every shard of a run divides by the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from generator.rendered import remembered
from generator.verify.jobs import Job, Result
from generator.verify.launches import launches

_FILE = Path(__file__).with_name("costs.json")


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
                for kind in (_kind(result.job), result.job.level):
                    entry = sums.setdefault(kind, [0.0, 0.0])
                    entry[0] += result.seconds
                    entry[1] += count
        return cls({kind: round(total / max(count, 1), 3) for kind, (total, count) in sorted(sums.items())})

    def of(self, job: Job) -> float:
        """Seconds that `job` can be expected to take; kinds never measured cost as their level does."""
        seconds = self.seconds.get(_kind(job), self.seconds.get(job.level, 1.0))
        return seconds * _launches(job) if job.level == "compile" else seconds

    def text(self) -> str:
        """As the shipped file has it."""
        return json.dumps(dict(self.seconds), indent=1) + "\n"


def _kind(job: Job) -> str:
    """Jobs of one kind take about as long: level, target, schedule, load and masking."""
    words = [job.level, *([job.target] if job.target else []), *(["contract"] if job.contract else [])]
    if not job.contract and job.level != "static":
        variant = remembered(job.folder).by_name[job.name].variant
        words += [variant.schedule, variant.load, variant.masking]
    return " ".join(words)


def _launches(job: Job) -> int:
    if job.chosen:
        return len(job.chosen)
    assert job.target is not None
    return len(launches(remembered(job.folder).by_name[job.name], job.target))
