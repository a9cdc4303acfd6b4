"""Measured winners as a family's source holds them, each with the kernel and the configuration that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.language.model import Measured, Rates, Variant
from generator.plan.configurations import configurations
from generator.plan.kernels import Family


@dataclass(frozen=True)
class Baked:
    """What of the measurements concerns a family, as its source holds it."""

    #: The model's error at the median, as a share of the time.
    error: str
    #: Contract -> the contract whose measurements stand for it.
    like: tuple[tuple[str, str], ...]
    #: Device, contract, and (M, N, K) -> how, row.
    won: tuple[tuple[str, str, tuple[tuple[tuple[int, ...], str, int], ...]], ...]
    #: Device, contract, and how -> row -> rates.
    rates: tuple[tuple[str, str, tuple[tuple[str, tuple[tuple[int, str], ...]], ...]], ...]


#: The parts of a kernel's name that say how, and the rows of its table.
_Tables = dict[str, tuple[dict[str, int], ...]]


def bake(family: Family) -> Baked:
    """The winners and rates that name a kernel and a row of the family's own, contract by contract."""
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
            # Together those of contracts that are alike: not each has every kernel.
            known: _Tables = {}
            for name, first in like.items():
                known |= tables[name] if first == contract else {}
            winners = [
                (w.sizes, w.how, row)
                for w in found.winners
                if w.contract == sources[contract] and (row := _index(known.get(w.how, ()), w.row)) is not None
            ]
            if winners:
                won.append((found.device, contract, tuple(sorted(winners))))
            fitted = tuple(_fitted(found, sources[contract], known))
            if fitted:
                rates.append((found.device, contract, fitted))
    error = max((found.error for found in family.spec.tuned), default=0.0)
    return Baked(f"{error:.1%}", tuple((a, b) for a, b in like.items() if a != b), tuple(won), tuple(rates))


def _first_like(name: str, sources: Mapping[str, str], tables: Mapping[str, _Tables]) -> str:
    """The family's first contract of the same measurements whose kernels have the same rows as those of `name`."""
    own = tables[name]
    return next(
        other
        for other, source in sources.items()
        if source == sources[name] and all(own[how] == rows for how, rows in tables[other].items() if how in own)
    )


def _source(variant: Variant, measured: Sequence[str]) -> str | None:
    """The contract measured that stands for `variant`'s: itself, or the plain product of its layout and widths."""
    words = variant.words
    kind = "gemm" if variant.batch == "none" else "bmm"
    same_width = {"fp16": "bf16", "bf16": "fp16"}.get(words["dtype"], words["dtype"])
    if variant.epilogue.order is not None:
        # A plain product has one column of B for each of C, and other rows.
        return variant.contract if variant.contract in measured else None
    plain = [f"{kind}_{dtype}_{words['layout']}_none" for dtype in (words["dtype"], same_width)]
    return next((name for name in (variant.contract, *plain) if name in measured), None)


def _fitted(found: Measured, contract: str, known: _Tables) -> Iterator[tuple[str, tuple[tuple[int, str], ...]]]:
    for how in sorted({entry.how for entry in found.fitted if entry.contract == contract}):
        rows = sorted(
            (row, _spelled(entry.rates))
            for entry in found.fitted
            if entry.contract == contract and entry.how == how
            if (row := _index(known.get(how, ()), entry.row)) is not None
        )
        if rows:
            yield how, tuple(rows)


def _spelled(rates: Rates) -> str:
    first, *others = rates
    return f"({int(first)}, {', '.join(f'{value:.4g}'.replace('e+', 'e') for value in others)})"


def _index(rows: Sequence[Mapping[str, int]], row: Mapping[str, int]) -> int | None:
    """The index of the row in a kernel's table, None where it has none like it."""
    return next((index for index, own in enumerate(rows) if own == row), None)
