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
class Figures:
    """What the median time of one side on the GPU comes to."""

    seconds: float
    #: 1e12 operations, and 1e9 least bytes, per second.
    tflops: float
    gbytes: float
    #: The time of the roofline as a share of the side's; None without measured ceilings.
    share: float | None
    #: What bounds the product, a word of `REASONS`, if the side is above 100 %.
    above: str | None


def ceilings(results: BenchmarkResults, record: ComparisonRecord) -> tuple[float, float] | None:
    """Operations and bytes a second that bound the problem of a record, if both were measured."""
    rates = results.ceilings.get(record.environment, {})
    word = record.problem.dtype.word
    return (rates[word], rates[COPY]) if word in rates and COPY in rates else None


def figures(results: BenchmarkResults, record: ComparisonRecord, side: Side) -> Figures | None:
    """The figures of a side of a record; None if it has no right result."""
    if side.gpu is None or side.failure is not None:
        return None
    problem, seconds, bounds = record.problem, side.gpu.median / 1e6, ceilings(results, record)
    share = above = None
    if bounds is not None:
        operations, bytes_ = problem.flops / bounds[0], problem.bytes / bounds[1]
        share = max(operations, bytes_) / seconds
        above = ("operations" if operations >= bytes_ else "bytes") if share > 1 else None
    return Figures(seconds, problem.flops / seconds / 1e12, problem.bytes / seconds / 1e9, share, above)
