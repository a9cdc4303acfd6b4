"""The configurations that a kernel's launcher takes on a target: they must be those that the legality table allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

from generator.language.targets import TARGETS
from generator.plan import legality
from generator.plan.kernels import Kernel


@contextmanager
def claimed_device(target: str) -> Iterator[None]:
    """Make torch report that the current device is a GPU of the target, whether or not a GPU is present."""
    import torch

    found = TARGETS[target]
    major, minor = divmod(found.capability, 10)
    memory = dict.fromkeys(("shared_memory_per_block", "shared_memory_per_block_optin"), found.shared_memory)
    properties = SimpleNamespace(major=major, minor=minor, gcnArchName=target, multi_processor_count=1, **memory)
    with (
        patch.object(torch.cuda, "current_device", lambda: 0),
        patch.object(torch.cuda, "get_device_name", lambda device=None: target),
        patch.object(torch.cuda, "get_device_properties", lambda device=None: properties),
        patch.object(torch.version, "hip", "claimed" if found.vendor == "amd" else None),
    ):
        yield


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
    import torch

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
