"""Rows of results bit by bit, and what `invariant: rows` costs: `python measured/scripts/invariant.py FILE`.

The plain products of `specs/gemm16.yaml` in the layout `rcr` are rendered with the key and without it. With the key,
the first and the last rows of A, in numbers from 1 to 8192, must have the bits that they have among all rows. The times
of both families are interleaved: the median replay of a graph of calls, whose operands outgrow the L2. FILE receives
JSON; the exit status is 1 if a bit differs.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
import triton
from rounds import in_turns, on_gpu

from generator.commands.command_line import main as render

SPEC = Path("specs/gemm16.yaml").resolve()
MOST = 8192
#: Every power of two and its neighbours, and other odd numbers.
ROWS = sorted(({2**p + d for p in range(14) for d in (-1, 0, 1)} | {11, 77, 333, 1000, 3001, 5555}) - {0, MOST + 1})
TIMED = (1, 2, 8, 16, 17, 32, 64, 100, 128, 256, 512, 1000, 1024, 2048, 4096, 8192)
#: N and K: layers of a transformer, and rows that no descriptor can address.
SIZES = ((4096, 4096), (28672, 4096), (4096, 14336), (1024, 1024), (1000, 1003))
CONTRACTS = ("gemm_fp16_rcr_none", "gemm_bf16_rcr_none")
#: Bytes that the operands of a graph have at least; replays of a graph.
OUTGROWN, REPLAYS = 2**27, 15


def families(folder: Path) -> tuple[ModuleType, ModuleType]:
    """The family with the key, and the one without it."""
    text = SPEC.read_text().replace("[rcr, rrr, crr, ccr]", "rcr").replace("backward: kernels\n", "")
    text = text.replace("tuned: ", f"tuned: {SPEC.parent}/")
    for name, key in (("alike", "invariant: rows\n"), ("free", "")):
        (folder / f"{name}.yaml").write_text(text + key)
        if render([str(folder / f"{name}.yaml"), "--out", str(folder)]):
            raise SystemExit(f"{name}.yaml cannot be rendered")
    sys.path.insert(0, str(folder))
    return importlib.import_module("alike"), importlib.import_module("free")


def operands(contract: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.float16 if "fp16" in contract else torch.bfloat16
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda") * k**-0.5
    return a.to(dtype), b.to(dtype).T


def differing(function: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> list[int]:
    """The numbers of rows for which a bit of the first or of the last rows differs from that among all rows."""

    def bits(x: torch.Tensor) -> torch.Tensor:
        return function(x, b).view(torch.int16)

    whole, other_rows = bits(a), []
    for m in ROWS:
        if not (torch.equal(bits(a[:m]), whole[:m]) and torch.equal(bits(a[-m:]), whole[-m:])):
            other_rows.append(m)
    return other_rows


def graph(
    function: Callable[..., torch.Tensor], given: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.cuda.CUDAGraph:
    """A graph of one call for each pair of operands."""
    captured, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for a, b in given:
            function(a, b)
        stream.synchronize()
        with torch.cuda.graph(captured, stream=stream):
            for a, b in given:
                function(a, b)
    return captured


def microseconds(functions: list[Callable[..., torch.Tensor]], contract: str, m: int, n: int, k: int) -> list[float]:
    """The time of a call of each function."""
    count = max(2, -(-OUTGROWN // (2 * (m * k + k * n))))
    given = [operands(contract, m, n, k) for _ in range(count)]
    graphs = [graph(function, given) for function in functions]
    sides = {index: partial(on_gpu, each.replay, count) for index, each in enumerate(graphs)}
    return [round(1e6 * statistics.median(times), 2) for times in in_turns(sides, REPLAYS, warm=2).values()]


def main(path: Path) -> int:
    """Compare and time every contract and size."""
    torch.manual_seed(0)
    results: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        alike, free = families(Path(folder))
        for contract in CONTRACTS:
            ours, best = getattr(alike, contract), getattr(free, contract)
            for n, k in SIZES:
                a, b = operands(contract, MOST, n, k)
                kernel, config = ours.which(a, b)
                result: dict[str, Any] = {"contract": contract, "n": n, "k": k, "kernel": kernel, "config": config}
                # Each M, not only those that are called: what is chosen is known without a launch.
                result["choices"] = len({str(ours.which(a[:m], b)) for m in range(1, MOST + 1)})
                result["differing"], result["differing_without"] = differing(ours, a, b), differing(best, a, b)
                times = {m: microseconds([ours, best], contract, m, n, k) for m in TIMED}
                result["times"] = [
                    {"m": m, "rows": x, "free": y, "ratio": round(x / y, 3)} for m, (x, y) in times.items()
                ]
                results.append(result)
                print(json.dumps(result), flush=True)
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    path.write_text(json.dumps({**place, "unit": "us", "rows": ROWS, "products": results}, indent=1) + "\n")
    return int(any(result["differing"] or result["choices"] > 1 for result in results))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
