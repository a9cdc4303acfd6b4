"""The GPU architectures that kernels can be for, and what each has.

The types that each multiplies are in the records of types (`elements.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A GPU architecture: its vendor, and the shared memory in bytes that one program may hold."""

    vendor: str
    shared_memory: int
    #: The kind of its matrix instructions, on which the shared memory of a program depends: the first target with them
    #: on NVIDIA, and on AMD what the names of the targets begin with.
    kind: str
    #: Compute capability times ten on NVIDIA, 0 on AMD.
    capability: int = 0
    #: Threads of a warp.
    lanes: int = 32
    #: Bulk tensor copies (TMA), which a descriptor compiles to.
    descriptors: bool = False
    #: Whether its matrix unit multiplies blocks of elements by their scales, and whether also those of two widths.
    scales: bool = False
    scales_mixed: bool = False


#: Shared memory: CUDA programming guide, "maximum amount of shared memory per thread block"; AMD ISA documents, LDS.
TARGETS: Mapping[str, Target] = {
    "sm80": Target("nvidia", 166912, "sm80", 80),
    "sm86": Target("nvidia", 101376, "sm80", 86),
    "sm89": Target("nvidia", 101376, "sm80", 89),
    "sm90": Target("nvidia", 232448, "sm90", 90, descriptors=True),
    "sm100": Target("nvidia", 232448, "sm100", 100, descriptors=True, scales=True, scales_mixed=True),
    "sm120": Target("nvidia", 101376, "sm80", 120, descriptors=True, scales=True),
    "gfx90a": Target("amd", 65536, "gfx9", lanes=64),
    "gfx942": Target("amd", 65536, "gfx9", lanes=64),
    "gfx950": Target("amd", 163840, "gfx9", lanes=64),
    "gfx1100": Target("amd", 65536, "gfx1"),
    "gfx1201": Target("amd", 65536, "gfx1"),
}
DEFAULT_TARGETS = ("sm80", "sm90")
