"""The measurements of a family as its rendered source holds them: winners and rates, by kernel and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.language.model import Measured, Rates, Variant
from generator.plan.configurations import configurations
from generator.plan.kernels import Family


@dataclass(frozen=True)
class Baked:
    """The measurements of a family, as its source holds them. A configuration is an index of its kernel's `CONFIGS`.

    `how` is the part of a kernel's name after the `__`.
    """

    #: The median error of the model, as a share of the time: `5.3%`.
    error: str
    #: Contract -> the contract whose measurements are used for it.
    like: tuple[tuple[str, str], ...]
    #: Device, contract, and (M, N, K) -> how and configuration of the fastest kernel.
    won: tuple[tuple[str, str, tuple[tuple[tuple[int, ...], str, int], ...]], ...]
    #: Device, contract, and how -> configuration -> rates.
    rates: tuple[tuple[str, str, tuple[tuple[str, tuple[tuple[int, str], ...]], ...]], ...]


#: How -> the configurations of the kernel of that name.
_Tables = dict[str, tuple[dict[str, int], ...]]


def bake(family: Family) -> Baked:
    """The winners and rates of the kernels and configurations that `family` has, contract by contract."""
    tables: dict[str, _Tables] = {}
    variants: dict[str, Variant] = {}
    for kernel in family.kernels:
        contract, _, how = kernel.name.partition("__")
        tables.setdefault(contract, {})[how] = configurations(kernel)
        variants.setdefault(contract, kernel.variant)
    measured = sorted({entry.contract for found in family.spec.tuned for entry in found.fitted})
    sources = {name: source for name, variant in variants.items() if (source := _source(variant, measured))}
    like = {name: _first_like(name, sources, tables) for name in sources}
    won, rates = [], []
    for found in family.spec.tuned:
        for contract in sorted(set(like.values())):
            # The tables of all contracts that share the measurements: not every contract has every kernel.
            shared: _Tables = {}
            for name, first in like.items():
                shared |= tables[name] if first == contract else {}
            winners = [
                (w.sizes, w.how, index)
                for w in found.winners
                if w.contract == sources[contract] and (index := _index(shared.get(w.how, ()), w.row)) is not None
            ]
            if winners:
                won.append((found.device, contract, tuple(sorted(winners))))
            fitted = tuple(_fitted(found, sources[contract], shared))
            if fitted:
                rates.append((found.device, contract, fitted))
    error = max((found.error for found in family.spec.tuned), default=0.0)
    return Baked(f"{error:.1%}", tuple((a, b) for a, b in like.items() if a != b), tuple(won), tuple(rates))


def _first_like(name: str, sources: Mapping[str, str], tables: Mapping[str, _Tables]) -> str:
    """The first contract with the same measurements whose kernels have the same configurations as those of `name`."""
    own = tables[name]
    return next(
        other
        for other, source in sources.items()
        if source == sources[name] and all(own[how] == table for how, table in tables[other].items() if how in own)
    )


def _source(variant: Variant, measured: Sequence[str]) -> str | None:
    """The measured contract to use for `variant`: its own, or the plain product of its layout and element widths."""
    words = variant.words
    prefix = "gemm" if variant.batch == "none" else "bmm"
    same_width = {"fp16": "bf16", "bf16": "fp16"}.get(words["dtype"], words["dtype"])
    if variant.epilogue.order is not None:
        # A plain product has one column of B for each column of C, and other configurations.
        return variant.contract if variant.contract in measured else None
    plain = [f"{prefix}_{dtype}_{words['layout']}_none" for dtype in (words["dtype"], same_width)]
    return next((name for name in (variant.contract, *plain) if name in measured), None)


def _fitted(found: Measured, contract: str, tables: _Tables) -> Iterator[tuple[str, tuple[tuple[int, str], ...]]]:
    """For each kernel of `tables` with rates its how, and the index and rates of each configuration."""
    for how in sorted({entry.how for entry in found.fitted if entry.contract == contract}):
        entries = sorted(
            (index, _literal(entry.rates))
            for entry in found.fitted
            if entry.contract == contract and entry.how == how
            if (index := _index(tables.get(how, ()), entry.row)) is not None
        )
        if entries:
            yield how, tuple(entries)


def _literal(rates: Rates) -> str:
    """The rates as a Python tuple."""
    first, *others = rates
    return f"({int(first)}, {', '.join(f'{value:.4g}'.replace('e+', 'e') for value in others)})"


def _index(table: Sequence[Mapping[str, int]], configuration: Mapping[str, int]) -> int | None:
    """The index of the configuration in a kernel's table; None if the table does not have it."""
    return next((index for index, own in enumerate(table) if own == configuration), None)
