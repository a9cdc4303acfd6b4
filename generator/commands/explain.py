"""`python -m generator explain SPEC|KERNEL`: what is rendered and why, and what a call would run, in words."""

from __future__ import annotations

import argparse
import math

from generator.commands.argument_types import Parser, add_device
from generator.language.call_numbers import MOST_SIZES, sizes_of, too_large
from generator.language.errors import CallError, shown
from generator.language.measured_values import LARGEST_SIZE
from generator.plan.devices import named
from generator.problem.written_sizes import WrittenSizes, written_sizes
from generator.tune.explain import explain


def main(argv: list[str]) -> int:
    """Print the explanation and return 0; raises `CallError` for a wrong command line, `SpecError` for a wrong spec."""
    options = parser().parse_args(argv)
    sizes = () if options.sizes is None else _sizes(options.sizes)
    explain(options.subject, options.only, sizes, named(options.device))
    return 0


def parser() -> argparse.ArgumentParser:
    cli = Parser(
        "explain",
        "Say what a spec renders, why each variant is there or left out, and what a call would run.",
        epilog="With --sizes the family is imported, which needs torch and triton and no GPU.",
    )
    cli.option("subject SPEC|KERNEL", "a spec, the folder of a rendered family, or a kernel's file")
    cli.option("--only GLOB", "only kernels or contracts whose name matches")
    cli.option(
        "--sizes M,N,K",
        "also what a call of these sizes would run; of a batch B,M,N,K; each may be a range: 1:8192:*2,4096,4096",
    )
    add_device(cli, "on which GPU (default: nvidia_h200)", default="nvidia_h200")
    return cli


def _sizes(text: str) -> tuple[tuple[int, ...], ...]:
    """M, N and K of each call, after the number of products of a batch; M varies first."""
    named = "=" in text or ("," not in text and "x" in text)
    calls = []
    try:
        for shape in (written_sizes(text) if named else _in_order(text)).shapes():
            if shape.pad:
                raise ValueError(f"{shape}: a call with contiguous operands has no padding")
            if named and shape.fault is not None:
                raise ValueError(f"{shape}: {shape.fault}")
            front = shape.batch or shape.groups
            if reason := too_large(shape.m, shape.n, shape.k, front or 1):
                raise ValueError(reason)
            calls.append((*([front] if front else []), shape.m, shape.n, shape.k))
    except ValueError as error:
        raise CallError(f"explain: --sizes: {error}") from None
    return tuple(calls)


def _in_order(text: str) -> WrittenSizes:
    """The sizes of `M,N,K` or `B,M,N,K`; raises ValueError."""
    each = f"each from 1 to {LARGEST_SIZE} or a range, 1:64 or 1:8192:*2"
    form = f"expected M,N,K or B,M,N,K, {each}, as in 4096,4096,4096, found {shown(text)}"
    parts, sizes = text.split(","), []
    for name, part in zip(("B", "M", "N", "K")[-len(parts) :], parts):
        try:
            sizes.append(sizes_of([part]))
        except ValueError as error:
            raise ValueError(f"{form}; {name}: {error}") from None
    if len(parts) not in (3, 4) or not all(sizes):
        raise ValueError(form)
    count = math.prod(map(len, sizes))
    if count > MOST_SIZES:
        raise ValueError(f"at most {MOST_SIZES} sizes are possible, got {count} in {shown(text)}")
    *batch, m, n, k = sizes
    return WrittenSizes(m, n, k, batch[0] if batch else ())
