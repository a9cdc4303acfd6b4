"""The family as a package: which kernels implement a contract, and in which order they are tried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from generator import prose
from generator.lines import paragraph
from generator.model import Family, Kernel, Variant
from generator.vocabulary import ELEMENTS, LOAD, MASKING, SCHEDULE, SWIZZLE

#: For each axis its words, the one that is tried first in front; words not named follow in their own order.
_PREFERRED = {
    "schedule": ("tiled", "persistent", "paired", "split_k", "stream_k", "split_k_atomic", "naive", "elementwise"),
    "load": ("descriptor", "pointer", "block_pointer"),
    "masking": ("auto", "none", "k", "mn", "mnk"),
    "swizzle": ("grouped", "grouped_n", "swizzle2d", "hilbert", "chiplet", "linear", "linear_n"),
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


def _variants(family: Family) -> dict[str, Variant]:
    """For each contract one of the variants that say what it computes."""
    return {kernel.variant.contract: kernel.variant for kernel in family.kernels}


def twins(family: Family) -> tuple[tuple[str, str], ...]:
    """For each contract those that want K contiguous in `a` or `b` where it does not, as a dictionary's entries."""
    names = _variants(family)
    found = []
    for name, variant in names.items():
        others = {
            "a": replace(variant, layout=replace(variant.layout, a="row")) if variant.layout.a == "column" else variant,
            "b": replace(variant, layout=replace(variant.layout, b="column")) if variant.layout.b == "row" else variant,
        }
        entries = [
            f'"{operand}": "{other.contract}"'
            for operand, other in others.items()
            if other != variant and other.contract in names
        ]
        if entries:
            found.append((name, ", ".join(entries)))
    return tuple(found)


def turning(family: Family, names: Iterable[str]) -> tuple[str, ...]:
    """Those contracts of `names` whose matrix unit wants K contiguous: Hopper's does for all but 16-bit elements."""
    dtypes = {name: variant.dtype for name, variant in _variants(family).items()}
    return tuple(n for n in names if dtypes[n].precision == "tf32" or ELEMENTS[dtypes[n].a].bits == 8)


def gated(family: Family) -> tuple[str, ...]:
    """The contracts whose product has two columns for each of the result."""
    return tuple(name for name, variant in _variants(family).items() if variant.epilogue.gate is not None)


def contracts(family: Family) -> tuple[Contract, ...]:
    """The contracts of a family in the order of its product, each with its kernels in the order they are tried."""
    grouped: dict[str, list[Kernel]] = {}
    for kernel in family.kernels:
        grouped.setdefault(kernel.variant.contract, []).append(kernel)
    return tuple(
        Contract(name, paragraph(prose.formula(kernels[0].variant)), tuple(k.name for k in sorted(kernels, key=_rank)))
        for name, kernels in grouped.items()
    )
