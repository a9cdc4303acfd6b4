"""Operands for the contracts of rendered families, and what torch sees of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from generator.emit.manifest_reader import read
from generator.language.model import Variant
from generator.plan.contract_call import Argument, call
from generator.problem.drawn_values import Draw
from generator.problem.element_types import torch_type

#: No size is a multiple of a tile, and no two are equal.
SIZES: Mapping[str, int] = {"B": 3, "G": 4, "T": 41, "R": 41, "M": 20, "N": 24, "K": 33}


def contracts(package: ModuleType) -> dict[str, Variant]:
    """A variant of each contract of a rendered family."""
    return {kernel.variant.contract: kernel.variant for kernel in read(Path(package.__path__[0])).kernels}


def results(found: Any) -> tuple[torch.Tensor, ...]:
    """The results of a call, one or several."""
    return found if isinstance(found, tuple) else (found,)


def drawn(shape: Sequence[int], dtype: torch.dtype, *, column: bool = False, seed: int = 0) -> torch.Tensor:
    """A tensor of random numbers about 1 large, row-major or column-major in its last two dimensions."""
    memory = [*shape[:-2], shape[-1], shape[-2]] if column else [*shape]
    x = torch.randn(memory, generator=torch.Generator().manual_seed(seed)).mul(1 if dtype.is_floating_point else 3)
    x = x.to(dtype)
    return x.mT if column else x


def random(*shape: int, seed: int = 3) -> torch.Tensor:
    """Random numbers of fp32."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def operands(
    variant: Variant, sizes: Mapping[str, int] = SIZES, default: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """The operands of a call of a contract by keyword, with `out` where it is read.

    An operand that may have any floating type has the type `default`; a number is a tensor of one element.
    """
    described = call(variant)

    def made(argument: Argument, seed: int) -> torch.Tensor:
        if argument is described.offsets:
            # The first group is empty, and the last rows are in none.
            return torch.arange(sizes["G"], dtype=torch.int32) * (sizes["T"] // sizes["G"])
        if argument.name == "b_index":
            return Draw(torch.Generator().manual_seed(seed)).positions(argument.sizes(sizes))
        if argument.dtype is not None and "e8m0" in argument.dtype:
            return drawn(argument.sizes(sizes), torch.float32, seed=seed).abs().to(torch.float8_e8m0fnu)
        dtype = torch_type(argument.dtype) if isinstance(argument.dtype, str) else default
        if argument.name in ("a_scale", "b_scale") and dtype.itemsize == 1:
            # The matrix unit reads no sign of such a scale: one below zero becomes NaN, which no result is equal to.
            return drawn(argument.sizes(sizes), torch.float32, seed=seed).abs().to(dtype)
        return drawn(argument.sizes(sizes), dtype, column=argument.layout == "column", seed=seed)

    together = variant.dtype.together
    if together > 1:
        sizes = {**sizes, "K": -(-sizes["K"] // together) * together}
    wanted = [described.a, described.b, *described.positional, *described.keywords]
    wanted += [described.out] * described.reads_out
    return {argument.name: made(argument, seed) for seed, argument in enumerate(wanted)}


class Seen(TorchDispatchMode):
    """Within, the calls of a family's operators with their arguments, in order."""

    def __init__(self, package: ModuleType) -> None:
        super().__init__()
        self.namespace = package.__name__.replace(".", "__")
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    @property
    def names(self) -> list[str]:
        """The operators' names."""
        return [operator.name().partition("::")[2] for operator, _ in self.calls]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == self.namespace:
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    """A subclass without `__torch_dispatch__`."""


def in_threads(count: int, call: Callable[[int], Any]) -> list[Any]:
    """What a call gives in each of several threads, which begin at once; raises what a call raises."""
    together = threading.Barrier(count)

    def run(number: int) -> Any:
        together.wait()
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(run, range(count))]
