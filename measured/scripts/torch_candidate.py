"""Own kernels, and those with torch's product as a candidate, beside torch: `torch_candidate.py FILE [CASE ...]`.

A CASE is one of `CASES`, by default all. Sizes are drawn from N and K of models to which nothing is fitted, and from
numbers of rows. Of each size FILE, a CSV table, has microseconds of what a family's function chooses, of that with
`backends: [triton, aten]`, and of torch's operator. A sample is a replay of a CUDA graph of several calls, whose
operands take turns so that they come from memory; the sides take turns in each round, and a time is the median. Results
are compared with torch's before. Kernels are compiled beforehand, in parallel.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rounds import in_turns, on_gpu
from torch import Tensor

from generator.commands.command_line import main as render
from generator.files.writing import write
from generator.plan.devices import slug

SPECS = {
    "bits16": "layout: [rcr, rrr, crr]\ndtype: [bf16, fp16]\nepilogue: [none, bias]\n",
    "bits8": "layout: rcr\ndtype: [fp8e4m3, {a: fp8e4m3, precision: fast}, "
    "{a: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}]\n",
}


@dataclass(frozen=True)
class Case:
    """A contract of one of `SPECS`, and how many sizes of it are measured."""

    family: str
    contract: str
    sizes: int


CASES = {
    "bf16_rcr": Case("bits16", "gemm_bf16_rcr_none", 48),
    "fp16_rcr": Case("bits16", "gemm_fp16_rcr_none", 16),
    "bf16_rrr": Case("bits16", "gemm_bf16_rrr_none", 40),
    # Gradients of weights: N and K of a layer are M and N, and the rows are K.
    "bf16_crr": Case("bits16", "gemm_bf16_crr_none", 40),
    "bf16_bias": Case("bits16", "gemm_bf16_rcr_bias", 16),
    "fp8_full": Case("bits8", "gemm_fp8e4m3_rcr_none", 20),
    "fp8_fast": Case("bits8", "gemm_fp8e4m3_fp32_bf16_fast_rcr_none", 20),
    "fp8_blocks": Case("bits8", "gemm_fp8e4m3_a1x128_b128x128_rcr_none", 24),
}
#: N and K of models, to which neither rates nor rules are fitted.
PAIRS = (
    *((15360, 3840), (11520, 3840), (17920, 5120), (32768, 5120), (5120, 32768), (19200, 5120), (5120, 8960)),
    *((23040, 3072), (3072, 23040), (20480, 7168), (7168, 20480), (22528, 8192), (8192, 22528), (13696, 4096)),
    *((4096, 13696), (16384, 6144), (6144, 16384), (9216, 3584), (1536, 3072), (2048, 5120), (14592, 6656)),
)
ROWS = (1, 3, 8, 16, 24, 40, 64, 88, 132, 190, 264, 264, 352, 500, 660, 1000, 1400, 1900, 2048, 3000, 4500, 8192, 12000)
ROUNDS, APART = 9, 300_000_000


def sizes(name: str) -> list[tuple[int, int, int]]:
    """The sizes of a case, the same in every run; those that torch's operator does not take are left out later."""
    drawn = random.Random(name)
    unique: dict[tuple[int, int, int], None] = {}
    while len(unique) < CASES[name].sizes:
        m, (n, k) = drawn.choice(ROWS), drawn.choice(PAIRS)
        if "_crr_" in CASES[name].contract:
            m, n, k = n, k, m
        if m * max(n, k) < 2**28:
            unique[m, n, k] = None
    return [*unique]


