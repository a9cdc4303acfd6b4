"""The family as a package: which kernels implement a contract, and in which order they are tried."""

from __future__ import annotations

from dataclasses import dataclass

from generator import prose
from generator.model import Family, Kernel
from generator.vocabulary import LOAD, MASKING, SCHEDULE, SWIZZLE

#: For each axis its words, the one that is tried first in front; words not named follow in their own order.
_PREFERRED = {
    "schedule": ("persistent", "tiled", "split_k", "stream_k", "split_k_atomic", "naive", "elementwise"),
    "load": ("descriptor", "pointer", "block_pointer"),
    "masking": ("auto", "none", "k", "mn", "mnk"),
    "swizzle": ("grouped", "grouped_n", "swizzle2d", "linear", "linear_n"),
}
_WORDS = {"schedule": SCHEDULE, "load": LOAD, "masking": MASKING, "swizzle": SWIZZLE}


@dataclass(frozen=True)
class Contract:
    """One function of a family's package: its name, formula, and its kernels, the first that accepts being run."""

    name: str
    formula: str
    kernels: tuple[str, ...]


def _rank(kernel: Kernel) -> tuple[int, ...]:
    ranks = []
    for axis, first in _PREFERRED.items():
        order = [*first, *(word for word in _WORDS[axis] if word not in first)]
        ranks.append(order.index(kernel.variant.word(axis)))
    return (*ranks, 0 if kernel.variant.store == "as_load" else 1)


def contracts(family: Family) -> tuple[Contract, ...]:
    """The contracts of a family in the order of its product, each with its kernels in the order they are tried."""
    grouped: dict[str, list[Kernel]] = {}
    for kernel in family.kernels:
        grouped.setdefault(kernel.variant.contract, []).append(kernel)
    return tuple(
        Contract(name, prose.formula(kernels[0].variant), tuple(k.name for k in sorted(kernels, key=_rank)))
        for name, kernels in grouped.items()
    )
