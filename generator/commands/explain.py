"""`python -m generator explain SPEC|KERNEL`: what is rendered and why, and what a call would run, in words."""

from __future__ import annotations

import argparse

from generator.commands.argument_types import Parser, add_device
from generator.language.errors import CallError
from generator.plan.devices import named
from generator.problem.written_sizes import written_sizes
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
    calls = []
    try:
        for shape in written_sizes(text).shapes():
            if reason := "a call with contiguous operands has no padding" if shape.pad else shape.fault:
                raise ValueError(f"{shape}: {reason}")
            front = shape.batch or shape.groups
            calls.append((*([front] if front else []), shape.m, shape.n, shape.k))
    except ValueError as error:
        raise CallError(f"explain: --sizes: {error}") from None
    return tuple(calls)
