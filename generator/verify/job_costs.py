"""What jobs cost, so that every shard of a run computes the same division."""

from __future__ import annotations

import ast

from generator.emit.manifest_reader import remembered
from generator.verify.jobs import Job
from generator.verify.launches import CompiledLaunch, launches

#: Seconds of a job, at the compile level of one launch: the means over all families.
_SECONDS = {"static": 0.01, "bounds": 0.5, "interpret": 4.0, "compile": 0.7, "gpu": 6.0}


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
