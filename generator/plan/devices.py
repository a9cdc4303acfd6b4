"""GPUs that measurements are of, or that kernels can be planned for on a machine without them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


def slug(name: str) -> str:
    """The name of a folder for a device: `nvidia_h200` for `NVIDIA H200`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@dataclass(frozen=True)
class Device:
    """A GPU, as far as the cost models need it."""

    #: The name that torch reports: `NVIDIA H200`.
    name: str
    #: The architecture as a spec's `targets` names it: `sm90`.
    target: str
    multiprocessors: int
    #: Bytes of shared memory of one multiprocessor.
    shared_memory: int

    @property
    def slug(self) -> str:
        """The name as a folder."""
        return slug(self.name)


#: Known devices by the names of their folders, with the figures that torch reports.
DEVICES: Mapping[str, Device] = {
    device.slug: device
    for device in (
        Device("NVIDIA A100-SXM4-80GB", "sm80", 108, 167936),
        Device("NVIDIA H100 80GB HBM3", "sm90", 132, 233472),
        Device("NVIDIA H200", "sm90", 132, 233472),
    )
}
