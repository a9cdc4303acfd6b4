"""Packages of cubins on the GPU at hand: right results, and the host time of a launch.

PYTHONPATH=. python measured/scripts/cubin.py [generated [RESULTS.json]] [--only KIND ...] [--seconds 100]

For each kind of launch a package is made for this GPU, its C file is compiled by the C compiler at hand (`CC`, else cc,
gcc or clang), and its example compares products with float64. Then results of the package, called by ctypes in this
process, are compared bit for bit with those of the family's function. Packages are made side by side, one for each two
processors; the GPU runs one kind at a time. RESULTS.json is written after each kind, and a kind that is not made after
so many seconds is skipped, and said so. Exit status 1 if anything is wrong or fails.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as TooLong
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from generator.plan.devices import DEVICES, slug
from generator.verify.cubin_package import dtype_of

ROOT = Path(__file__).resolve().parents[2]
#: Microseconds of the host that a launch may take.
MOST = 6.0
#: Seconds of one command.
LONGEST = 90

_TILE = "tile: [{m: 128, n: 128, k: 64, warps: 8, stages: 3}]\ntargets: [sm90]\n"
#: Kinds of which no shipped family has a contract of their own.
SPECS = {
    "descriptor": f"layout: rcr\ndtype: bf16\nepilogue: bias\nload: descriptor\n{_TILE}",
    "persistent": f"layout: rrr\ndtype: fp16\nepilogue: scale+relu\nschedule: persistent\nload: descriptor\n{_TILE}",
    "column": f"layout: ccc\ndtype: fp16\nload: [descriptor, pointer]\n{_TILE}",
    "atomic": "layout: rcr\ndtype: {a: fp16, b: fp16, acc: fp32, out: fp32}\nschedule: split_k_atomic\nload: pointer\n"
    + _TILE.replace("}]", ", split: 4}]"),
}


@dataclass(frozen=True)
class Kind:
    """A contract of a family, for sizes."""

    name: str
    family: str
    contract: str
    shapes: tuple[str, ...]
    batch: int = 1
    #: Whether results repeat bit for bit.
    repeats: bool = True


KINDS = (
    Kind("plain", "gemm16", "gemm_fp16_rcr_none", ("4096x4096,1,64,1000", "1000x4096,64")),
    Kind("chain", "fp16_rcr", "gemm_fp16_rcr_bias_gelutanh", ("4096x4096,64", "1000x520,7")),
    Kind("batch", "batched", "bmm_bf16_rcr_bias_relu", ("1024x512,1,300",), 4),
    Kind("split-K", "split_k", "gemm_fp16_rcr_bias_silu", ("4096x4096,64", "1000x4096,33")),
    Kind("stream-K", "stream_k", "gemm_fp16_rcr_none", ("4096x4096,1000",)),
    Kind("fp32", "fp32_rcr", "gemm_fp32_rcr_none", ("1024x1024,64",)),
    Kind("tf32", "tf32_rcr", "gemm_tf32_rcr_none", ("1024x1024,1000",)),
    Kind("fp8", "fp8e4m3_rcr", "gemm_fp8e4m3_rcr_none", ("4096x4096,16",)),
    Kind("int4", "int4_rcr", "gemm_bf16xint4_fp32_bf16_b128x1_rcr_none", ("4096x4096,16",)),
    Kind("groups", "grouped", "gmm_bf16_rcr_none", ("1024x512,128",), 4),
    Kind("descriptor", "descriptor", "*", ("4096x4096,1000",)),
    Kind("persistent", "persistent", "*", ("4096x4096,4096",)),
    Kind("column", "column", "*", ("1024x512,128",)),
    Kind("atomic", "atomic", "*", ("1024x4096,64",), repeats=False),
)


def compiler(variable: str, *names: str) -> str:
    """A compiler of this machine; the script ends where there is none."""
    program = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        sys.exit(f"no compiler: set {variable}, or install one of {', '.join(names)}")
    return program


def run(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A command with what it prints; its failure is the caller's."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"it took more than {LONGEST} s")


class Failed(Exception):
    """A command failed; the message is what it printed."""


def must(*command: object) -> str:
    """What a command prints; raises Failed if it fails."""
    done = run(*command)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def made(kind: Kind, generated: Path, folder: Path, device: str) -> Path:
    """The package of a kind, with its library and programs."""
    families = generated
    if kind.family in SPECS:
        families = folder / "families"
        families.mkdir(exist_ok=True)
        (folder / f"{kind.family}.yaml").write_text(f"summary: For C.\n{SPECS[kind.family]}")
        must(sys.executable, "-m", "generator", folder / f"{kind.family}.yaml", "--out", families)
    out = folder / f"packed_{re.sub('[^a-z0-9]', '_', kind.name.lower())}"
    options = ("--only", kind.contract, "--device", device, "--batch", kind.batch, "--name", "packed", "--out", out)
    call = ("package", families / kind.family, "--format", "cubin", "--shapes", *kind.shapes, *options)
    print(must(sys.executable, "-m", "generator", *call).strip().replace(str(folder), ""))
    c = compiler("CC", "cc", "gcc", "clang")
    must(c, "-O2", "-std=c11", "-fPIC", "-c", out / "packed.c", "-o", out / "packed.o")
    must(c, "-shared", out / "packed.o", "-ldl", "-o", out / "libpacked.so")
    if (out / "example.c").is_file():
        libraries = ("-ldl", "-lm", "-o", out / "example")
        must(c, "-O2", "-std=c11", f"-I{out}", out / "example.c", out / "packed.o", *libraries)
    return out


def example(out: Path) -> tuple[bool, list[float]]:
    """Whether the example of a package finds its results right, and the host times of its launches."""
    if not (out / "example").is_file():
        return True, []
    done = run(out / "example", cwd=out)
    print("".join(f"    {line}\n" for line in (done.stdout + done.stderr).splitlines()), end="")
    return done.returncode == 0, [float(time) for time in re.findall(r"launch ([\d.]+) us", done.stdout)]


def operand(x: Any, table: Any, numbers: dict[str, int]) -> Any:
    """A random operand of a call, contiguous as its layout says."""
    if not x.shape:
        return 0.5
    shape = [*x.sized(numbers)]
    dtype = dtype_of(x, table)
    if x.name == "offsets":
        step = numbers["T"] // numbers["G"]
        return torch.arange(step, step * numbers["G"] + 1, step, dtype=dtype, device="cuda")
    turned = len(shape) > 1 and x.unit == len(shape) - 2
    if turned:
        shape[-2:] = shape[:-3:-1]
    if dtype in (torch.uint8, torch.int8):
        tensor = torch.randint(0, 100, shape, dtype=dtype, device="cuda")
    else:
        tensor = (torch.randn(shape, device="cuda") / 4).abs_().add_(0.01).to(dtype)
        tensor = tensor if x.name.endswith("_scale") else (torch.randn(shape, device="cuda") / 4).to(dtype)
    return tensor.mT if turned else tensor


def bits(x: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor as bytes, in the order of their indices."""
    return x.contiguous().view(torch.uint8)


