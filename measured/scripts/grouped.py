"""Grouped products beside `torch.nn.functional.grouped_mm`: `python measured/scripts/grouped.py FILE`.

`gmm_bf16_rcr_none` of `generated/grouped` at sizes of mixtures of experts, with rows that are spread evenly, and by
Zipf's law. A time is the median of five replays of a graph of eight calls, ours and torch's one after the other. FILE
receives JSON: microseconds, the ratio of torch's time to ours, how many groups have rows, and what ran.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton

from generated import grouped

#: Groups, N, K and rows.
SIZES = (
    (8, 14336, 4096, 4096),
    (8, 4096, 14336, 4096),
    (128, 1536, 2048, 4096),
    (128, 1536, 2048, 256),
    (64, 2816, 2048, 16384),
    (32, 5760, 2880, 1024),
)
CALLS, REPLAYS = 8, 5
#: The largest difference of an element from torch's, relative to the largest element.
CLOSE = 0.01


def microseconds(call: Callable[[], object]) -> float:
    """The GPU time of a call."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)) * 1000 / CALLS)
    return statistics.median(times)


def measured(groups: int, n: int, k: int, rows: int, routing: str) -> dict[str, Any]:
    """Both times at one size."""
    torch.manual_seed(1)
    weights = torch.ones(groups) if routing == "even" else 1 / torch.arange(1, groups + 1).float()
    counts = torch.multinomial(weights, rows, replacement=True).bincount(minlength=groups)
    offsets = counts.cumsum(0).int().cuda()
    a = torch.randn(rows, k, device="cuda").bfloat16()
    b = (torch.randn(groups, n, k, device="cuda", dtype=torch.bfloat16) * 0.02).mT
    result, wanted = grouped.gmm_bf16_rcr_none(a, b, offsets), F.grouped_mm(a, b, offs=offsets)
    difference = (result.float() - wanted.float()).abs().max() / wanted.float().abs().max()
    if difference > CLOSE:
        raise SystemExit(f"{groups} groups, {n}x{k}, {rows} rows: an element is off by {difference:.1%} of the largest")
    ours = microseconds(lambda: grouped.gmm_bf16_rcr_none(a, b, offsets))
    torchs = microseconds(lambda: F.grouped_mm(a, b, offs=offsets))
    kernel, row = grouped.gmm_bf16_rcr_none.which(a, b, offsets)
    filled = int((counts > 0).sum())
    size = {"groups": groups, "filled": filled, "n": n, "k": k, "rows": rows, "routing": routing}
    times = {"ours": round(ours, 1), "torch": round(torchs, 1), "ratio": round(torchs / ours, 3)}
    return {**size, **times, "kernel": kernel, "configuration": row}


def main(path: Path) -> None:
    """Measure every size, and write what was found."""
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    sizes = [measured(*size, routing) for size in SIZES for routing in ("even", "zipf")]
    path.write_text(json.dumps({**place, "sizes": sizes}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
