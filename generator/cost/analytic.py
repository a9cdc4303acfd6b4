"""How long a kernel takes before anything was measured: what the tuner prunes by."""

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
    """A device's name as a folder: `nvidia_h200`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@dataclass(frozen=True)
class Device:
    """What the model knows of a GPU."""

    #: As torch names it: `NVIDIA H200`.
    name: str
    #: The word of its architecture: `sm90`.
    target: str
    multiprocessors: int
    #: Bytes of shared memory of one multiprocessor.
    shared_memory: int

    @property
    def slug(self) -> str:
        """The name as a folder."""
        return slug(self.name)


#: Devices that can be planned for without having one, as torch describes them.
DEVICES: Mapping[str, Device] = {
    device.slug: device
    for device in (
        Device("NVIDIA A100-SXM4-80GB", "sm80", 108, 167936),
        Device("NVIDIA H100 80GB HBM3", "sm90", 132, 233472),
        Device("NVIDIA H200", "sm90", 132, 233472),
    )
}

#: Products of two 16-bit numbers that one multiprocessor makes in a second, near what the library reaches on an H200;
#: other widths in proportion, fp32 without a matrix unit by the factor of an H200.
PRODUCTS = 2.6e12
_IEEE = 0.07
#: Bytes a second that one multiprocessor takes in: 64 a cycle at an H200's clock, as small tiles are held to there; and
#: the seconds that a load is under way, which hold tiles of few stages to less.
_LOADED = 1.1e11
_LATENCY = 1.4e-6


def seconds(kernel: Kernel, tile: Tile, sizes: tuple[int, ...], device: Device) -> float:
    """The seconds that `kernel` with the row `tile` takes for M, N and K on `device`, by the model of `select.j2`,
    and no fewer than its tiles take to be loaded.

    In front of the sizes stands the number of a batch's products, where there is one.

    Good for an order among rows and for telling the hopeless, not for a time to rely on.
    """
    *batch, m, n, k = sizes
    dtype = kernel.variant.dtype
    width = ELEMENTS[dtype.a].bits // 8
    tiles = math.prod(batch) * -(-m // tile.m) * -(-n // tile.n)
    turns = -(-tiles // device.multiprocessors)
    depth = tile.k * tile.stages
    columns = tile.n * kernel.variant.epilogue.columns_of_b
    # Bytes that a tile takes in for each 1 along K.
    line = (tile.m + columns) * width
    taken = line * depth + (tile.m * tile.n * 4 if staged(kernel.variant) else 0)
    resident = max(1, min(turns, device.shared_memory // taken))
    # Products of a step (a matrix unit has no fewer than 64 rows), and the latency that loads in flight hide.
    area = tile.m * max(columns, 64) if kernel.variant.product == "exchanged" else max(tile.m, 64) * columns
    products = turns * (area + 400_000 / (depth * resident))
    rate = PRODUCTS * (_IEEE if dtype.precision == "ieee" else 2 / width)
    loads = turns * line
    # While a step is multiplied its operands are still there: one stage of them is not under way.
    under_way = resident * line * tile.k * max(tile.stages - 1, 1)
    return max(k, tile.k) * max(products / rate, loads / min(_LOADED, under_way / _LATENCY))
