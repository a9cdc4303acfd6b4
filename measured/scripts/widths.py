"""Every configuration of the kernels of a contract beside torch's product: `python measured/scripts/widths.py FILE`.

FILE receives JSON. By default the kernels are those of `specs/widths.yaml`; further arguments are the folders to
measure in its place (`generated/widths generated/gemm16`), of which kernels of the same contract count. Of a folder
with products of groups (`generated/grouped`), these are measured beside `torch.nn.functional.grouped_mm`, and the
choice of the family's function as one of the sides. `--only GLOB` measures the kernels whose name matches alone,
`--case TEXT` the cases whose name contains it, such as `mixtral`, and after `--seconds` no further case begins.

A sample is a graph of several calls, whose operands take turns so that B comes from memory. The sides of a size are
measured one after another in each round; a ratio is torch's time over a configuration's, the median of those of the
rounds. Results are compared with torch's in fp32 before, and those of groups in float64. Without a GPU, in Triton's
interpreter, the sizes of groups are small, nothing is recorded, and times mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from rounds import in_turns, on_gpu, ratio

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
CONTRACT, OF_GROUPS = "gemm_bf16_rcr_none", "gmm_bf16_rcr_none"
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
#: Groups, rows of all of them, N and K of both products of an expert; and whether one group has all rows.
GROUPS: dict[str, tuple[int, int, int, int, bool]] = {
    "mixtral down 64 in one": (8, 64, 4096, 14336, True),
    "mixtral down 16": (8, 16, 4096, 14336, False),
    "mixtral down 64": (8, 64, 4096, 14336, False),
    "mixtral down 512": (8, 512, 4096, 14336, False),
    "mixtral up 64 in one": (8, 64, 28672, 4096, True),
    "mixtral up 16": (8, 16, 28672, 4096, False),
    "mixtral up 64": (8, 64, 28672, 4096, False),
    "mixtral up 512": (8, 512, 28672, 4096, False),
    "qwen3 down 64 in one": (128, 64, 2048, 768, True),
    "qwen3 down 64": (128, 64, 2048, 768, False),
    "qwen3 down 512": (128, 512, 2048, 768, False),
    "qwen3 up 64": (128, 64, 1536, 2048, False),
    "qwen3 up 512": (128, 512, 1536, 2048, False),
    "gpt-oss 64 in one": (128, 64, 2880, 2880, True),
}
if not GPU:
    GROUPS = {"small in one": (3, 20, 80, 304, True), "small": (4, 70, 80, 304, False)}
ROUNDS, CALLS = (15, 8) if GPU else (1, 1)
#: Bytes of operands that a sample reads at least before it reads the same ones again.
OUTGROWN = 256 << 20
#: The largest difference from the product in fp32, of its root mean square: results are rounded to bf16.
CLOSE = 2e-2

Operands = list[tuple[torch.Tensor, ...]]
Made = Callable[[], Operands]
Product = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Side:
    """What is measured: a kernel with a configuration, the choice of a family's function, or torch."""

    kernel: str
    config: dict[str, int] | None
    call: Product


def sides(folders: list[Path], contract: str, only: str) -> list[Side]:
    """torch, the function's choice where products are of groups, and each configuration of what matches `only`."""
    others = [Side("torch.matmul", None, torch.matmul)]
    if contract == OF_GROUPS:
        others = [Side("F.grouped_mm", None, grouped_mm)]
    for folder in folders:
        sys.path.insert(0, str(folder.resolve().parent))
        files = [file for file in sorted(folder.glob(f"{contract}__*.py")) if fnmatch(file.stem, only)]
        if contract == OF_GROUPS and files:
            family = importlib.import_module(folder.name)
            others.append(Side(f"{folder.name}.{contract}", None, getattr(family, contract)))
        for file in files:
            module = importlib.import_module(f"{folder.name}.{file.stem}")
            others += [Side(file.stem, row, _configured(module.gemm, row)) for row in module.CONFIGS]
    return others


