"""What a kernel's autotuner would try, asked without a device: it cannot be called without one."""

from __future__ import annotations

from types import ModuleType

import torch

from generator.model import Kernel
from generator.verify.cases import Fit
from generator.verify.rows import row_of, takes


def tuner_fault(module: ModuleType, kernel: Kernel) -> str | None:
    """What is wrong with the tuner of `module.gemm_kernel`, or None."""
    tuner = module.gemm_kernel
    if list(tuner.keys) != ["M", "N", "K"]:
        return f"its choice is kept for {', '.join(tuner.keys)}, expected M, N, K"
    rows = [
        config.kwargs | {"num_warps": config.num_warps, "num_stages": config.num_stages} for config in tuner.configs
    ]
    expected = [row_of(kernel.variant, tile) for tile in kernel.tiles]
    if rows != expected:
        return f"it is given {rows}, expected {expected}"
    for tile in kernel.tiles:
        m, n, k = Fit(kernel.variant, tile)(tile.m, tile.n, tile.k)
        arguments = {"M": m, "N": n, "K": k, "a_ptr": torch.empty(1), "a_desc": torch.empty(1)}
        tried = list(tuner.configs)
        if tuner.early_config_prune:
            tried = tuner.early_config_prune(tuner.configs, arguments)
        wanted = [c for c, t in zip(tuner.configs, kernel.tiles, strict=True) if takes(kernel.variant, t, (m, n, k))]
        if tried != wanted:
            return f"of M, N, K = {m}, {n}, {k} it tries {len(tried)} rows, and {len(wanted)} take them"
    return None
