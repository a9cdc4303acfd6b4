"""An analytic cost model: predicts the seconds of a kernel without measurements. The tuner prunes by it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from generator.language.model import Tile
from generator.language.vocabulary import ELEMENTS
from generator.plan.kernels import Kernel
from generator.plan.memory import staged


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


#: Devices that tuning can be planned for on a machine without them, with the figures that torch reports.
DEVICES: Mapping[str, Device] = {
    device.slug: device
    for device in (
        Device("NVIDIA A100-SXM4-80GB", "sm80", 108, 167936),
        Device("NVIDIA H100 80GB HBM3", "sm90", 132, 233472),
        Device("NVIDIA H200", "sm90", 132, 233472),
    )
}

#: Multiplications of two 16-bit numbers per second and multiprocessor, close to what cuBLAS reaches on an H200. Other
#: widths are in proportion.
PRODUCTS = 2.6e12
#: The factor for fp32 without the matrix unit, of an H200.
_IEEE = 0.07
#: Bytes per second that one multiprocessor loads: 64 per cycle at the clock of an H200, which limits small tiles.
_LOADED = 1.1e11
#: Seconds of one load, which limit tiles with few stages.
_LATENCY = 1.4e-6


def seconds(kernel: Kernel, tile: Tile, sizes: tuple[int, ...], device: Device) -> float:
    """The predicted seconds of `kernel` with the configuration `tile` on `device`.

    `sizes` are M, N and K, after the number of products if there is a batch. The model is that of the template
    `select.j2`, with the time for loading the tiles as a lower bound. It can rank configurations and find those that
    are far too slow; it does not predict times accurately.
    """
    *batch, m, n, k = sizes
    dtype = kernel.variant.dtype
    width = ELEMENTS[dtype.a].bits // 8
    tiles = math.prod(batch) * -(-m // tile.m) * -(-n // tile.n)
    waves = -(-tiles // device.multiprocessors)
    depth = tile.k * tile.stages
    columns = tile.n * kernel.variant.epilogue.columns_of_b
    # Bytes that a tile loads for each index along K.
    line = (tile.m + columns) * width
    shared = line * depth + (tile.m * tile.n * 4 if staged(kernel.variant) else 0)
    resident = max(1, min(waves, device.shared_memory // shared))
    # The multiplications for each index along K (the matrix unit has at least 64 rows), and a term for the latency that
    # the loads in flight do not hide.
    area = tile.m * max(columns, 64) if kernel.variant.product == "exchanged" else max(tile.m, 64) * columns
    products = waves * (area + 400_000 / (depth * resident))
    rate = PRODUCTS * (_IEEE if dtype.precision == "ieee" else 2 / width)
    loads = waves * line
    # The stage that is being multiplied is not in flight.
    in_flight = resident * line * tile.k * max(tile.stages - 1, 1)
    return max(k, tile.k) * max(products / rate, loads / min(_LOADED, in_flight / _LATENCY))
