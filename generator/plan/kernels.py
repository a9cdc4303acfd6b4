"""What a spec comes to: a family of kernels, and what was left out of it."""

from __future__ import annotations

from dataclasses import dataclass

from generator.language.model import Spec, Tile, Variant


@dataclass(frozen=True)
class Kernel:
    """A variant that exists: the tile rows and targets it is offered for, and the Triton versions it runs on."""

    variant: Variant
    tiles: tuple[Tile, ...]
    targets: tuple[str, ...]
    #: The versions as a range: `>=3.6,<3.9`.
    triton: str
    select: str
    #: Target -> the indices of the rows that it cannot hold.
    not_offered: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def name(self) -> str:
        return self.variant.name


@dataclass(frozen=True)
class LeftOut:
    """A variant, or a target or tile row of one, that is not rendered, and why."""

    name: str
    reason: str
    target: str | None = None


@dataclass(frozen=True)
class Family:
    """What a spec comes to: the kernels in the order of the product, and what was left out."""

    spec: Spec
    kernels: tuple[Kernel, ...]
    left_out: tuple[LeftOut, ...]
