"""The roofline of a product, and why a time may be below it: the ceilings are measured rates, and no limits."""

from __future__ import annotations

from dataclasses import dataclass

from generator.bench.measurements import COPY, BenchmarkResults, ComparisonRecord, Side

#: What bounds a product by the roofline -> why it may be faster than that.
REASONS = {
    "operations": "The ceiling of operations is the rate of torch's product of one large square in the same type, "
    "measured in the same run. A kernel that is faster than torch's exceeds it, and so may a product of other "
    "sizes, at which the GPU keeps a higher clock rate.",
    "bytes": "The ceiling of bytes is the rate of a copy, which writes as many bytes as it reads. A product that reads "
    "a large matrix and writes little exceeds it, because a memory reads faster than it changes between both.",
}


@dataclass(frozen=True)
class Roofline:
    """The ceilings of one problem: operations and bytes a second, None where not measured."""

    rate: float | None
    bandwidth: float | None

    def floor(self, flops: int, size: int) -> float | None:
        """The least seconds for so many operations and bytes."""
        if not self.rate or not self.bandwidth:
            return None
        return max(flops / self.rate, size / self.bandwidth)


def roofline(record: ComparisonRecord, results: BenchmarkResults) -> Roofline:
    """The ceilings that hold for a record."""
    name = record.problem.dtype.word
    return Roofline(results.ceiling(record.environment, name), results.ceiling(record.environment, COPY))


def bounded_by(record: ComparisonRecord, results: BenchmarkResults, side: Side) -> str | None:
    """What bounds the product of a side whose figure is above 100 %, a word of `REASONS`; None for another side."""
    ceilings, problem = roofline(record, results), record.problem
    floor = ceilings.floor(problem.flops, problem.bytes)
    if floor is None or side.gpu is None or side.failure is not None or floor <= side.gpu.median / 1e6:
        return None
    assert ceilings.rate is not None
    return "operations" if problem.flops / ceilings.rate == floor else "bytes"
