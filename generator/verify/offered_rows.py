"""The configurations that a launcher takes on a target, and its autotuner tries: those that are legal there."""

from __future__ import annotations

from types import ModuleType

import torch

from generator.plan import legality
from generator.plan.kernels import Kernel
from generator.verify.case_sizes import Fit
from generator.verify.manifest_configurations import configuration_of, takes
from generator.verify.specialise import claimed_device


def forget_devices(module: ModuleType) -> None:
    """Let a launcher ask again what it knows of a device."""
    if hasattr(module, "CALL"):
        module.CALL.offered.cache_clear()
    elif hasattr(module, "_device"):
        module._device.cache_clear()


def left_out_rows(kernel: Kernel, target: str) -> tuple[tuple[int, str], ...]:
    """The configurations of a kernel, by their indices, that a target cannot run, each with the reason."""
    reasons = (legality.why_no_row_on(kernel.variant, tile, target) for tile in kernel.tiles)
    return tuple((index, reason) for index, reason in enumerate(reasons) if reason is not None)


def offered_fault(module: ModuleType, kernel: Kernel, target: str) -> str | None:
    """What is wrong with the configurations that the launcher of `module` takes on a GPU of the target, or None."""
    left_out = dict(left_out_rows(kernel, target))
    expected = [row for index, row in enumerate(module.CONFIGS) if index not in left_out]
    device = torch.device("cuda", 0)
    forget_devices(module)
    with claimed_device(target):
        if hasattr(module, "CALL"):
            rows = module.CALL.offered(device)
        else:
            # A file that stands alone has a function for it where a program has shared memory.
            rows = module._device(device)[0] if hasattr(module, "_device") else module.CONFIGS
    if rows == expected:
        return None
    return f"on {target} the launcher takes {len(rows)} of {len(module.CONFIGS)} configurations, expected {expected}"


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
