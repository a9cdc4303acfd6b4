"""`python -m generator prepare FOLDER`: fill a Triton cache for a device, on a machine that need not have one.

A call finds a kernel in the cache by a key, of which Triton makes a hash: the digest of Triton's own files; the text of
the kernel and of what it calls, and the line where it begins; types, alignment and constants of the arguments; options
such as num_warps; the architecture and the version of ptxas; and the environment variables that change code. No part of
it asks a GPU. So the cache serves machines with the same build of Triton and the same file of the kernel, at any path.
The functions of the family choose kernels and configurations here as on the device, whose name, multiprocessors and
shared memory they are told (`generator.plan.devices.DEVICES`).

Triton 3.6 also compiles a launcher in C for each signature, which links the driver: `f.prepare` does it on the device.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
import triton
from triton.runtime import driver

from generator.emit.apply import MANIFEST
from generator.files.reading import FileError, read_text
from generator.language.call_numbers import MOST_SIZES, sizes_of, whole_number
from generator.language.errors import CallError, shown
from generator.language.measured_values import LARGEST_SIZE
from generator.language.targets import TARGETS
from generator.plan.devices import DEVICES, Device, named
from generator.verify.loading import load_family
from generator.verify.specialise import claimed

_SHAPE = re.compile(r"([0-9]+)x([0-9]+)((?:,[0-9]+(?:-[0-9]+)?)+)")


@dataclass(frozen=True)
class Shape:
    """N and K of a product, and the M with which it is called."""

    n: int
    k: int
    m: tuple[int, ...]


def main(argv: Sequence[str]) -> int:
    """Compile what calls of a family's functions with these sizes can run; return 0.

    Raises `CallError` for a wrong command line, before anything is compiled.
    """
    call = parser().parse_args(argv)
    device = named(call.device)
    try:
        batch = whole_number(call.batch, 0, LARGEST_SIZE)
    except ValueError as error:
        raise CallError(f"--batch: {error}") from None
    shapes = [shape for text in call.shapes for shape in _shapes(text)]
    count = sum(len(shape.m) for shape in shapes)
    if count > MOST_SIZES:
        raise CallError(f"--shapes: at most {MOST_SIZES} sizes are possible in a call, got {count}; divide it")
    if triton.knobs.runtime.interpret:
        raise CallError("prepare compiles kernels; unset TRITON_INTERPRET")
    if not (call.folder / MANIFEST).is_file():
        raise CallError(f"{call.folder} has no {MANIFEST}: name the folder of a rendered family")
    family = load_family(call.folder.resolve())
    names = [name for name in family._KERNELS if fnmatch.fnmatchcase(name, call.only)]
    if not names:
        raise CallError(f"--only {call.only!r} matches no function; there are {', '.join(family._KERNELS)}")
    if call.cache is not None:
        os.environ["TRITON_CACHE_DIR"] = str(call.cache)
    outcomes: Counter[bool] = Counter()
    with standing_in_for(device), _counting(outcomes):
        ahead = importlib.import_module(f"{family.__name__}._runtime.prepare")
        options = {"B": batch, "device": torch.device("cuda", 0), "unaligned": () if call.aligned else None}
        found = []
        for name, shape in itertools.product(names, shapes):
            try:
                found += ahead.launches(getattr(family, name), shape.n, shape.k, M=shape.m, **options)
            except ValueError as error:
                raise CallError(f"{shape.n}x{shape.k}: {error}") from None
        ahead.compile_all({launch.key: launch for launch in found}.values(), options["device"])
    cache = Path(triton.knobs.cache.dir)
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    print(f"{outcomes[False]} kernels compiled for {device.name}, {outcomes[True]} were in the cache")
    print(f"{cache}: {size / 1e6:.1f} MB")
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    made = argparse.ArgumentParser(
        prog="python -m generator prepare",
        description="Compile the kernels that calls with the given sizes can run, into a Triton cache.",
        allow_abbrev=False,
    )
    made.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of a rendered family")
    made.add_argument("--device", required=True, help=f"for which GPU: {', '.join(DEVICES)}")
    made.add_argument(
        "--shapes",
        required=True,
        nargs="+",
        metavar="NxK,M...",
        help="N, K and the M of calls, as in 4096x14336,1-64,128; or a file with one of these a line",
    )
    made.add_argument("--only", default="*", metavar="GLOB", help="only functions whose name matches")
    made.add_argument("--aligned", action="store_true", help="only calls with aligned, contiguous operands")
    made.add_argument("--batch", default="1", metavar="B", help="the matrices of a batch (default: 1)")
    made.add_argument("--cache", type=Path, metavar="DIR", help="the cache (default: TRITON_CACHE_DIR or Triton's own)")
    return made


def _shapes(text: str) -> Iterator[Shape]:
    """The shapes that an argument of `--shapes` gives, itself or by the lines of a file."""
    lines = [("--shapes", text)]
    if _SHAPE.fullmatch(text) is None:
        path = Path(text)
        try:
            found = read_text(path)
        except FileNotFoundError:
            pass
        except FileError as error:
            raise CallError(f"--shapes: {error}") from None
        else:
            lines = [(f"{path}:{number}", line) for number, line in enumerate(found.splitlines(), 1)]
            if not any(line.partition("#")[0].strip() for _, line in lines):
                raise CallError(f"--shapes: {path}:1: the file has no shape; expected lines such as 4096x14336,1-64")
    for where, line in lines:
        line = line.partition("#")[0].strip()
        if line:
            yield _shape(where, line)


def _shape(where: str, line: str) -> Shape:
    found = _SHAPE.fullmatch(line)
    if found is None:
        form = "expected NxK,M..., as in 4096x14336,1-64,128, or a file of such lines"
        raise CallError(f"{where}: {form}, got {shown(line)}")
    try:
        n, k = (whole_number(size, 0, LARGEST_SIZE) for size in (found[1], found[2]))
        sizes = sizes_of(found[3].removeprefix(",").split(","), least=0)
    except ValueError as error:
        raise CallError(f"{where}: {error}") from None
    if not sizes:
        raise CallError(f"{where}: {shown(line)} has an empty range of M")
    return Shape(n, k, sizes)


@contextmanager
def standing_in_for(device: Device) -> Iterator[None]:
    """Within, torch and Triton find one GPU, the device, on which nothing can run."""
    major, minor = divmod(TARGETS[device.target].capability, 10)
    properties = SimpleNamespace(
        name=device.name,
        major=major,
        minor=minor,
        multi_processor_count=device.multiprocessors,
        shared_memory_per_multiprocessor=device.shared_memory,
    )
    # As Triton has them: kilohertz, with two transfers of the bus in a cycle of the memory.
    rates = {"sm_clock_rate": device.clock, "mem_clock_rate": device.memory / 2000, "mem_bus_width": 8}
    utils = SimpleNamespace(get_device_properties=lambda index: rates)
    with (
        claimed(device.target),
        patch.object(driver.active, "utils", utils, create=True),
        patch.object(torch.cuda, "_lazy_init", lambda: None),
        patch.object(torch.cuda, "device", lambda device: nullcontext()),
        patch.object(torch.cuda, "get_device_name", lambda device=None: properties.name),
        patch.object(torch.cuda, "get_device_properties", lambda device=None: properties),
    ):
        yield


@contextmanager
def _counting(outcomes: Counter[bool]) -> Iterator[None]:
    """Within, count compilations by whether Triton's cache had the kernel."""
    before = triton.knobs.compilation.listener

    def listen(*, cache_hit: bool, **_: object) -> None:
        outcomes[cache_hit] += 1

    triton.knobs.compilation.listener = listen
    try:
        yield
    finally:
        triton.knobs.compilation.listener = before