def grouped_mm(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """torch's product of groups; on the CPU, a product for each."""
    if GPU:
        result: torch.Tensor = torch.nn.functional.grouped_mm(a, b, offs=offsets)
        return result
    return products(a, b, offsets)


def products(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The product of each group, one after the other."""
    starts = [0, *offsets.tolist()]
    return torch.cat([a[begin:end] @ matrix for begin, end, matrix in zip(starts, starts[1:], b, strict=False)])


def _configured(gemm: Callable[..., Any], row: dict[str, int]) -> Product:
    return lambda a, b, *offsets: gemm(a, b, *offsets, config=row)


def operands(m: int, n: int, k: int) -> Operands:
    """Enough pairs of A and B to outgrow the L2, and at most as many as there are calls in a sample."""
    torch.manual_seed(m)
    many = min(CALLS, -(-OUTGROWN // (2 * k * (m + n))))
    options = dict(device=DEVICE, dtype=torch.bfloat16)
    return [(torch.randn(m, k, **options), torch.randn(n, k, **options).T) for _ in range(many)]  # type: ignore[call-overload]


def operands_of_groups(groups: int, rows: int, n: int, k: int, one: bool) -> Operands:
    """A, all matrices and the ends of groups, as many as there are calls in a sample.

    The group that has all rows is another one in each; else each row is in a group by chance.
    """
    torch.manual_seed(rows)
    options = dict(device=DEVICE, dtype=torch.bfloat16)
    a = torch.randn(rows, k, **options)  # type: ignore[call-overload]
    b = torch.randn(groups, n, k, **options).mT  # type: ignore[call-overload]
    groups_of: Operands = []
    for index in range(CALLS):
        counts = torch.bincount(torch.randint(groups, (rows,)), minlength=groups)
        if one:
            counts = torch.where(torch.arange(groups) == index * 5 % groups, rows, 0)
        groups_of.append((a, b, counts.cumsum(0).int().to(DEVICE)))
    return groups_of


def sample_of(side: Side, given: Operands) -> Callable[[], object]:
    """A sample of a side, which has run before."""

    def run() -> None:
        for index in range(CALLS):
            side.call(*given[index % len(given)])

    if not GPU:
        return run
    recorded, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.graph(recorded, stream=stream):
        run()
    return recorded.replay


def seconds(sample: Callable[[], object]) -> float:
    """The time of a call in a sample."""
    if not GPU:
        begun = time.perf_counter()
        sample()
        return (time.perf_counter() - begun) / CALLS
    return on_gpu(sample, CALLS)


def measured(case: object, given: Operands, compared: list[Side]) -> list[dict[str, Any]]:
    """The rows of a size in FILE, the fastest first."""
    rows = list[dict[str, Any]]()
    samples = list[tuple[dict[str, Any], Callable[[], object]]]()
    exact = exactly(*given[0])
    scale = exact.square().mean().sqrt()
    compile_all(compared, given[0])
    for side in compared:
        row: dict[str, Any] = {"size": case, "kernel": side.kernel, "config": side.config}
        try:
            apart = float((side.call(*given[0]).to(exact.dtype) - exact).square().mean().sqrt() / scale)
            if not apart < CLOSE:
                raise ValueError(f"off by {apart:.2g} of the root mean square")
            samples.append((row, sample_of(side, given)))
        except Exception as error:
            # What cannot run, or is wrong, is in FILE with its reason, and the others go on.
            rows.append(row | {"error": f"{type(error).__name__}: {str(error)[:200]}"})
    # The clock rates rise in the first rounds.
    times = in_turns({place: partial(seconds, each) for place, (_, each) in enumerate(samples)}, ROUNDS, warm=2)
    for place, (row, _) in enumerate(samples):
        against = ratio(times[0], times[place])["median"]
        rows.append(row | {"seconds": statistics.median(times[place]), "ratio": against})
    return sorted(rows, key=lambda row: -row.get("ratio", 0.0))


def exactly(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """The product in fp32; of groups in float64, whose matrices with rows are converted alone."""
    if offsets is None:
        return a.float() @ b.float()
    starts = [0, *offsets.tolist()]
    parts = [
        a[begin:end].double() @ matrix.double()
        for begin, end, matrix in zip(starts, starts[1:], b, strict=False)
        if end > begin
    ]
    return torch.cat(parts)


def compile_all(compared: list[Side], given: Sequence[torch.Tensor]) -> None:
    """Call each side once, in as many threads as there are processors: Triton's compiler runs without Python's lock."""

    def tried(side: Side) -> None:
        # What fails is told when it is compared.
        with suppress(Exception):
            side.call(*given)

    if GPU:
        with ThreadPoolExecutor() as pool:
            list(pool.map(tried, compared))
        torch.cuda.synchronize()


def main(file: Path, folders: list[Path], only: str, part: str, seconds: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    started = time.monotonic()
    if not GPU:
        importlib.import_module("generator.verify.interpreter").install()
    cases: dict[str, tuple[str, Made]] = {
        "x".join(map(str, size)): (CONTRACT, partial(operands, *size)) for size in SIZES
    }
    cases |= {name: (OF_GROUPS, partial(operands_of_groups, *size)) for name, size in GROUPS.items()}
    compared = {contract: sides(folders, contract, only) for contract in (CONTRACT, OF_GROUPS)}
    name = torch.cuda.get_device_name() if GPU else "cpu"
    place, rows = {"device": name, "torch": torch.__version__, "triton": triton.__version__}, []
    for case, (contract, operands_of) in cases.items():
        if len(compared[contract]) == 1 or part not in case:
            continue
        if time.monotonic() - started > seconds:
            print(f"{case} and what follows it is not measured: {seconds:.0f} s are over")
            break
        measured_rows = measured(case, operands_of(), compared[contract])
        rows += measured_rows
        chosen = [row for row in measured_rows[6:] if row["config"] is None]
        for row in (*measured_rows[:6], *chosen):
            print(case, f"{row.get('ratio', 0.0):.3f}", row["kernel"], row["config"], flush=True)
        for row in measured_rows:
            if "error" in row:
                print(case, row["kernel"], row["config"], row["error"], flush=True)
        # A part is there if a later size fails.
        file.write_text(json.dumps({"place": place, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folders", type=Path, nargs="*", default=[Path("generated/widths")])
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--case", default="", metavar="TEXT")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    main(given.file, given.folders, given.only, given.case, given.seconds)
