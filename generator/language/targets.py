"""The GPU architectures that kernels can be for, and what each has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A GPU architecture: its vendor, and the shared memory in bytes that one program may hold."""

    vendor: str
    shared_memory: int
    #: Compute capability times ten on NVIDIA, 0 on AMD.
    capability: int = 0
    #: Threads of a warp.
    lanes: int = 32
    #: Operand types that its matrix unit multiplies or that Triton converts for it.
    fp8: frozenset[str] = frozenset()
    #: Bulk tensor copies (TMA), which a descriptor compiles to.
    descriptors: bool = False
    #: Whether its matrix unit multiplies blocks of elements by their scales, and whether also those of two widths.
    scales: bool = False
    scales_mixed: bool = False


_OCP = frozenset({"fp8e4m3", "fp8e5m2"})

#: Shared memory: CUDA programming guide, "maximum amount of shared memory per thread block"; AMD ISA documents, LDS.
TARGETS: Mapping[str, Target] = {
    "sm80": Target("nvidia", 166912, 80),
    "sm86": Target("nvidia", 101376, 86),
    "sm89": Target("nvidia", 101376, 89, fp8=_OCP),
    "sm90": Target("nvidia", 232448, 90, fp8=_OCP, descriptors=True),
    "sm100": Target("nvidia", 232448, 100, fp8=_OCP, descriptors=True, scales=True, scales_mixed=True),
    "sm120": Target("nvidia", 101376, 120, fp8=_OCP, descriptors=True, scales=True),
    "gfx90a": Target("amd", 65536, lanes=64),
    "gfx942": Target("amd", 65536, lanes=64, fp8=_OCP),
    "gfx950": Target("amd", 163840, lanes=64, fp8=_OCP),
    "gfx1100": Target("amd", 65536),
    "gfx1201": Target("amd", 65536, fp8=_OCP),
}
DEFAULT_TARGETS = ("sm80", "sm90")
