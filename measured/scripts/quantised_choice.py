"""What quantising a result costs each configuration: `PYTHONPATH=. python measured/scripts/quantised_choice.py FILE`.

The products are bf16, A (M, K) by B (K, N) column-major, plain and with the result in fp8 under scales of blocks of
128, by a family with `select: fastest`. Of each size FILE, a CSV table, has for each configuration that kernels of both
have the microseconds of either, in turns; and a line without a configuration for what both functions choose. A sample
is a replay of a CUDA graph of several calls, whose operands take turns. Needs a GPU.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from quantised import kernels_of
from torch_candidate import APART, captured, microseconds, put_table

from generator.commands.command_line import main as render

SPEC = (
    "summary: Products.\nlayout: rcr\ndtype: bf16\nepilogue: [none, [{quantize: {to: fp8e4m3}}]]\n"
    "select: fastest\ntargets: [sm90]\n"
)
PLAIN, QUANTISED = "gemm_bf16_rcr_none", "gemm_bf16_rcr_quantize_fp8e4m3"
SIZES = (
    *((88, 14336, 4096), (192, 14336, 4096), (352, 6144, 4096), (500, 14336, 4096), (656, 14336, 4096)),
    *((660, 4096, 4096), (1000, 4096, 4096), (2048, 14336, 4096), (4096, 4096, 4096)),
)
WORKERS = 14
#: How the names begin of the kernels that are timed, behind that of the contract: all.
EVERY = ("",)


def operands(m: int, n: int, k: int) -> dict[str, torch.Tensor]:
    a, b = (torch.randn(size, k, device="cuda", dtype=torch.bfloat16) for size in (m, n))
    return {"a": a, "b": (b * k**-0.5).t()}


def compiled(folder: Path, contract: str, how: str, index: int, m: int) -> None:
    """Compile a configuration, into Triton's cache; one that cannot run is left out of the table."""
    sys.path.insert(0, str(folder))
    try:
        kernels_of(importlib.import_module("products"), contract, EVERY)[how].gemm(
            **operands(m, 4096, 4096), config=index
        )
    except Exception as error:
        print(f"{contract}__{how} {index}: {error}", file=sys.stderr)


def rows(size: tuple[int, int, int]) -> list[dict[str, Any]]:
    """The lines of FILE of a size."""
    m, n, k = size
    count = max(2, min(8, APART // (2 * k * (m + n))))
    given = [operands(*size) for _ in range(count)]
    family = importlib.import_module("products")

    def compared(calls: dict[str, Callable[..., Any]]) -> dict[str, float]:
        graphs = {name: captured(lambda x, call=call: call(**x), given) for name, call in calls.items()}
        return microseconds(graphs, count)

    chosen = {"plain_us": getattr(family, PLAIN), "quantised_us": getattr(family, QUANTISED)}
    lines = [{"m": m, "n": n, "k": k, "kernel": "", "configuration": "", **compared(chosen)}]
    plain = kernels_of(family, PLAIN, EVERY)
    for how, module in kernels_of(family, QUANTISED, EVERY).items():
        theirs = [*plain[how].CONFIGS] if how in plain else []
        for index, row in enumerate(module.CONFIGS):
            if row in theirs:
                calls = {
                    "plain_us": partial(plain[how].gemm, config=theirs.index(row)),
                    "quantised_us": partial(module.gemm, config=index),
                }
                words = {"kernel": how, "configuration": " ".join(map(str, row.values()))}
                lines.append({"m": m, "n": n, "k": k, **words, **compared(calls)})
    return lines


def main(path: Path) -> None:
    """Measure all sizes, and write what is known after each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "products.yaml").write_text(SPEC)
        if render([str(folder / "products.yaml"), "--out", str(folder)]) != 0:
            raise SystemExit(1)
        sys.path.insert(0, str(folder))
        family = importlib.import_module("products")
        work = [
            (folder, contract, how, index, m)
            for contract in (PLAIN, QUANTISED)
            for how, module in kernels_of(family, contract, EVERY).items()
            for index in range(len(module.CONFIGS))
            for m in (352, 500)
        ]
        with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
            pool.starmap(compiled, work, chunksize=4)
        every: list[dict[str, Any]] = []
        for size in SIZES:
            every += rows(size)
            put_table(path, every)
            print(size, len(every), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
