"""Quantised results against plain ones, and a layer: `python measured/scripts/quantised.py FILE [PART ...]`.

PART is `products`, `layers` or both, without any all of them. FILE receives, as JSON, and is written after each size:

- of `products`, A bf16 times B^T bf16: the microseconds of every configuration of TILES by itself, in bf16 and
  quantised to each of KINDS; then of the fastest of each, in rounds in which they take turns. `ratio` is the time of
  the plain product by that of a quantised one, the median over rounds, with quartiles: the goal is at least 1 / 1.03.
  `error` is that of the values that elements and scales stand for, against float64, and `rounded` that of float64
  numbers that are quantised by the library's rule: the quotient must be near 1. `scales` is the largest relative
  difference of a scale from the one of float64 numbers.
- of `layers`, of `docs/examples/block_fp8.yaml`: Linear, SwiGLU, quantisation and Linear in block fp8 in two launches,
  in turns with the same by torch: `torch._scaled_mm` under the same scales, and what is between compiled by
  `torch.compile`, alone and together with the products; each with its error against float64. `products` has, for each
  of the two, the microseconds of every configuration of the kernels in HOWS by itself, the `fastest` of them, and the
  `chosen` one that the layer ran with its own; `by the fastest` is the layer with both fastest ones in the turns.

A side that fails is an error's text in FILE. Compiling takes most of the time of a first call: it is kept below a
minute by few configurations, in several processes.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from symmetric import alone, error_of, turns

from generator.commands.command_line import main as command
from generator.emit.loading import load_family
from generator.runtime import pack
from generator.runtime.pack import Stored

ROOT = Path(__file__).resolve().parents[2]
LAYER = ROOT / "docs" / "examples" / "block_fp8.yaml"
#: M, N and K of the products, and rows, width and hidden width of the layers.
PRODUCTS = tuple((m, n, k) for n, k in ((4096, 4096), (14336, 4096)) for m in (1024, 2048, 4096, 8192))
LAYERS = ((1024, 4096, 14336), (4096, 4096, 14336), (8192, 4096, 14336), (4096, 7168, 2048))
#: The layers of which every configuration is timed: compiled once, since strides of scales are multiples of 16.
TIMED = LAYERS[:3]
#: What results are quantised to: the name in FILE, the parameters of `quantize`, and how the library stores it.
KINDS: Mapping[str, tuple[dict[str, Any], Stored]] = {
    "fp8e4m3": ({"to": "fp8e4m3"}, Stored("fp8e4m3", "row", (1, 128))),
    "fp8e4m3 pow2": ({"to": "fp8e4m3", "scale": "pow2"}, Stored("fp8e4m3", "row", (1, 128))),
    "mxfp8e4m3": ({"to": "mxfp8e4m3"}, Stored("mxfp8e4m3", "row", (1, 32))),
    "mxfp4": ({"to": "mxfp4"}, Stored("mxfp4", "row", (1, 32))),
}
PLAIN = "plain"
TILES = [
    *({"m": 128, "n": 128, "k": 64, "warps": warps, "stages": stages} for warps, stages in ((4, 4), (8, 3), (8, 4))),
    # With a fourth stage a persistent kernel has no room for the tile that it stores.
    {"m": 128, "n": 256, "k": 64, "warps": 8, "stages": 3},
]
SCHEDULES = ("tiled", "persistent")
WORKERS = 12
#: The kernels of a layer that are timed: those for many rows, with aligned operands.
HOWS = ("tiled_descriptor", "persistent_descriptor", "tiled2n_descriptor")
UP = "gemm_fp8e4m3_a1x128_b128x128_rcr_swiglu_quantize_fp8e4m3"
DOWN = "gemm_fp8e4m3_a1x128_b128x128_rcr_none"


def rendered(folder: Path) -> dict[str, ModuleType]:
    """The family of LAYER, and one for PLAIN and each of KINDS and each of SCHEDULES, in `folder`."""
    specs = [LAYER]
    for word in (PLAIN, *KINDS):
        for schedule in SCHEDULES:
            keys: dict[str, Any] = {"summary": "Products.", "layout": "rcr", "dtype": "bf16", "schedule": schedule}
            keys |= {"load": "descriptor", "select": "fixed", "targets": ["sm90"], "tile": TILES}
            if word in KINDS:
                keys["epilogue"] = [[{"quantize": KINDS[word][0]}]]
            if word == "mxfp4":
                keys["store"] = "pointer"
            path = folder / f"{word.replace(' ', '_')}_{schedule}.yaml"
            # JSON is YAML.
            path.write_text(json.dumps(keys))
            specs.append(path)
    if command([*map(str, specs), "--out", str(folder)]):
        raise SystemExit("the families cannot be rendered")
    return {path.stem: load_family(folder / path.stem) for path in specs}


def kernel(family: ModuleType) -> Any:
    """The only kernel of a family."""
    (file,) = Path(str(family.__file__)).parent.glob("gemm_*.py")
    return __import__(f"{family.__name__}.{file.stem}", fromlist=["gemm"])


def compiled(work: tuple[str, str, int]) -> None:
    """Compile a configuration by a call of a size that is as divisible as PRODUCTS are."""
    folder, name, index = work
    a = torch.zeros(1024, 4096, dtype=torch.bfloat16, device="cuda")
    b = torch.zeros(4096, 4096, dtype=torch.bfloat16, device="cuda")
    try:
        kernel(load_family(Path(folder) / name)).gemm(a, b.T, config=index)
    except Exception as error:
        print(f"{name} {index}: {error}", file=sys.stderr)


def kernels_of(family: ModuleType, contract: str, hows: Sequence[str] = HOWS) -> dict[str, ModuleType]:
    """The kernels of a contract that `hows` names, by the part of their names behind it."""
    folder = Path(str(family.__file__)).parent
    names = sorted(path.stem for how in hows for path in folder.glob(f"{contract}__{how}*.py"))
    return {name.partition("__")[2]: __import__(f"{family.__name__}.{name}", fromlist=["gemm"]) for name in names}


def compiled_of_layer(work: tuple[str, str, str, int]) -> None:
    """As `compiled`, of a configuration of a layer's product."""
    folder, contract, how, index = work
    columns = 4096 if contract == UP else 2048
    a, b = (torch.zeros(n, 2048, device="cuda").to(torch.float8_e4m3fn) for n in (256, columns))
    scales = {"a_scale": torch.ones(256, 16, device="cuda"), "b_scale": torch.ones(16, columns // 128, device="cuda")}
    try:
        kernels_of(load_family(Path(folder)), contract)[how].gemm(a, b.T, config=index, **scales)
    except Exception as error:
        print(f"{contract} {how} {index}: {error}", file=sys.stderr)


def ahead_of_layers(family: ModuleType) -> None:
    """Compile what `layers` times in several processes, into Triton's cache on disk."""
    folder = str(Path(str(family.__file__)).parent)
    each = [(contract, how, module) for contract in (UP, DOWN) for how, module in kernels_of(family, contract).items()]
    work = [(folder, contract, how, index) for contract, how, module in each for index in range(len(module.CONFIGS))]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(compiled_of_layer, work, chunksize=1)


def every_configuration(
    family: ModuleType, contract: str, given: Mapping[str, torch.Tensor]
) -> tuple[dict[str, Any], Callable[[], Any] | None]:
    """The microseconds of the configurations of a layer's product, and a call of the fastest."""
    every: dict[str, Any] = {}
    times: dict[str, float] = {}
    best: Callable[[], Any] | None = None
    for how, module in kernels_of(family, contract).items():
        for index, row in enumerate(module.CONFIGS):
            name = f"{how.replace('_auto_grouped', '')} {' '.join(map(str, row.values()))}"
            try:
                call = partial(module.gemm, config=index, **given)
                call()
                times[name] = alone(call)
                every[name] = round(1e6 * times[name], 3)
                if times[name] == min(times.values()):
                    best = call
            except Exception as error:
                every[name] = f"{type(error).__name__}: {error}"[:300]
    function = getattr(family, contract)
    how, row = function.which(**given)
    try:
        every["chosen"] = [how.partition("__")[2], row, round(1e6 * alone(partial(function, **given)), 3)]
    except Exception as error:
        every["chosen"] = f"{type(error).__name__}: {error}"[:300]
    if times:
        name = min(times, key=lambda each: times[each])
        every["fastest"] = [name, every[name]]
    return every, best


def ahead(folder: Path, families: Mapping[str, ModuleType]) -> None:
    """Compile all configurations of products in several processes, into Triton's cache on disk."""
    work = [(str(folder), name, index) for name in families if name != LAYER.stem for index in range(len(TILES))]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(compiled, work, chunksize=1)


def values(out: torch.Tensor, scale: torch.Tensor, stored: Stored) -> torch.Tensor:
    """What elements and scales stand for, in float64."""
    elements = pack._values(out.mT, stored.element).mT.double()
    return elements * scale.float().double().repeat_interleave(stored.block[1], -1)[:, : elements.shape[1]]


def checked(results: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, word: str) -> dict[str, Any]:
    """How far a quantised result is from float64, beside float64 numbers quantised by the library's rule."""
    stored = KINDS[word][1]
    given = pack.quantize_rows(exact.float(), stored)
    scale, usual = results[1].float(), given["a_scale"].float()
    rule = error_of(values(given["a"], given["a_scale"], stored), exact)
    errors = {"error": error_of(values(*results, stored), exact), "rounded": rule}
    if word != "fp8e4m3 pow2":
        errors["scales"] = float(((scale - usual) / usual).abs().max())
    errors = {key: float(f"{x:.4g}") for key, x in errors.items()}
    wrong = "pow2" not in word and errors["error"] > 1.05 * rule
    return {**errors, **({"fault": "the error is more than that of the rule"} if wrong else {})}


def products(families: Mapping[str, ModuleType], m: int, n: int, k: int) -> dict[str, Any]:
    """The part of FILE for products of a size."""
    torch.manual_seed(m + n + k)
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16) / k**0.5
    exact = a.double() @ b.double().T
    by_part: dict[str, Any] = {}
    sides: dict[str, Callable[[], object]] = {}
    for word in (PLAIN, *KINDS):
        times: dict[tuple[str, int], float] = {}
        every: dict[str, Any] = {}
        for schedule in SCHEDULES:
            module = kernel(families[f"{word.replace(' ', '_')}_{schedule}"])
            first = module.gemm(a, b.T, config=0)
            kept = {"out": first} if word == PLAIN else {"out": first[0], "out_scale": first[1]}
            for index, row in enumerate(module.CONFIGS):
                name = f"{schedule} {' '.join(map(str, row.values()))}"
                try:
                    call = partial(module.gemm, a, b.T, config=index, **kept)
                    every[name] = {} if word == PLAIN else checked(call(), exact, word)
                    seconds = times[schedule, index] = alone(call)
                    every[name]["us"] = round(1e6 * seconds, 3)
                    if seconds == min(times.values()):
                        sides[word] = call
                except Exception as error:
                    every[name] = {"failure": f"{type(error).__name__}: {error}"[:500]}
        by_part[word] = every
    by_part["in turns"] = turns(sides)
    return by_part


def layers(families: Mapping[str, ModuleType], m: int, width: int, hidden: int) -> dict[str, Any]:
    """The part of FILE for a gated layer."""
    torch.manual_seed(m + width + hidden)
    family = families[LAYER.stem]
    library = __import__(f"{family.__name__}._pack", fromlist=["quantize"])
    dense = [torch.randn(*shape, device="cuda") / shape[0] ** 0.5 for shape in ((width, 2 * hidden), (hidden, width))]
    up, down = (library.quantize(w, name) for w, name in zip(dense, (UP, DOWN), strict=True))
    stored = Stored("fp8e4m3", "row", (1, 128))
    rows = pack.quantize_rows(torch.randn(m, width, device="cuda"), stored)
    x, x_scale = rows["a"], rows["a_scale"]
    # torch takes scales of B with the blocks along K next to each other, and those of A with the rows.
    scales = [w["b_scale"].mT.contiguous().mT for w in (up, down)]
    rows_scale = x_scale.mT.contiguous().mT

    def own() -> torch.Tensor:
        h, h_scale = getattr(family, UP)(x, a_scale=x_scale, **up)
        result: torch.Tensor = getattr(family, DOWN)(h, a_scale=h_scale, **down)
        return result

    def scaled(a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)

    def between(both: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, other = both.float().chunk(2, -1)
        blocks = (torch.nn.functional.silu(gate) * other).unflatten(-1, (-1, 128))
        scale = (blocks.abs().amax(-1) / 448).clamp(min=2.0**-126)
        return (blocks / scale[..., None]).flatten(-2).to(torch.float8_e4m3fn), scale.mT.contiguous().mT

    def all_of_torch() -> torch.Tensor:
        h, h_scale = between(scaled(x, rows_scale, up["b"], scales[0]))
        return scaled(h, h_scale, down["b"], scales[1])

    torch._dynamo.reset()
    quantises, whole = torch.compile(between, dynamic=False), torch.compile(all_of_torch, dynamic=False)

    def in_three() -> torch.Tensor:
        h, h_scale = quantises(scaled(x, rows_scale, up["b"], scales[0]))
        return scaled(h, h_scale, down["b"], scales[1])

    a = values(x, x_scale, stored)
    w = [library.dequantize(name, **each).double() for name, each in ((UP, up), (DOWN, down))]
    gate, other = (a @ w[0]).chunk(2, -1)
    exact = (torch.nn.functional.silu(gate) * other) @ w[1]
    sides: dict[str, Callable[[], torch.Tensor]] = {
        "torch: compiled quantisation": in_three,
        "torch: compiled": whole,
        "two launches": own,
    }
    h, h_scale = getattr(family, UP)(x, a_scale=x_scale, **up)
    given = {UP: {"a": x, "a_scale": x_scale, **up}, DOWN: {"a": h, "a_scale": h_scale, **down}}
    times: dict[str, Any] = {}
    fastest: dict[str, Callable[[], Any]] = {}
    for contract, operands in given.items() if (m, width, hidden) in TIMED else ():
        times[contract], best = every_configuration(family, contract, operands)
        if best is not None:
            fastest[contract] = best
    if len(fastest) == len(given):
        # The second one reads what a first run wrote, which is the same in every run.
        sides["by the fastest"] = lambda: [fastest[contract]() for contract in given][-1]
    errors: dict[str, Any] = {}
    for name, call in sides.items():
        try:
            errors[name] = float(f"{error_of(call(), exact):.4g}")
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"[:500]
    in_turns = turns({name: call for name, call in sides.items() if isinstance(errors[name], float)})
    return {"errors": errors, "products": times, "in turns": in_turns}


def main() -> None:
    """Write FILE."""
    file, *parts = sys.argv[1:]
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        families, begun = rendered(folder), time.monotonic()
        work: list[tuple[str, Callable[[], dict[str, Any]]]] = []
        if not parts or "products" in parts:
            ahead(folder, families)
            print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
            work += [(f"product {m}x{n}x{k}", partial(products, families, m, n, k)) for m, n, k in PRODUCTS]
        if not parts or "layers" in parts:
            ahead_of_layers(families[LAYER.stem])
            print(f"layers compiled in {time.monotonic() - begun:.0f} s", flush=True)
            work += [(f"layer {m}x{w}x{h}", partial(layers, families, m, w, h)) for m, w, h in LAYERS]
        for word, part in work:
            try:
                results[word] = part()
            except Exception as error:
                results[word] = f"{type(error).__name__}: {error}"[:2000]
            Path(file).write_text(json.dumps(results, indent=1) + "\n")
            shown = results[word]
            if isinstance(shown, dict):
                shown = {key: x for key, x in shown.items() if key not in (PLAIN, *KINDS)}
                for contract, times in shown.pop("products", {}).items():
                    shown[contract] = {key: times.get(key) for key in ("chosen", "fastest")}
            print(word, json.dumps(shown), f"{time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
