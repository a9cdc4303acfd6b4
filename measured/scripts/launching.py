"""Host time of a call of a family's function, in microseconds: `python measured/scripts/launching.py generated`.

The folder is one of rendered families, of this checkout or another one. Matrices are small, so that the GPU waits for
the host; `torch.matmul` is timed as well. "a new size" is the first call of a size whose kernel is already compiled; it
is called once, between other work, so that less of it is in the processor's caches than of calls in a loop.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from rounds import in_turns, until_returned

#: What is called: family, contract, and the shapes of operands beside a and b.
CALLS = {
    "plain": ("gemm16", "gemm_fp16_rcr_none", {}),
    "pointer": ("layouts", "gemm_fp16_sss_none", {}),
    "split-K": ("split_k", "gemm_fp16_rcr_none", {}),
    "stream-K": ("stream_k", "gemm_fp16_rcr_none", {}),
    "split-K, added": ("split_k", "gemm_fp16_fp32_fp32_rcr_none", {}),
    "save": ("outputs", "gemm_fp16_rcr_bias_save_gelu", {"bias": (256,)}),
    "row_sum": (
        "outputs",
        "gemm_fp16_rcr_bias_biasm_save_1hidden_silu_colsum_1gradient_rowsum_rowamax",
        {"bias": (256,), "bias_m": (256,)},
    ),
}
SIZE, CALLS_AT_ONCE, ROUNDS = 256, 50, 41
#: M and N of the sizes that are called once.
HEIGHTS, WIDTHS = range(SIZE, SIZE + 60 * 16, 16), (512, 768, 1024, 1280)


def interleaved(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each call: the median over rounds, in each of which every call has a turn of several."""
    for call in calls.values():
        until_returned(call, 3)
    sides = {name: functools.partial(until_returned, call, CALLS_AT_ONCE) for name, call in calls.items()}
    taken = in_turns(sides, ROUNDS)
    return {name: statistics.median(times) for name, times in taken.items()}


def first(function: Callable[..., object]) -> tuple[float, int]:
    """Seconds of the first call of a size whose kernel is compiled: the median of many, and of how many.

    All extents are divisible by 16, so that Triton compiles each configuration once. Calls have N and K in common, as
    those of one layer do; those of the first N are not counted.
    """
    compiled: list[object] = []
    # Triton calls it for kernels of its cache on disk too.
    triton.knobs.runtime.jit_post_compile_hook = lambda **options: compiled.append(options["key"])
    taken = []
    for n in WIDTHS:
        for m in HEIGHTS:
            a, b = operands(m, n, SIZE)
            torch.cuda.synchronize()
            compiled.clear()
            begun = time.perf_counter()
            function(a, b)
            seconds = time.perf_counter() - begun
            if not compiled and n != WIDTHS[0]:
                taken.append(seconds)
    triton.knobs.runtime.jit_post_compile_hook = None
    return statistics.median(taken), len(taken)


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    return a.half(), b.half().T


def seen(a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Calls that torch sees: by the operator, in a compiled graph, and with gradients recorded."""
    family = importlib.import_module("gemm16")
    function = family.gemm_fp16_rcr_none
    x, w = a.clone().requires_grad_(), b.clone().requires_grad_()
    with torch.no_grad():
        compiled = torch.compile(function, fullgraph=True)
        library = torch.compile(torch.matmul, fullgraph=True)
        compiled(a, b), library(a, b)
    operator = importlib.import_module("gemm16._runtime.operators").operator("gemm_fp16_rcr_none")
    return {
        "operator": functools.partial(operator, a, b, None),
        "compiled": functools.partial(compiled, a, b),
        "torch.matmul, compiled": functools.partial(library, a, b),
        "recorded": lambda: function(x, w),
        "torch.matmul, recorded": lambda: torch.matmul(x, w),
        "recorded and backward": lambda: function(x, w).backward(a),
        "torch.matmul, recorded and backward": lambda: torch.matmul(x, w).backward(a),
    }


def main(folder: Path) -> None:
    """Print a line for each call."""
    sys.path.insert(0, str(folder.resolve()))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    a, b = operands(SIZE, SIZE, SIZE)
    calls: dict[str, Callable[[], object]] = {"torch.matmul": functools.partial(torch.matmul, a, b)}
    for name, (family, contract, shapes) in CALLS.items():
        function = getattr(importlib.import_module(family), contract)
        others = {name: torch.randn(shape, device="cuda").half() for name, shape in shapes.items()}
        calls[name] = functools.partial(function, a, b, **others)
    calls |= seen(a, b)
    for name, seconds in interleaved(calls).items():
        print(f"{name:36} {1e6 * seconds:7.1f}")
    plain = getattr(importlib.import_module(CALLS["plain"][0]), CALLS["plain"][1])
    for name, function in (("a new size", plain), ("torch.matmul, a new size", torch.matmul)):
        seconds, sizes = first(function)
        print(f"{name:36} {1e6 * seconds:7.1f} (of {sizes} sizes)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
