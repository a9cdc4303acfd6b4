"""Records made by hand, for tests of what only reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from generator.bench.measurements import (
    COPY,
    TIMED,
    BenchmarkResults,
    ComparisonRecord,
    Side,
    Timing,
    compared,
    text_of,
)
from generator.epilogue.chain import Epilogue
from generator.files.updating import put
from generator.language.model import Dtype, Layout
from generator.problem.product import Problem, Shape

ROW = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}


@dataclass(frozen=True)
class Sampled(Side):
    """A side with the samples that its record's ratios are made from."""

    samples: tuple[float, ...] = ()


def side(label: str, role: str, samples: Sequence[float]) -> Sampled:
    """A side that is right, with the same samples everywhere."""
    family, digest, config = (None, None, None) if role == "peer" else ("fp16_rcr", "ab" * 32, ROW)
    return Sampled(
        label,
        role,
        f"{label}_name",
        family,
        digest,
        config,
        None if config is None else 0,
        gpu=Timing.of("graph", 4, samples),
        call=Timing.of("calls", 9, samples),
        host=Timing.of("calls", 9, samples),
        error=0.0002,
        tolerance=0.004,
        samples=tuple(samples),
    )


def record(
    *sides: Sampled, shape: tuple[int, int, int] = (4096, 4096, 4096), case: str = "squares"
) -> ComparisonRecord:
    """A record of fp16 without an epilogue on the environment `env`."""
    problem = Problem(Shape(*shape), Dtype.of("fp16"), Layout.of("rcr"), Epilogue())
    method: dict[str, str | int] = {"version": 1, "rounds": 3, "configs": "select", "peer": "cublas", "sets": 2}
    sampled = [{} if each.failure else dict.fromkeys(TIMED, each.samples) for each in sides]
    plain = tuple(Side(**{entry.name: getattr(each, entry.name) for entry in fields(Side)}) for each in sides)
    return ComparisonRecord(f"key {case} {shape}", case, "Squares", problem, "env", method, compared(plain, sampled))


def results(*records: ComparisonRecord) -> BenchmarkResults:
    """Results of a device that copies 4 TB/s and multiplies 700 TFLOP/s."""
    return BenchmarkResults(
        {"env": {"device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0"}},
        {"env": {COPY: 4e12, "fp16": 7e14}},
        list(records),
    )


def save(found: BenchmarkResults, path: Path) -> None:
    """A file of results, as `bench` writes it."""
    put(path, text_of(found, path))


def wrong(one: Sampled) -> Sampled:
    """The side as it is recorded when its result was wrong: no times."""
    return replace(
        one, gpu=None, call=None, host=None, failure="wrong result: relative error 0.5, at most 0.004 is right"
    )