def operands(case: Case, m: int, n: int, k: int) -> dict[str, Tensor]:
    """The operands of one call; values are small, so that sums of fp8 stay in the range of bf16."""
    dtype = torch.float16 if "fp16" in case.contract else torch.bfloat16
    of_a, of_b, _ = case.contract.split("_")[-2]
    a, b = torch.randn(m, k, device="cuda", dtype=dtype), torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5
    a = a if of_a == "r" else a.t().contiguous().t()
    b = b.t() if of_b == "c" else b.t().contiguous()
    if case.family == "bits8":
        a, b = a.to(torch.float8_e4m3fn), (8 * b).to(torch.float8_e4m3fn)
    given = {"a": a, "b": b}
    if "bias" in case.contract:
        given["bias"] = torch.randn(n, device="cuda", dtype=dtype)
    if "a1x128" in case.contract:
        # Torch reads them with contiguous columns.
        given["a_scale"] = torch.rand(k // 128, m, device="cuda").t() + 0.5
        given["b_scale"] = torch.rand(n // 128, k // 128, device="cuda").t() + 0.5
    return given


def by_torch(function: Any, given: dict[str, Tensor]) -> Callable[[dict[str, Tensor]], Any] | None:
    """The call of torch's operator that the family would make; None if torch does not take the operands."""
    module = importlib.import_module(f"{function.__module__}._runtime.aten_product")
    known = function.choice.aten.contracts[function.name]
    run = module._RUNS[known.operator](known, function.table, {**given, "out": None})
    return run and (lambda x: run(x["a"], x["b"], None, {key: x[key] for key in x if key not in ("a", "b")}))


def captured(call: Callable[[dict[str, Tensor]], Any], given: list[dict[str, Tensor]]) -> torch.cuda.CUDAGraph:
    """A graph of a call for each of the operands."""
    for _ in range(2):
        call(given[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in given:
            call(each)
    return graph


def microseconds(graphs: dict[str, torch.cuda.CUDAGraph], count: int) -> dict[str, float]:
    """The median time of a call of each graph."""
    times = in_turns({name: partial(on_gpu, graph.replay, count) for name, graph in graphs.items()}, ROUNDS)
    return {name: round(1e6 * statistics.median(taken), 4) for name, taken in times.items()}


def measured(case: Case, own: Any, both: Any, size: tuple[int, int, int]) -> dict[str, Any] | None:
    """The row of a size."""
    m, n, k = size
    count = max(2, min(16, APART // (k * (m + n) * (1 if case.family == "bits8" else 2))))
    given = [operands(case, *size) for _ in range(count)]
    torchs = by_torch(both, given[0])
    if torchs is None:
        return None
    wanted, own_result = torchs(given[0]).float(), own(**given[0]).float()
    error = ((own_result - wanted).norm() / wanted.norm()).item()
    if not error < 2e-2:
        raise SystemExit(f"{case.contract} {size}: differs from torch's result by {error:.2%}")
    kernel, _ = both.which(**given[0])
    calls = {"own": lambda x: own(**x), "torch": torchs}
    if kernel == "aten":
        calls["with_aten"] = lambda x: both(**x)
    graphs = {name: captured(call, given) for name, call in calls.items()}
    times = microseconds(graphs, count)
    row = {"m": m, "n": n, "k": k, "own_us": times["own"], "with_aten_us": times.get("with_aten", times["own"])}
    return {**row, "torch_us": times["torch"], "runs": "aten" if kernel == "aten" else own.which(**given[0])[0]}


def prepared(folder: Path, contract: str, shape: tuple[int, int, int]) -> None:
    """Compile what a call will run, into Triton's cache; what fails is compiled at the call."""
    m, n, k = shape
    device = slug(torch.cuda.get_device_name())
    command = [sys.executable, "-m", "generator", "prepare", str(folder), "--device", device, "--aligned"]
    subprocess.run([*command, "--only", contract, "--shapes", f"{n}x{k},{m}"], capture_output=True, check=False)


def put_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows of the same columns as a CSV table."""
    text = io.StringIO()
    table = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write(path, text.getvalue())


def main(path: Path, names: list[str]) -> None:
    """Measure the cases, and write what is known after each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, more in (("own", ""), ("both", "backends: [triton, aten]\n")):
            (folder / kind).mkdir()
            for family, text in SPECS.items():
                spec = folder / kind / f"{kind}_{family}.yaml"
                spec.write_text(f"summary: Products.\n{text}select: fastest\ntargets: [sm90]\n{more}")
                if render([str(spec), "--out", str(folder / kind)]) != 0:
                    raise SystemExit(1)
            sys.path.insert(0, str(folder / kind))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for word in names:
                case = CASES[word]
                for size in sizes(word):
                    pool.submit(prepared, folder / "own" / f"own_{case.family}", case.contract, size)
        rows: list[dict[str, Any]] = []
        for word in names:
            case = CASES[word]
            own, both = (
                getattr(importlib.import_module(f"{kind}_{case.family}"), case.contract) for kind in ("own", "both")
            )
            for size in sizes(word):
                row = measured(case, own, both, size)
                if row is not None:
                    rows.append({"case": word, **row})
                    print(*rows[-1].values(), round(row["torch_us"] / row["own_us"], 3), flush=True)
                torch.cuda.empty_cache()
            put_table(path, rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*CASES])
