"""Symmetric products against torch: `python measured/scripts/symmetric.py FILE [TYPE ...]`, of the types bf16 and fp16.

FILE receives, as JSON, for each type and size of A A^T: the seconds of every configuration of the kernels of SCHEDULES
by itself; those of the fastest ones, and of the function of `specs/symmetric.yaml`, in rounds in which all of them and
`torch.matmul` take turns; and the errors against float64, and whether C equals its transpose bit for bit, of every
configuration. Then a Newton-Schulz step of Muon, three calls, against the same step by `torch.compile`
and by eager torch. A ratio is torch's time by a side's, the median over rounds, with the quartiles. Each sample is the
replay of a CUDA graph of several calls. The step is of `docs/examples/muon.yaml`. A side that fails is an error's text
in FILE, which is written after each part.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from rounds import in_turns, on_gpu, ratio

from generator.commands.command_line import main as command
from generator.emit.loading import load_family
from generator.epilogue.chain import Epilogue
from generator.language.model import Dtype, Layout, Tile, Variant
from generator.plan import legality

ROOT = Path(__file__).resolve().parents[2]
FAMILY, MUON = ROOT / "specs" / "symmetric.yaml", ROOT / "docs" / "examples" / "muon.yaml"
NUMBERS = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = (1024, 2048, 4096, 8192)
#: M and N of X in a step of Muon.
STEPS = ((1024, 4096), (2048, 2048), (4096, 4096), (4096, 11008), (8192, 8192))
#: Rounds in which sides take turns, and samples of each configuration by itself.
ROUNDS, SAMPLES = 40, 7
#: How many of the configurations that were the fastest by themselves take turns with torch.
FINALISTS = 6
#: The least seconds of a sample, about.
LONG = 2e-3
#: A multiple of the error of torch's product that is no fault.
FACTOR = 1.25
WORKERS = 12

_SQUARE = [
    *({"m": 128, "n": 128, "k": 64, "warps": 4, "stages": stages} for stages in (3, 4, 6)),
    *({"m": 128, "n": 128, "k": 64, "warps": 8, "stages": stages} for stages in (3, 4)),
    {"m": 128, "n": 128, "k": 128, "warps": 8, "stages": 3},
    *({"m": 64, "n": 64, "k": 64, "warps": 4, "stages": stages} for stages in (4, 6)),
    *({"m": 64, "n": 64, "k": 128, "warps": 4, "stages": stages} for stages in (3, 5)),
]
_WIDE = [
    *({"m": 128, "n": 256, "k": 64, "warps": 8, "stages": stages} for stages in (3, 4)),
    *({"m": 64, "n": 256, "k": 64, "warps": 4, "stages": stages} for stages in (3, 4)),
    *({"m": 64, "n": 128, "k": 64, "warps": 4, "stages": stages} for stages in (3, 4, 6, 8)),
    *({"m": 64, "n": 128, "k": 128, "warps": 4, "stages": stages} for stages in (3, 4)),
]
_BANDS = [
    {"m": m, "n": n, "k": 64, "warps": warps, "stages": 3, "group": group}
    for m, n, warps in ((128, 128, 4), (128, 256, 8))
    for group in (2, 4, 16)
]
_DIVIDED = [
    {**tile, "split": split}
    for tile in (
        {"m": 128, "n": 128, "k": 64, "warps": 4, "stages": 4},
        {"m": 64, "n": 128, "k": 64, "warps": 4, "stages": 4},
        {"m": 64, "n": 64, "k": 128, "warps": 4, "stages": 3},
        {"m": 128, "n": 256, "k": 64, "warps": 8, "stages": 3},
    )
    for split in (2, 3, 4)
]
#: Name of a family -> its words and its configurations.
SCHEDULES: Mapping[str, tuple[Mapping[str, str], list[dict[str, int]]]] = {
    "tiled_ahead": ({"schedule": "tiled", "load": "descriptor"}, [*_SQUARE, *_WIDE, *_BANDS]),
    "persistent_ahead": ({"schedule": "persistent", "load": "descriptor"}, [*_SQUARE, *_WIDE, *_BANDS]),
    "tiled_pointer": ({"schedule": "tiled", "load": "pointer"}, [*_SQUARE[:2], *_SQUARE[6:], *_WIDE[:1], *_WIDE[4:6]]),
    "split_ahead": ({"schedule": "split_k", "load": "descriptor"}, _DIVIDED),
}


def held(words: Mapping[str, str], tiles: list[dict[str, int]]) -> list[dict[str, int]]:
    """Those of the configurations that fit into an H100."""
    v = Variant(Layout.of("rcr"), Dtype.of("bf16"), "none", Epilogue(), "auto", "grouped", **words, store="pointer")
    v = replace(v, result="symmetric")
    return [tile for tile in tiles if legality.why_no_row_on(v, Tile(**tile), "sm90") is None]


def rendered(folder: Path, types: list[str]) -> dict[str, ModuleType]:
    """The families of FAMILY and MUON, and one for each of SCHEDULES, in `folder`."""
    specs = [FAMILY, MUON]
    for name, (words, tiles) in SCHEDULES.items():
        keys: dict[str, Any] = {
            "summary": "Symmetric products.",
            "layout": "rcr",
            "dtype": types,
            "result": "symmetric",
            **words,
        }
        keys |= {"store": "pointer", "select": "fixed", "targets": ["sm90"], "tile": held(words, tiles)}
        path = folder / f"{name}.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(keys))
        specs.append(path)
    if command([*map(str, specs), "--out", str(folder)]):
        raise SystemExit("the families cannot be rendered")
    return {path.stem: load_family(folder / path.stem) for path in specs}


def kernel(family: ModuleType, name: str, dtype: str) -> ModuleType:
    """The kernel of a family of SCHEDULES."""
    schedule, load = (SCHEDULES[name][0][axis].replace("_", "") for axis in ("schedule", "load"))
    tail = "" if load == "pointer" else "_storepointer"
    name_of = f"gemm_{dtype}_rcr_none_resultsymmetric__{schedule}_{load}_auto_grouped{tail}"
    folder = Path(str(family.__file__)).parent
    names = [path.stem for path in folder.glob("gemm_*.py")]
    close = [x for x in names if x.startswith(name_of.removesuffix("_storepointer"))]
    return __import__(f"{family.__name__}.{close[0]}", fromlist=["gemm"])


def compiled(work: tuple[str, str, str, list[int]]) -> None:
    """Compile configurations by calls of a size that is as divisible as SIZES are; another process has none of them."""
    folder, name, dtype, indices = work
    module = kernel(load_family(Path(folder) / name), name, dtype)
    a = torch.zeros(SIZES[0], SIZES[0], dtype=NUMBERS[dtype], device="cuda")
    for index in indices:
        try:
            module.gemm(a, a.T, config=index)
        except Exception as error:
            print(f"{name} {index}: {error}", file=sys.stderr)


def ahead(folder: Path, families: Mapping[str, ModuleType], types: list[str]) -> None:
    """Compile all configurations in several processes, into Triton's cache on disk."""
    work: list[tuple[str, str, str, list[int]]] = []
    for name in SCHEDULES:
        for dtype in types:
            rows = range(len(kernel(families[name], name, dtype).CONFIGS))
            work += [(str(folder), name, dtype, list(rows[first::4])) for first in range(4)]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(compiled, work, chunksize=1)


