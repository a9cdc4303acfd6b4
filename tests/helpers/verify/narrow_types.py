"""Numbers through a rendered kernel's quantisation; called in a process with Triton's interpreter.

As it is, without the guard, which mends its conversions: a kernel needs no cast that rounds.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import remembered
from generator.problem.element_types import SATURATED, quantise, torch_type

#: fp32 numbers on each side of one in the middle between two of a narrow type, and at it.
_BESIDE = 3


def numbers(dtype: torch.dtype, narrow: torch.dtype) -> torch.Tensor:
    """Every value of a 16-bit `dtype`; of fp32 those beside each number of `narrow` and the middle of each two."""
    if dtype.itemsize == 2:
        return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    own = torch.arange(-128, 128).to(torch.int8).view(narrow).float().double()
    own = own[own.isfinite()].unique()
    middles = (own[1:] + own[:-1]) / 2
    past = torch.tensor(SATURATED[narrow]) * torch.tensor([[1.01], [2.0], [1e30]])
    exact = torch.cat([own, middles, past.flatten().double()]).float()
    beside = torch.cat([(exact.view(torch.int32) + step).view(dtype) for step in range(-_BESIDE, _BESIDE + 1)])
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 1e-30, -1e-30])
    return torch.cat([beside, special])


def as_torch(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a user of torch writes: saturated, rounded, converted; NaN stays NaN, or is told to be 0."""
    saturated = x.float().clamp(*SATURATED[dtype])
    return saturated.to(dtype) if dtype.is_floating_point else saturated.round().nan_to_num(0.0).to(dtype)


def every_number(folder: Path, name: str, file: Path | None = None) -> list[str]:
    """What is wrong with a kernel of C = A @ B, given the numbers of its A's type times one: bit for bit torch's own.

    `file` is where the kernel is, if not in its folder.
    """
    kernel = remembered(folder).by_name[name]
    module = load_kernel(file or folder / f"{name}.py")
    narrow = torch_type(kernel.variant.dtype.out)
    x = numbers(torch_type(kernel.variant.dtype.a), narrow)
    row = module.CONFIGS[0]
    if kernel.variant.schedule == "elementwise":
        # A program an element: some of them.
        x = x[:: len(x) // 199]
    else:
        row = {**row, "BLOCK_M": 2**13, "BLOCK_N": 16, "BLOCK_K": 16}
        module.CONFIGS.append(row)
    got = module.gemm(x[:, None], torch.ones(1, 1, dtype=x.dtype), config=row)[:, 0]
    faults = []
    # A sum that begins at 0 is never -0.
    wanted = as_torch(x + 0.0, narrow)
    same = (got.view(torch.uint8) == wanted.view(torch.uint8)) | (got.float().isnan() & wanted.float().isnan())
    faults += [f"{float(x[i])!r} became {got[i]}, and torch's is {wanted[i]}" for i in (~same).nonzero().flatten()[:5]]
    meant = quantise(x.double(), narrow)
    differs = (meant != got.float().double()) & ~(meant.isnan() & got.float().isnan())
    faults += [f"{float(x[i])!r} became {got[i]}, and means {meant[i]}" for i in differs.nonzero().flatten()[:5]]
    return faults


def planted(folder: Path, name: str, old: str, new: str) -> list[str]:
    """The same of a kernel in whose text `old` is replaced."""
    text = (folder / f"{name}.py").read_text()
    assert old in text
    # A file of its own each: nothing compiled of another one is taken for it.
    with TemporaryDirectory() as other:
        shutil.copytree(folder, other, dirs_exist_ok=True)
        file = Path(other) / f"{name}.py"
        file.write_text(text.replace(old, new))
        return every_number(folder, name, file)
