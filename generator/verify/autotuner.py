"""Check the configurations that a kernel's autotuner would try. This needs no GPU; calling the autotuner does."""

from __future__ import annotations

from types import ModuleType

import torch

from generator.plan.kernels import Kernel
from generator.verify.case_sizes import Fit
from generator.verify.manifest_configurations import configuration_of, takes
from generator.verify.offered_rows import claimed_device, forget_devices


def tuner_fault(module: ModuleType, kernel: Kernel) -> str | None:
    """What is wrong with the tuner of the call of `module`, or None."""
    tuner = module.CALL.tuner.kernel(module.CALL) if hasattr(module, "CALL") else module.tuned_kernel
    if list(tuner.keys) != ["M", "N", "K"]:
        return f"the autotuner caches its choice by {', '.join(tuner.keys)}, expected M, N, K"
    configurations = [
        config.kwargs | {"num_warps": config.num_warps, "num_stages": config.num_stages} for config in tuner.configs
    ]
    expected = [configuration_of(kernel.variant, tile) for tile in kernel.tiles]
    if configurations != expected:
        return f"the autotuner has the configurations {configurations}, expected {expected}"
    excluded = {target: set(indices) for target, indices in kernel.not_offered}
    for target in kernel.targets:
        for tile in kernel.tiles:
            m, n, k = Fit(kernel.variant, tile)(tile.m, tile.n, tile.k)
            arguments = {"M": m, "N": n, "K": k, "a_ptr": torch.empty(1), "a_desc": torch.empty(1)}
            tried = list(tuner.configs)
            if tuner.early_config_prune:
                forget_devices(module)
                with claimed_device(target):
                    tried = tuner.early_config_prune(tuner.configs, {}, **arguments)
            wanted = [
                config
                for index, (config, t) in enumerate(zip(tuner.configs, kernel.tiles, strict=True))
                if takes(kernel.variant, t, (m, n, k)) and index not in excluded.get(target, ())
            ]
            if tried != wanted:
                problem = f"for M, N, K = {m}, {n}, {k} on {target}"
                return f"{problem} the autotuner tries {len(tried)} configurations, and {len(wanted)} are valid"
    return None