def graph_of(call: Callable[[], object], count: int) -> torch.cuda.CUDAGraph:
    """A graph of so many calls."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph


class Timed:
    """A call that is timed by replays of a graph."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.count = 1
        self.graph = graph_of(call, 1)
        self.sample()
        self.count = max(1, min(200, math.ceil(LONG / self.sample())))
        if self.count > 1:
            self.graph = graph_of(call, self.count)
        self.sample()

    def sample(self) -> float:
        """Seconds of a call."""
        return on_gpu(self.graph.replay, self.count)


def alone(call: Callable[[], object]) -> float:
    """The median of some samples of a call."""
    timed = Timed(call)
    return statistics.median(timed.sample() for _ in range(SAMPLES))


def turns(calls: Mapping[str, Callable[[], object]]) -> dict[str, Any]:
    """Microseconds of each call, and of all but the first the ratio of the first one's to theirs."""
    sides: dict[str, Timed] = {}
    record: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            sides[name] = Timed(call)
        except Exception as error:
            record[name] = f"{type(error).__name__}: {error}"[:500]
    times = in_turns({name: side.sample for name, side in sides.items()}, ROUNDS, warm=5)
    first = next(iter(times))
    for name, each in times.items():
        record[name] = {"us": round(1e6 * statistics.median(each), 3)}
        if name != first:
            compared = ratio(times[first], each)
            record[name] |= {"ratio": compared["median"], "quartiles": compared["quartiles"]}
    return record


