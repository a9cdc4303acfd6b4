"""Kernels of weights in fragment order beside torch.matmul: `python measured/scripts/fragments.py FILE`.

FILE receives JSON. Each configuration of the kernels of `specs/fragments.yaml` is measured, and what the family's
function chooses; with `--family widths_stored` those of weights as they are stored otherwise. `--only GLOB` measures
the kernels whose name matches alone, and after `--seconds` no further size begins. A sample is a graph of several
calls, whose operands take turns so that B comes from memory; the sides of a size take turns in each round. A ratio is
the time of torch's product in bf16 over a configuration's, the median of those of the rounds. Results are compared with
float64 before.
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
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from rounds import in_turns, on_gpu, ratio

CONTRACTS = {
    "fragments": (
        "gemm_bf16xint4_fp32_bf16_b128x1_fragments_rcr_none",
        "gemm_bf16xint8_fp32_bf16_ballx1_fragments_rcr_none",
    ),
    "widths_stored": (
        "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none",
        "gemm_bf16xint8_fp32_bf16_ballx1_rcr_none",
    ),
}
#: M, N and K, first those of which a divided K matters most.
SIZES = [(m, n, k) for n, k in ((5120, 8192), (14336, 4096)) for m in (257, 96, 144, 16, 777, 3000)]
ROUNDS, CALLS = 9, 6
#: The weights that take turns: together they outgrow the L2.
WEIGHTS = 6
#: The largest difference from float64, of its root mean square: scaled elements and results are rounded to bf16.
CLOSE = 8e-3

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Sample:
    """A row of FILE, a graph of calls, and the call with the operands that the graph reads."""

    row: dict[str, Any]
    graph: torch.cuda.CUDAGraph
    call: Call


def sample(row: dict[str, Any], call: Call) -> Sample:
    """A sample of `call`, which has run before and takes the number of the operands."""
    recorded, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.graph(recorded, stream=stream):
        for index in range(CALLS):
            call(index)
    return Sample(row, recorded, call)


def sides(family: str, contract: str, only: str) -> list[tuple[str, dict[str, int] | None, Callable[..., Any]]]:
    """Each configuration of the kernels of a contract whose name matches `only`, and the family's function."""
    candidates: list[tuple[str, dict[str, int] | None, Callable[..., Any]]] = []
    for file in sorted(Path("generated", family).glob(f"{contract}__*.py")):
        if fnmatch(file.stem, only):
            module = importlib.import_module(f"{family}.{file.stem}")
            candidates += [(file.stem, row, module.gemm) for row in module.CONFIGS]
    return [*candidates, ("chosen", None, getattr(importlib.import_module(family), contract))]


def measured(size: tuple[int, int, int], family: str, only: str) -> list[dict[str, Any]]:
    """The rows of a size in FILE."""
    pack = importlib.import_module(f"{family}._pack")
    m, n, k = size
    torch.manual_seed(m)
    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    a = [torch.randn(m, k, **options) for _ in range(2)]
    dense = [torch.randn(n, k, **options).T for _ in range(2)]
    out = torch.empty(m, n, **options)
    torch.mm(a[0], dense[0], out=out)
    samples = [sample({}, lambda index: torch.mm(a[index % 2], dense[index % 2], out=out))]
    rows: list[dict[str, Any]] = []
    for contract in CONTRACTS[family]:
        packed = pack.quantize(dense[0].float(), contract)
        given = [{**packed, "b": packed["b"].mT.clone().mT} for _ in range(WEIGHTS)]
        exact = a[0].double() @ pack.dequantize(contract, **packed).double()
        scale = exact.square().mean().sqrt()
        for kernel, config, function in sides(family, contract, only):
            row = {"size": size, "contract": contract, "kernel": kernel, "config": config}
            chosen = {} if config is None else {"config": config}

            def call(index: int, function: Any = function, given: Any = given, chosen: Any = chosen) -> Any:
                return function(a[index % 2], **given[index % WEIGHTS], out=out, **chosen)

            try:
                out.fill_(float("nan"))
                apart = float((call(0).double() - exact).square().mean().sqrt() / scale)
                if not apart < CLOSE:
                    raise ValueError(f"off by {apart:.2g} of the root mean square")
                samples.append(sample({**row, "apart": apart}, call))
            except Exception as error:
                # What cannot run, or is wrong, is in FILE with its reason, and the others go on.
                rows.append(row | {"error": f"{type(error).__name__}: {str(error)[:200]}"})
    replays = {number: partial(on_gpu, each.graph.replay, CALLS) for number, each in enumerate(samples)}
    # The clock rates rise in the first rounds.
    times = in_turns(replays, ROUNDS, warm=2)
    for number, each in enumerate(samples[1:], 1):
        against = ratio(times[0], times[number])["median"]
        rows.append(each.row | {"seconds": statistics.median(times[number]), "ratio": against})
    return sorted(rows, key=lambda row: (row["contract"], -row.get("ratio", 0.0)))


def main(file: Path, family: str, only: str, seconds: float) -> None:
    sys.path.insert(0, "generated")
    started = time.monotonic()
    place = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        if time.monotonic() - started > seconds:
            print(f"{'x'.join(map(str, size))} and what follows it is not measured: {seconds:.0f} s are over")
            break
        rows += (measured_size := measured(size, family, only))
        for row in measured_size:
            word = row["contract"].split("_")[1]
            print("x".join(map(str, size)), word, f"{row.get('ratio', 0.0):.3f}", row["kernel"].partition("__")[2])
            print("   ", row["config"], row.get("error", ""), flush=True)
        # A part is there if a later size fails.
        file.write_text(json.dumps({"place": place, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--family", choices=CONTRACTS, default="fragments")
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    main(given.file, given.family, given.only, given.seconds)
