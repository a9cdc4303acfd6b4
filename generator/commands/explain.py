"""`python -m generator explain SPEC|KERNEL`: what is rendered and why, and what a call would run, in words."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from generator.files.program import program
from generator.language.call_numbers import too_large, whole_number
from generator.language.errors import CallError, shown
from generator.language.measured_values import LARGEST_SIZE
from generator.plan.devices import DEVICES, named
from generator.tune.explain import explain


def main(argv: list[str]) -> int:
    """Print the explanation and return 0; raises `CallError` for a wrong command line, `SpecError` for a wrong spec."""
    options = parser().parse_args(argv)
    sizes = None if options.sizes is None else _sizes(options.sizes)
    explain(options.subject, options.only, sizes, named(options.device))
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog=f"{program()} explain",
        description="Say what a spec renders, why each variant is there or left out, and what a call would run.",
        epilog="With --sizes the family is imported, which needs torch and triton and no GPU.",
        allow_abbrev=False,
    )
    made.add_argument(
        "subject", type=Path, metavar="SPEC|KERNEL", help="a spec, the folder of a rendered family, or a kernel's file"
    )
    made.add_argument("--only", metavar="GLOB", help="only kernels or contracts whose name matches")
    made.add_argument("--sizes", metavar="M,N,K", help="also what a call of these sizes would run; of a batch B,M,N,K")
    made.add_argument(
        "--device", default="nvidia_h200", help=f"on which GPU: {', '.join(DEVICES)} (default: nvidia_h200)"
    )
    return made


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    try:
        if len(parts) in (3, 4):
            sizes = tuple(whole_number(part, 1, LARGEST_SIZE) for part in parts)
            *others, m, n, k = sizes
            reason = too_large(m, n, k, math.prod(others))
            if reason is not None:
                raise CallError(f"explain: --sizes: {reason}")
            return sizes
    except ValueError:
        pass
    each = f"each from 1 to {LARGEST_SIZE}"
    raise CallError(f"explain: --sizes: expected M,N,K or B,M,N,K, {each}, as in 4096,4096,4096, found {shown(text)}")
