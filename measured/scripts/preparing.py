"""What `prepare` takes, that later calls compile nothing, and the parts of a first call: needs a GPU.

python measured/scripts/preparing.py [generated [RESULTS.json]]

Every compilation after `prepare` is counted: kernels that Triton compiles or takes from its cache on disk, and
launchers that it compiles from C. Operands of these calls begin at any address, are column slices, or have odd leading
dimensions. The first call is that of a fresh process whose Triton cache is warm, without importing torch and triton.
"""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime import build
from triton.runtime.cache import triton_key

#: Family, contract, N and K, and each M.
CASES: tuple[tuple[str, str, int, int, list[int]], ...] = (
    *(
        ("gemm16", f"gemm_bf16_{layout}_none", 4096, 4096, [1, 2, 16, 24, 512])
        for layout in ("rcr", "rrr", "crr", "ccr")
    ),
    ("gemm16", "gemm_fp16_rcr_none", 14336, 4096, [*range(1, 17)]),
    ("gemm16", "gemm_fp16_rcr_none", 1000, 1003, [1, 8, 100, 4096]),
    ("fused", "gemm_bf16_rcr_bias_gelutanh", 4096, 4096, [1, 16, 100]),
    ("fused", "gemm_bf16_rcr_swiglu", 2048, 4096, [1, 32, 256]),
    ("fused", "gemm_fp8e4m3_rcr_scalem_scalen", 4096, 4096, [16, 512]),
)
CALLS = 300
#: The call whose first time is measured.
FAMILY, CONTRACT, SIZE = "gemm16", "gemm_fp16_rcr_none", 1024

counted: Counter[str] = Counter()


def count() -> None:
    """Count what Triton compiles from now on."""

    def listen(*, cache_hit: bool, **_: object) -> None:
        counted["from the cache on disk" if cache_hit else "kernels"] += 1

    triton.knobs.compilation.listener = listen
    compiled = build._build

    def launcher(*arguments: Any, **options: Any) -> Any:
        counted["launchers"] += 1
        return compiled(*arguments, **options)

    build._build = launcher


def some_call(table: dict[str, Any], sizes: dict[str, int], draw: random.Random) -> dict[str, torch.Tensor]:
    """Operands of any alignment, in memory of zeros."""
    given = {}
    for name, (dtype, shape, unit, optional) in table.items():
        if optional and draw.random() < 0.5:
            continue
        extents = tuple(sizes[size] for size in shape)
        dtype_of_span = dtype or (torch.float32 if table["a"][0].itemsize == 1 else table["out"][0])
        lead = extents[unit] + draw.choice([0, 0, 1, 2, 8, 16, 64, 4096])
        strides = (1,) if len(extents) == 1 else (lead, 1) if unit == 1 else (1, lead)
        offset = draw.choice([0, 0, 1, 2, 8, 16])
        span = offset + sum((size - 1) * stride for size, stride in zip(extents, strides)) + 1
        memory = torch.zeros(span * dtype_of_span.itemsize, dtype=torch.uint8, device="cuda").view(dtype_of_span)
        given[name] = memory.as_strided(extents, strides, offset)
    return given


def prepared(family: str, contract: str, n: int, k: int, rows: list[int]) -> dict[str, Any]:
    """Prepare one contract, call it, and say what was compiled before and after."""
    function = getattr(importlib.import_module(family), contract)
    counted.clear()
    begun = time.perf_counter()
    configurations = function.prepare(n, k, M=rows)
    seconds, before = time.perf_counter() - begun, dict(counted)
    counted.clear()
    draw, table = random.Random(0), importlib.import_module(f"{family}._operands").OPERANDS[contract]
    slowest, kernels = 0.0, set()
    for _ in range(CALLS):
        m = draw.choice(rows)
        call = some_call(table, {"M": m, "N": n, "2 * N": 2 * n, "K": k}, draw)
        kernels.add(function.which(**call)[0])
        torch.cuda.synchronize()
        begun = time.perf_counter()
        function(**call)
        slowest = max(slowest, time.perf_counter() - begun)
    torch.cuda.synchronize()
    return {
        "contract": contract,
        "N": n,
        "K": k,
        "M": rows,
        "configurations": configurations,
        "seconds": round(seconds, 1),
        "compiled": before,
        "calls": CALLS,
        "kernels called": len(kernels),
        "slowest call": round(slowest, 5),
        "compiled later": dict(counted),
    }


def first() -> dict[str, float]:
    """Seconds of the parts of a first call, in this process."""
    a, b = torch.randn(2, SIZE, SIZE, device="cuda", dtype=torch.float16)
    torch.cuda.synchronize()
    parts, begun = {}, time.perf_counter()

    def part(name: str) -> None:
        nonlocal begun
        torch.cuda.synchronize()
        parts[name], begun = round(time.perf_counter() - begun, 4), time.perf_counter()

    # Triton keeps it for the rest of the process.
    triton_key()
    part("Triton's hash of itself")
    function = getattr(importlib.import_module(FAMILY), CONTRACT)
    part("import of the family")
    _, kernel, row = function.step({"a": a, "b": b.T, "out": None})
    plan = kernel.plan(a, b.T, config=row)
    part("choice and plan")
    compiled = plan.kernel.warmup(grid=plan.grid, **plan.arguments)
    part("reading the kernel from the cache")
    compiled.run  # noqa: B018
    part("loading it")
    function(a, b.T)
    part("the call")
    return parts


def first_whole() -> dict[str, float]:
    """Seconds of a first call, in this process."""
    a, b = torch.randn(2, SIZE, SIZE, device="cuda", dtype=torch.float16)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    getattr(importlib.import_module(FAMILY), CONTRACT)(a, b.T)
    torch.cuda.synchronize()
    return {"whole": round(time.perf_counter() - begun, 4)}


def child(folder: Path, what: str) -> dict[str, float]:
    ran = subprocess.run([sys.executable, __file__, str(folder), what], capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(ran.stdout)
    return times


def main(folder: Path, results: Path) -> int:
    """Print and write the results; return 1 if a call after `prepare` compiled anything."""
    # The first process fills the cache.
    runs = [child(folder, what) for what in ("whole", "whole", "parts", "whole", "parts")]
    count()
    cases = [prepared(*case) for case in CASES]
    record = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "first call, seconds": runs[1:],
        "prepare": cases,
    }
    text = json.dumps(record, indent=1)
    results.write_text(text + "\n")
    print(text)
    return int(any(case["compiled later"] for case in cases))


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "generated")
    sys.path.insert(0, str(place.resolve()))
    last = sys.argv[2] if len(sys.argv) > 2 else "measured/nvidia_h200/preparing.json"
    if last in ("whole", "parts"):
        print(json.dumps(first() if last == "parts" else first_whole()))
    else:
        sys.exit(main(place, Path(last)))
