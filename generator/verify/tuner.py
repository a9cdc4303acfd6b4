"""What a kernel's autotuner would try, asked without a device: it cannot be called without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import torch

from generator.model import Kernel
from generator.verify.cases import Fit
from generator.verify.rows import row_of, takes
from generator.vocabulary import TARGETS


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
    lacking = {target: set(rows) for target, rows in kernel.not_offered}
    for target in kernel.targets:
        for tile in kernel.tiles:
            m, n, k = Fit(kernel.variant, tile)(tile.m, tile.n, tile.k)
            arguments = {"M": m, "N": n, "K": k, "a_ptr": torch.empty(1), "a_desc": torch.empty(1)}
            tried = list(tuner.configs)
            if tuner.early_config_prune:
                with _claimed(target):
                    tried = tuner.early_config_prune(tuner.configs, {}, **arguments)
            wanted = [
                config
                for row, (config, t) in enumerate(zip(tuner.configs, kernel.tiles, strict=True))
                if takes(kernel.variant, t, (m, n, k)) and row not in lacking.get(target, ())
            ]
            if tried != wanted:
                told = f"of M, N, K = {m}, {n}, {k} on {target}"
                return f"{told} it tries {len(tried)} rows, and {len(wanted)} take them"
    return None


@contextmanager
def _claimed(target: str) -> Iterator[None]:
    """Within, torch says that the current device is a GPU of the target, whether there is one or none."""
    major, minor = divmod(TARGETS[target].capability, 10)
    properties = SimpleNamespace(major=major, minor=minor, gcnArchName=target)
    with (
        patch.object(torch.cuda, "current_device", lambda: 0),
        patch.object(torch.cuda, "get_device_properties", lambda device=None: properties),
        patch.object(torch.version, "hip", "claimed" if TARGETS[target].vendor == "amd" else None),
    ):
        yield
