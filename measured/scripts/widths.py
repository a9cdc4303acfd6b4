"""Every configuration of the kernels of a contract beside torch.matmul: `python measured/scripts/widths.py FILE`.

FILE receives JSON. By default the kernels are those of `specs/widths.yaml`; further arguments are the folders to
measure in its place (`generated/widths generated/gemm16`), of which kernels of the same contract count. `--only GLOB`
measures the kernels whose name matches alone, and after `--seconds` no further size begins.

A sample is a graph of several calls, whose operands take turns so that B comes from memory. The sides of a size are
measured one after another in each round; a ratio is torch's time over a configuration's, the median of those of the
rounds. Results are compared with torch's in fp32 before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
import triton

CONTRACT = "gemm_bf16_rcr_none"
#: M, N and K.
SIZES = (
    (257, 5120, 8192),
    (1045, 1920, 9216),
    (128, 5120, 8192),
    (257, 14336, 4096),
    (320, 7680, 5120),
    (144, 35840, 5120),
    (200, 28672, 4096),
    (512, 10240, 5120),
)
ROUNDS, CALLS = 15, 8
#: Bytes of operands that a sample reads at least before it reads the same ones again.
OUTGROWN = 256 << 20
#: The largest difference from the product in fp32, of its root mean square: results are rounded to bf16.
CLOSE = 2e-2

Operands = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Side:
    """What is measured: a kernel with a configuration, or torch."""

    kernel: str
    config: dict[str, int] | None
    call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def sides(folders: list[Path], only: str) -> list[Side]:
    """torch, and each configuration of the kernels of the contract whose name matches `only`."""
    found = [Side("torch.matmul", None, torch.matmul)]
    for folder in folders:
        sys.path.insert(0, str(folder.resolve().parent))
        for file in sorted(folder.glob(f"{CONTRACT}__*.py")):
            if not fnmatch(file.stem, only):
                continue
            module = importlib.import_module(f"{folder.name}.{file.stem}")
            found += [Side(file.stem, row, _configured(module.gemm, row)) for row in module.CONFIGS]
    return found


def _configured(gemm: Callable[..., Any], row: dict[str, int]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda a, b: gemm(a, b, config=row)


def operands(m: int, n: int, k: int) -> Operands:
    """Enough pairs of A and B to outgrow the L2, and at most as many as there are calls in a sample."""
    torch.manual_seed(m)
    many = min(CALLS, -(-OUTGROWN // (2 * k * (m + n))))
    made = dict(device="cuda", dtype=torch.bfloat16)
    return [(torch.randn(m, k, **made), torch.randn(n, k, **made).T) for _ in range(many)]  # type: ignore[call-overload]


def graph(side: Side, given: Operands) -> torch.cuda.CUDAGraph:
    """A sample of a side, which has run before."""
    recorded, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.graph(recorded, stream=stream):
        for index in range(CALLS):
            side.call(*given[index % len(given)])
    return recorded


def seconds(sample: torch.cuda.CUDAGraph) -> float:
    """The time of a call in a sample."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    sample.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / CALLS / 1e3


def measured(size: tuple[int, int, int], compared: list[Side]) -> list[dict[str, Any]]:
    """The rows of a size in FILE, the fastest first."""
    given, rows = operands(*size), list[dict[str, Any]]()
    samples = list[tuple[dict[str, Any], torch.cuda.CUDAGraph, list[float]]]()
    a, b = given[0]
    exact = a.float() @ b.float()
    scale = exact.square().mean().sqrt()
    for side in compared:
        row: dict[str, Any] = {"size": size, "kernel": side.kernel, "config": side.config}
        try:
            apart = float((side.call(a, b).float() - exact).square().mean().sqrt() / scale)
            if not apart < CLOSE:
                raise ValueError(f"off by {apart:.2g} of the root mean square")
            samples.append((row, graph(side, given), []))
        except Exception as error:
            # What cannot run, or is wrong, is in FILE with its reason, and the others go on.
            rows.append(row | {"error": f"{type(error).__name__}: {str(error)[:200]}"})
    for sample in range(ROUNDS + 2):
        for _, recorded, times in samples:
            taken = seconds(recorded)
            # The clock rates rise in the first rounds.
            times += [taken] if sample >= 2 else []
    theirs = samples[0][2]
    for row, _, times in samples:
        ratio = statistics.median(mine / own for mine, own in zip(theirs, times, strict=True))
        rows.append(row | {"seconds": statistics.median(times), "ratio": ratio})
    return sorted(rows, key=lambda row: -row.get("ratio", 0.0))


def main(file: Path, folders: list[Path], only: str, seconds: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    started = time.monotonic()
    compared, rows = sides(folders, only), []
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    for size in SIZES:
        if time.monotonic() - started > seconds:
            print(f"{'x'.join(map(str, size))} and what follows it is not measured: {seconds:.0f} s are over")
            break
        found = measured(size, compared)
        rows += found
        for row in found[:6]:
            print("x".join(map(str, size)), f"{row.get('ratio', 0.0):.3f}", row["kernel"], row["config"], flush=True)
        for row in found:
            if "error" in row:
                print("x".join(map(str, size)), row["kernel"], row["config"], row["error"], flush=True)
        # A part is there if a later size fails.
        file.write_text(json.dumps({"place": place, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folders", type=Path, nargs="*", default=[Path("generated/widths")])
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    main(given.file, given.folders, given.only, given.seconds)