def error_of(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The root mean square error relative to the root mean square."""
    return float((got.double() - exact).norm() / exact.norm())


def checked(call: Callable[[], torch.Tensor], exact: torch.Tensor, usual: float) -> dict[str, Any]:
    """The error of a result, and what is wrong with it."""
    got = call()
    error = error_of(got, exact)
    faults = ["C is not its transpose"] * (not torch.equal(got.view(torch.int16), got.view(torch.int16).mT))
    faults += [f"the error is {error:.3g}, and torch's {usual:.3g}"] * (not error <= FACTOR * usual)
    return {"error": float(f"{error:.4g}"), **({"fault": "; ".join(faults)} if faults else {})}


def products(families: Mapping[str, ModuleType], dtype: str, size: int) -> dict[str, Any]:
    """The part of FILE for A A^T of a size."""
    torch.manual_seed(size)
    a = torch.randn(size, size, device="cuda", dtype=NUMBERS[dtype])
    exact = a.double() @ a.double().T
    usual = error_of(a @ a.T, exact)
    out = torch.empty(size, size, device="cuda", dtype=NUMBERS[dtype])
    function = getattr(families["symmetric"], f"gemm_{dtype}_rcr_none_resultsymmetric")
    chosen, config = function.which(a, a.T)
    record: dict[str, Any] = {"torch error": float(f"{usual:.4g}"), "chosen": [chosen.partition("__")[2], config]}
    times: dict[str, float] = {}
    calls: dict[str, Callable[[], torch.Tensor]] = {}
    every: dict[str, Any] = {}
    for name in SCHEDULES:
        module: Any = kernel(families[name], name, dtype)
        for index, row in enumerate(module.CONFIGS):
            word = f"{name} {' '.join(map(str, row.values()))}"

            def call(gemm: Any = module.gemm, index: int = index) -> torch.Tensor:
                result: torch.Tensor = gemm(a, a.T, out=out, config=index)
                return result

            try:
                out.fill_(math.nan)
                every[word] = checked(call, exact, usual)
                times[word], calls[word] = alone(call), call
                every[word] |= {"us": round(1e6 * times[word], 3), "config": row}
            except Exception as error:
                every[word] = {"failure": f"{type(error).__name__}: {error}"[:500]}
    record["configurations"] = every
    best = sorted(times, key=lambda word: times[word])[:FINALISTS]
    own = torch.empty_like(out)
    sides: dict[str, Callable[[], object]] = {
        "torch.matmul": lambda: torch.matmul(a, a.T, out=own),
        "function": lambda: function(a, a.T, out=out),
        **{word: calls[word] for word in best},
    }
    out.fill_(math.nan)
    record["function"] = checked(lambda: function(a, a.T, out=out), exact, usual)
    record["in turns"] = turns(sides)
    return record


#: The coefficients of Muon's quintic step.
FIRST, SECOND, THIRD = 3.4445, -4.7750, 2.0315


def step_of_torch(x: torch.Tensor) -> torch.Tensor:
    """A Newton-Schulz step as Muon's reference has it."""
    a = x @ x.T
    b = SECOND * a + THIRD * a @ a
    return FIRST * x + b @ x


def step_of(family: ModuleType, dtype: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same step in three calls."""
    gram = getattr(family, f"gemm_{dtype}_rcr_none_resultsymmetric")
    polynomial = getattr(family, f"gemm_{dtype}_rcr_blend_resultsymmetric")
    applied = getattr(family, f"gemm_{dtype}_rrr_blend")

    def step(x: torch.Tensor) -> torch.Tensor:
        a = gram(x, x.T)
        b = polynomial(a, a.T, operand=a, scale=THIRD, weight=SECOND)
        result: torch.Tensor = applied(b, x, operand=x, scale=1.0, weight=FIRST)
        return result

    return step


def muon(families: Mapping[str, ModuleType], dtype: str, m: int, n: int) -> dict[str, Any]:
    """The part of FILE for a step of Muon."""
    torch.manual_seed(m + n)
    x = torch.randn(m, n, device="cuda", dtype=torch.float32)
    x = (x / x.norm()).to(NUMBERS[dtype])
    own, inductor = step_of(families["muon"], dtype), torch.compile(step_of_torch)
    exact = step_of_torch(x.double())
    errors = {"torch": error_of(step_of_torch(x), exact), "three calls": error_of(own(x), exact)}
    torch._dynamo.reset()
    sides: dict[str, Callable[[], object]] = {
        "torch.compile": lambda: inductor(x),
        "eager": lambda: step_of_torch(x),
        "three calls": lambda: own(x),
    }
    return {"errors": {name: float(f"{x:.4g}") for name, x in errors.items()}, "in turns": turns(sides)}


def main() -> None:
    """Write FILE."""
    file, *types = sys.argv[1:]
    types = types or list(NUMBERS)
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        families = rendered(folder, types)
        begun = time.monotonic()
        ahead(folder, families, types)
        print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
        parts: list[tuple[str, Callable[[], dict[str, Any]]]] = []
        for dtype in types:
            parts += [(f"{dtype} {size}", partial(products, families, dtype, size)) for size in SIZES]
            parts += [(f"{dtype} muon {m}x{n}", partial(muon, families, dtype, m, n)) for m, n in STEPS]
        for word, part in parts:
            try:
                results[word] = part()
            except Exception as error:
                results[word] = f"{type(error).__name__}: {error}"[:2000]
            Path(file).write_text(json.dumps(results, indent=1) + "\n")
            print(word, json.dumps(_shown(results[word])), f"{time.monotonic() - begun:.0f} s", flush=True)


def _shown(part: Any) -> Any:
    """What is printed of a part."""
    if not isinstance(part, dict):
        return part
    faults = {word: x for word, x in part.get("configurations", {}).items() if "fault" in x or "failure" in x}
    return {
        **{key: part[key] for key in part if key not in ("configurations",)},
        **({"wrong": faults} if faults else {}),
    }


if __name__ == "__main__":
    main()