def same_as_python(kind: Kind, out: Path, generated: Path, folder: Path) -> bool:
    """Whether results of the package are those of the family's function, bit for bit."""
    sys.path.insert(0, str(folder / "families" if kind.family in SPECS else generated))
    family = importlib.import_module(kind.family)
    sys.path.pop(0)
    contract = kind.contract if kind.contract in family._KERNELS else next(iter(family._KERNELS))
    function = getattr(family, contract)
    spec = importlib.util.spec_from_file_location(f"packed_{len(sys.modules)}", out / "packed.py")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    torch.zeros(1, device="cuda")
    kernels = package.Kernels(str(out / "libpacked.so"))
    right = True
    for text in kind.shapes:
        (n, k), *sizes = [part.split("x") for part in text.split(",")]
        for (m,) in sizes:
            structure = {name for name, _ in getattr(package, f"Call_{contract}")._fields_}
            right &= one_as_python(kind, kernels, structure, function, contract, (int(m), int(n), int(k)))
    kernels.close()
    return right


def one_as_python(
    kind: Kind, kernels: Any, structure: set[str], function: Any, contract: str, sizes: tuple[int, int, int]
) -> bool:
    """The same for one call, which has the fields of `structure`."""
    table, (m, n, k) = function.table, sizes
    total = m if contract.startswith("gmm_") else k
    numbers = {"M": m, "N": n, "K": k, "B": kind.batch, "G": kind.batch, **dict.fromkeys("TRS", total)}
    given = {x.name: operand(x, table, numbers) for x in table.operands if x.absent is None}
    results = [operand(x, table, numbers) for x in table.results]
    fields: dict[str, Any] = {"m": m, "n": n, "k": k}
    fields |= {name: kind.batch for name in ("batch", "groups") if name in structure}
    needed = getattr(kernels, f"{contract}_workspace")(**fields)
    for name, value in {**given, **{x.name: value for x, value in zip(table.results, results)}}.items():
        if not isinstance(value, torch.Tensor):
            fields[name] = value
            continue
        fields[name] = value.data_ptr()
        for end, dimension in (("batch", 0), ("row", -2), ("column", -1)):
            if f"{name}_{end}" in structure:
                fields[f"{name}_{end}"] = value.stride(dimension)
    workspace = torch.empty(max(needed, 1), dtype=torch.uint8, device="cuda")
    if "workspace" in structure:
        fields |= {"workspace": workspace.data_ptr(), "workspace_size": needed}
    getattr(kernels, contract)(torch.cuda.current_stream().cuda_stream, **fields)
    wanted = function(**given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    torch.cuda.synchronize()
    if kind.repeats:
        equal = all(torch.equal(bits(x), bits(y)) for x, y in zip(results, wanted, strict=True))
    else:
        equal = all(torch.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(results, wanted, strict=True))
    print(f"    {m}x{n}x{k}: {'the same' if equal else 'OTHER'} {'bits' if kind.repeats else 'numbers'} as from Python")
    return equal


def checked(kind: Kind, out: Path, generated: Path, folder: Path) -> dict[str, Any]:
    """What was found of a kind whose package is made."""
    right, times = example(out)
    same = same_as_python(kind, out, generated, folder)
    return {"right": right, "same_bits_as_python": same, "launch_us": times}


def main(generated: Path, results: Path | None, kinds: list[Kind], limit: float) -> int:
    """Make, run and compare every kind; return the exit status."""
    begun = time.perf_counter()
    name = torch.cuda.get_device_name()
    device = slug(name)
    if device not in DEVICES:
        sys.exit(f"no figures of {name}: kernels can be chosen for {', '.join(DEVICES)}")
    c = compiler("CC", "cc", "gcc", "clang")
    version = must(c, "--version").splitlines()[0]
    print(f"{name}, torch {torch.__version__}, Triton {triton.__version__}, {version}", flush=True)
    place = {"device": name, "torch": torch.__version__, "triton": triton.__version__, "compiler": version}
    by_kind: dict[str, dict[str, Any]] = {kind.name: {"skipped": f"not made after {limit:.0f} s"} for kind in kinds}
    generated = generated.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2))
        waiting = {pool.submit(made, kind, generated, folder, device): kind for kind in kinds}
        try:
            for future in as_completed(waiting, timeout=limit):
                kind = waiting[future]
                try:
                    by_kind[kind.name] = checked(kind, future.result(), generated, folder)
                except Exception as error:
                    by_kind[kind.name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
                by_kind[kind.name]["after_s"] = round(time.perf_counter() - begun, 1)
                print(kind.name, json.dumps(by_kind[kind.name]), flush=True)
                if results is not None:
                    results.write_text(json.dumps({"place": place, "kinds": by_kind}, indent=1) + "\n")
                if time.perf_counter() - begun > limit:
                    break
        except TooLong:
            pass
        # What a command still does is ended by its own limit.
        pool.shutdown(wait=True, cancel_futures=True)
    print(f"\n{'kind':12} {'right':>6} {'as Python':>10} {'launch, us':>16}")
    for kind_name, each in by_kind.items():
        times = each.get("launch_us")
        shown = f"{min(times):.2f} to {max(times):.2f}" if times else each.get("error", each.get("skipped", "-"))[:60]
        print(f"{kind_name:12} {each.get('right', '-')!s:>6} {each.get('same_bits_as_python', '-')!s:>10} {shown:>16}")
    slow = [name for name, each in by_kind.items() if max(each.get("launch_us") or [0]) > MOST]
    print(f"launches over {MOST} us: {', '.join(slow) or 'none'}; {time.perf_counter() - begun:.0f} s")
    if results is not None:
        results.write_text(json.dumps({"place": place, "kinds": by_kind}, indent=1) + "\n")
    wrong = [name for name, each in by_kind.items() if not (each.get("right") and each.get("same_bits_as_python"))]
    return int(any("skipped" not in by_kind[name] for name in wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generated", nargs="?", type=Path, default=Path("generated"))
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--only", nargs="+", metavar="KIND", choices=[kind.name for kind in KINDS])
    parser.add_argument("--seconds", type=float, default=100)
    given = parser.parse_args()
    chosen = [kind for kind in KINDS if given.only is None or kind.name in given.only]
    sys.exit(main(given.generated, given.results, chosen, given.seconds))
