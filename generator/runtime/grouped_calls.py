"""Functions of products that `offsets` divide into groups, of which only the device knows the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from . import spreading
from .contracts import Config, Function, Result, Sizes


def spread(numbers: Mapping[str, int]) -> list[Sizes]:
    """The number of groups, M, N and K for each way in which `spreading` assumes that rows are in groups."""
    groups, total, n = numbers["G"], numbers["T"], numbers["N"]
    if "K" in numbers:
        return [(count, m, n, numbers["K"]) for count, m in spreading.ways(min(total, groups), total)]
    return [(count, numbers["M"], n, k) for count, k in spreading.ways(groups, total)]


def positional(gemm: Function) -> Any:
    """The function with `offsets` behind `b`."""

    def grouped(
        a: Tensor,
        b: Tensor,
        offsets: Tensor,
        *more: Any,
        out: Tensor | None = None,
        config: Config | int | None = None,
        **operands: Any,
    ) -> Result:
        found: Result = gemm(a, b, *more, out=out, config=config, offsets=offsets, **operands)
        return found

    return grouped
