"""What stands for compiled kernels and their launches, where a family's functions are called without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton


class Compiled:
    """What a launch returns: a second launch calls `run`, or `compiled[grid]`, which Triton documents."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(tensordesc_meta=None)
        self.function, self.packed_metadata = object(), object()
        self.runs: list[tuple[Any, ...]] = []
        self.documented: list[tuple[Any, tuple[Any, ...]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments: self.documented.append((grid, arguments))

    def run(self, *arguments: Any) -> None:
        self.runs.append(arguments)
        for hook in arguments[7:9]:
            if hook is not None:
                hook(arguments[6])

    def launch_metadata(self, grid: Any, stream: Any, *arguments: Any) -> dict[str, Any]:
        return {"name": "the kernel", "stream": stream}


class Kernel:
    """Stands for a kernel: keeps what is launched, and compiles it to one that keeps what it runs with."""

    def __init__(self, arg_names: list[str]) -> None:
        self.arg_names = arg_names
        self.launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.compiled = Compiled()

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **options: Any) -> Compiled:
            self.launches.append((grid, arguments, options))
            return self.compiled

        return launch


def copied(pairs: list[tuple[torch.Tensor, torch.Tensor, int]], block: object) -> None:
    """Stands for the launch of copies, which take minutes in the interpreter; copied.py shows what that one copies."""
    for x, copy, _ in pairs:
        copy.copy_(x)


def launched(package: ModuleType, contract: str) -> Kernel:
    """The one kernel of a contract that was launched."""
    modules = [package._kernel(name) for name in package._KERNELS[contract]]
    (found,) = [module.gemm_kernel for module in modules if module.gemm_kernel.launches]
    return found


def operands(m: int = 64, n: int = 48, k: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(m, k, dtype=torch.float16), torch.randn(n, k, dtype=torch.float16).T


@contextlib.contextmanager
def failing_launches() -> Iterator[None]:
    """Inside it, the hook at the end of a launch raises `RuntimeError`."""

    def fails(metadata: Any) -> None:
        raise RuntimeError("no launch")

    triton.knobs.runtime.launch_exit_hook.add(fails)
    try:
        yield
    finally:
        triton.knobs.runtime.launch_exit_hook.remove(fails)
