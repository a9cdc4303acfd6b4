"""Which configurations a GPU can run: those whose shared memory it holds, also on GPUs that the spec does not name."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

#: Of each configuration the bytes of shared memory that a program needs, or None where it needs more than any memory.
Needs: TypeAlias = Sequence[int | None]


def needs_of(kernels: Sequence[Any]) -> Mapping[str, Needs]:
    """What the configurations of a call that launches `kernels` need, by kind of device, as `_shared_memory` has it."""
    kernel: Any = kernels[-1] if kernels else None
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    name = getattr(kernel, "__module__", "").rpartition(".")[2]
    found: Mapping[str, Needs] = _listed().get(name, {})
    return found


@functools.cache
def _listed() -> dict[str, Mapping[str, Needs]]:
    """What `_shared_memory` has for each kernel; nothing where a folder lacks it."""
    family = __name__.rpartition(".")[0].rpartition(".")[0]
    try:
        listed = importlib.import_module(f"{family}._shared_memory").NEEDS
    except ModuleNotFoundError:
        return {}
    return {name: needs for names, needs in listed for name in names}


def kind_of(device: torch.device) -> str:
    """The kind of a GPU's matrix instructions, on which the shared memory of a program depends."""
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        # Those of data centres, whose warps have 64 threads, and others.
        return str(properties.gcnArchName[:4])
    return {9: "sm90", 10: "sm100", 11: "sm100"}.get(properties.major, "sm80")


def limit_of(device: torch.device) -> int | None:
    """The bytes of shared memory that a program may have on a GPU; None if torch does not say."""
    properties = torch.cuda.get_device_properties(device)
    hip = torch.version.hip is not None
    own = getattr(properties, "shared_memory_per_block" if hip else "shared_memory_per_block_optin", 0)
    if own:
        return int(own)
    # CUDA keeps 1 KiB of a multiprocessor for each program.
    whole = getattr(properties, "shared_memory_per_multiprocessor", 0)
    return int(whole) - (0 if hip else 1024) if whole else None


class Offered:
    """The configurations of a kernel that a device can run: found once for each device."""

    def __init__(self, table: Any, kernels: Sequence[Any]) -> None:
        self.table, self.kernels = table, kernels
        self.found: dict[torch.device, list[dict[str, int]]] = {}

    def __call__(self, device: torch.device) -> list[dict[str, int]]:
        found = self.found.get(device)
        if found is None:
            found = self.found[device] = self._offered(device)
        return found

    def _offered(self, device: torch.device) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = self.table.offered(device)
        needs = needs_of(self.kernels).get(kind_of(device)) if device.type == "cuda" else None
        limit = limit_of(device) if needs is not None else None
        if needs is None or limit is None:
            # Of a copied file, or of a GPU that torch does not describe, nothing more is known.
            return rows
        held = [row for row, each in zip(self.table.rows, needs) if each is not None and each <= limit]
        return [row for row in rows if row in held]

    def why_none(self, device: torch.device) -> str:
        """Why a device can run none of them."""
        needs = needs_of(self.kernels).get(kind_of(device), ())
        least = min((each for each in needs if each is not None), default=None)
        this = f"this is {torch.cuda.get_device_name(device)}"
        if least is None:
            return f"no configuration fits into the device's registers, and {this}"
        return (
            f"no configuration fits into the device's shared memory: a program may have {limit_of(device)} bytes, and "
            f"the least that one needs is {least}; {this}"
        )
