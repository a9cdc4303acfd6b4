"""What it takes to copy operands that lie badly, beside torch: `python measured/scripts/copies.py generated/gemm16`.

Microseconds, the median of nine replays of a graph, over operands that outgrow the L2.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

ALIGNED = [(4097, 4095), (1001, 1003), (128, 4095), (28672, 4095), (4095, 511)]
TURNED = [(4096, 4096), (1024, 1024), (8192, 14336)]


def seconds(copy: Callable[[torch.Tensor], object], operands: Sequence[torch.Tensor]) -> float:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for x in operands:
            copy(x)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for x in operands:
                copy(x)
    taken = []
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / len(operands))
    return sorted(taken[1:])[4]


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(folder.parent))
    copies = importlib.import_module(f"{folder.name}._runtime.copies")

    def padded(x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        copy = torch.empty(rows, -(-columns // 8) * 8, dtype=x.dtype, device=x.device)[:, :columns]
        return copy.copy_(x)

    for what, sizes, dtype, theirs, ours in (
        ("fp16, aligned", ALIGNED, torch.float16, padded, copies.aligning),
        ("fp32, turned around", TURNED, torch.float32, torch.Tensor.contiguous, lambda x: copies.turning("a")),
    ):
        for rows, columns in sizes:
            operands = [torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(6)]
            if theirs is not padded:
                operands = [x.T.contiguous().T for x in operands]
            times = [seconds(copy, operands) * 1e3 for copy in (theirs, ours(operands[0]))]
            print(f"{what} {rows}x{columns}: torch {times[0]:.1f}, ours {times[1]:.1f}")


if __name__ == "__main__":
    main()
