"""Host time of a call of a family's function, in microseconds: `python measured/scripts/launching.py generated`.

The folder is one of rendered families, of this checkout or another one. Matrices are small, so that the GPU waits for
the host; `torch.matmul` is timed as well. "a new size" is the first call of a size whose kernel is already compiled.
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


def repeated(call: Callable[[], object]) -> float:
    """Seconds of a call, the median of rounds of several."""
    taken = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(CALLS_AT_ONCE):
            call()
        taken.append((time.perf_counter() - begun) / CALLS_AT_ONCE)
    torch.cuda.synchronize()
    return statistics.median(taken)


def first(function: Callable[..., object]) -> float:
    """Seconds of the first call of a size, the median of many."""
    taken = []
    for place in range(60):
        a, b = operands(SIZE + 16 * place, 512, 256)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        function(a, b)
        taken.append(time.perf_counter() - begun)
    # The first ones may compile.
    return statistics.median(taken[20:])


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    return a.half(), b.half().T


def main(folder: Path) -> None:
    """Print a line for each call."""
    sys.path.insert(0, str(folder.resolve()))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    a, b = operands(SIZE, SIZE, SIZE)
    print(f"{'torch.matmul':15} {1e6 * repeated(functools.partial(torch.matmul, a, b)):7.1f}")
    for name, (family, contract, shapes) in CALLS.items():
        function = getattr(importlib.import_module(family), contract)
        others = {name: torch.randn(shape, device="cuda").half() for name, shape in shapes.items()}
        call = functools.partial(function, a, b, **others)
        for _ in range(3):
            call()
        print(f"{name:15} {1e6 * repeated(call):7.1f}")
    plain = getattr(importlib.import_module(CALLS["plain"][0]), CALLS["plain"][1])
    print(f"{'a new size':15} {1e6 * first(plain):7.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
