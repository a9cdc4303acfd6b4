"""Fill a Triton cache for a device, on a machine that need not have one.

A call finds a kernel in the cache by a key, of which Triton makes a hash: the digest of Triton's own files; the text of
the kernel and of what it calls, and the line where it begins; types, alignment and constants of the arguments; options
such as num_warps; the architecture and the version of ptxas; and the environment variables that change code. No part of
it asks a GPU. So the cache serves machines with the same build of Triton and the same file of the kernel, at any path.
The functions of the family choose kernels and configurations here as on the device, whose name, multiprocessors and
shared memory they are told (`generator.plan.devices.DEVICES`).

Triton 3.6 also compiles a launcher in C for each signature, which links the driver: `f.prepare` does it on the device.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
import triton

from generator.emit import manifest_reader
from generator.emit.apply import MANIFEST
from generator.emit.loading import library_module, load_family
from generator.language.errors import CallError
from generator.plan import legality
from generator.plan.devices import Device
from generator.plan.kernels import Kernel
from generator.runtime.prepare import several
from generator.verify.specialise import claimed


@dataclass(frozen=True)
class ProductSizes:
    """N and K of a product, and the M with which it is called."""

    n: int
    k: int
    m: tuple[int, ...]


def prepare(
    folder: Path,
    device: Device,
    shapes: Sequence[ProductSizes],
    *,
    only: str,
    batch: int,
    aligned: bool,
    cache: Path | None,
) -> None:
    """Compile what calls of a family's functions with these sizes can run, and print how many kernels.

    `only` selects functions by a pattern of their names. With `aligned`, only calls with aligned, contiguous operands.
    Raises `CallError` for a wrong call, before anything is compiled.
    """
    if triton.knobs.runtime.interpret:
        raise CallError("prepare compiles kernels; unset TRITON_INTERPRET")
    if not (folder / MANIFEST).is_file():
        raise CallError(f"{folder} has no {MANIFEST}: name the folder of a rendered family")
    rendered = manifest_reader.read(folder)
    if rendered.package != "torch":
        why = f"is rendered with 'package: {rendered.package}', which has no prepare; render it with 'package: torch'"
        raise CallError(f"{folder} {why}")
    family = load_family(folder.resolve())
    names = [name for name in family._KERNELS if fnmatch.fnmatchcase(name, only)]
    if not names:
        raise CallError(f"--only {only!r} matches no function; there are {', '.join(family._KERNELS)}")
    kernels = rendered.functions
    left_out = {name: reason for name in names if (reason := why_none_on(kernels.get(name, ()), device))}
    if len(left_out) == len(names):
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise CallError(f"no function of {folder} runs on {device.name}: {reasons}")
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    names = [name for name in names if name not in left_out]
    counted = {name: several(getattr(family, name).table) for name in names}
    require_several(batch, counted)
    if cache is not None:
        os.environ["TRITON_CACHE_DIR"] = str(cache)
    outcomes: Counter[bool] = Counter()

    def listen(*, cache_hit: bool, **_: object) -> None:
        outcomes[cache_hit] += 1

    with standing_in_for(device), patch.object(triton.knobs.compilation, "listener", listen):
        ahead = library_module(family, "prepare")
        options = {"device": torch.device("cuda", 0), "unaligned": () if aligned else None}
        launches = []
        for name, shape in itertools.product(names, shapes):
            function, count = getattr(family, name), batch if counted[name] else 1
            try:
                launches += ahead.launches(function, shape.n, shape.k, M=shape.m, B=count, **options)
            except ValueError as error:
                raise CallError(f"{shape.n}x{shape.k}: {error}") from None
        ahead.compile_all({launch.key: launch for launch in launches}.values(), options["device"])
    used = Path(triton.knobs.cache.dir)
    size = sum(path.stat().st_size for path in used.rglob("*") if path.is_file())
    print(f"{outcomes[False]} kernels compiled for {device.name}, {outcomes[True]} were in the cache")
    print(f"{used}: {size / 1e6:.1f} MB")


def require_several(batch: int, contracts: Mapping[str, bool]) -> None:
    """Raise `CallError` if `--batch` is for none of the contracts, each with whether it has a batch or groups."""
    if batch != 1 and not any(contracts.values()):
        raise CallError(f"--batch {batch}: none of these has a batch or groups: {', '.join(contracts)}")


def why_none_on(kernels: Sequence[Kernel], device: Device) -> str | None:
    """Why none of the kernels of a contract runs on a device; None if one does."""
    reasons = [legality.why_not_on(kernel.variant, device.target) for kernel in kernels]
    return "; ".join(dict.fromkeys(map(str, reasons))) if reasons and all(reasons) else None


@contextmanager
def standing_in_for(device: Device) -> Iterator[None]:
    """Within, torch and Triton find one GPU, the device, on which nothing can run."""
    properties = {
        "multi_processor_count": device.multiprocessors,
        "shared_memory_per_multiprocessor": device.shared_memory,
        # CUDA keeps 1 KiB of a multiprocessor for each program.
        "shared_memory_per_block_optin": device.shared_memory - 1024,
        # Kilohertz, with two transfers of the bus in a cycle of the memory.
        "clock_rate": device.clock,
        "memory_clock_rate": device.memory / 2000,
        "memory_bus_width": 8,
    }
    with (
        claimed(device.target, device.name, **properties),
        patch.object(torch.cuda, "_lazy_init", lambda: None),
        patch.object(torch.cuda, "device", lambda device: nullcontext()),
    ):
        yield
