"""The result of expanding a spec: a family of kernels, and what was left out of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from generator.language.measured_winners import Measured
from generator.language.model import Spec, Tile, Variant
from generator.plan.gradients import ContractGradient


@dataclass(frozen=True)
class Kernel:
    """A legal variant: its configurations, the targets that can run it, and the Triton versions that compile it."""

    variant: Variant
    tiles: tuple[Tile, ...]
    targets: tuple[str, ...]
    #: The Triton versions as a range: `>=3.6,<3.9`.
    triton: str
    select: str
    #: Target -> the indices in `tiles` of the configurations that do not fit on it.
    not_offered: tuple[tuple[str, tuple[int, ...]], ...] = ()
    #: Whether a row of the result has the same bits for any M, so that M has no part in the choice (`invariant: rows`).
    rows_alike: bool = False

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def how(self) -> str:
        """The part of the name behind the contract and `__`."""
        return self.name.partition("__")[2]


def by_contract(kernels: Iterable[Kernel]) -> dict[str, tuple[Kernel, ...]]:
    """Each contract's kernels, both in the order of `kernels`."""
    by_name: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.variant.contract, []).append(kernel)
    return {name: tuple(own) for name, own in by_name.items()}


@dataclass(frozen=True)
class LeftOut:
    """A variant, or one target or configuration of a variant, that is not rendered, and why."""

    #: The name of the variant.

    name: str
    reason: str
    target: str | None = None


@dataclass(frozen=True)
class Family:
    """The kernels of a spec in the order of the product of its axes, and what was left out."""

    spec: Spec
    #: Those of contracts that only the backward pass needs are last.
    kernels: tuple[Kernel, ...]
    left_out: tuple[LeftOut, ...]
    #: The gradients of the spec's own contracts, with `backward: kernels`.
    gradients: tuple[ContractGradient, ...] = ()
    #: Measurements of the family's contracts or of similar ones; where two differ, the first counts.
    measured: tuple[Measured, ...] = ()

    @cached_property
    def contracts(self) -> dict[str, tuple[Kernel, ...]]:
        """Each contract's kernels, both in the order of the family."""
        return by_contract(self.kernels)
