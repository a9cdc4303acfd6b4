"""The measurements of a family as its rendered source holds them: winners and rates, by kernel and configuration."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from generator.language.errors import nearest
from generator.language.measured_winners import Measured, Rates, Winner
from generator.language.model import Variant
from generator.plan.configurations import configurations, row_of_tile
from generator.plan.devices import DEVICES, Device, slug
from generator.plan.kernels import Family, Kernel
from generator.plan.portfolio import SHIPPED, adapted, entries, halves, similar, similar_chains, tile_of, widened
from generator.plan.resources import scaled_in_turn, serialised

#: Sizes -> how and configuration of the fastest kernel.
_Winners: TypeAlias = dict[tuple[int, ...], tuple[str, int]]
#: Rates that were fitted to fewer sizes of a contract than this count only if no similar contract has others.
_SIZES = 8


@dataclass(frozen=True)
class Baked:
    """The measurements of a family, as its source holds them. A configuration is an index of its kernel's `CONFIGS`.

    `how` is the part of a kernel's name after the `__`.
    """

    #: The median error of the model, as a share of the time: `5.3%`.
    error: str
    #: Device, contract, and the contract whose measurements on that device are used for it.
    like: tuple[tuple[str, str, str], ...]
    #: Device, contract, and (M, N, K) -> how and configuration of the fastest kernel.
    won: tuple[tuple[str, str, tuple[tuple[tuple[int, ...], str, int], ...]], ...]
    #: Device, contract, and how -> configuration -> rates.
    rates: tuple[tuple[str, str, tuple[tuple[str, tuple[tuple[int, str], ...]], ...]], ...]
    #: The measured devices with known figures.
    devices: tuple[Device, ...] = ()


@dataclass
class _Contract:
    """One contract of a family: its kernels, and the contracts that measurements of it may come from."""

    variant: Variant
    targets: tuple[str, ...]
    kernels: Mapping[str, Kernel]

    @cached_property
    def similar(self) -> tuple[str, ...]:
        products, names = self.variant.products, tuple(similar(self.variant))
        # Each group of K has a result, whose writing takes most of the time: one product says nothing of it.
        return tuple(x for x in names if products.divided != "K" or x.startswith(f"{products.prefix}_"))

    @cached_property
    def tables(self) -> dict[str, tuple[dict[str, int], ...]]:
        return {how: configurations(kernel) for how, kernel in self.kernels.items()}

    def index(self, contract: str, how: str, row: Mapping[str, int]) -> int | None:
        """The index of a configuration that was measured with a kernel of `contract`; None if the family lacks it.

        None as well for a kernel of a gate that takes another time than that of a plain product, which was measured, or
        than that of one product, if its programs walk the tiles of groups.
        """
        table, half = self.tables.get(how, ()), halves(self.variant, contract)
        products = self.variant.products
        apart = half or (products.divided and not contract.startswith(f"{products.prefix}_"))
        variant = self.kernels[how].variant if how in self.kernels else None
        if variant is None or (apart and serialised(variant)) or (half and scaled_in_turn(variant)):
            return None
        if row in table and not half:
            return table.index(dict(row))
        try:
            tile = tile_of(variant, row)
        except KeyError:
            return None
        # A tile of more columns takes another time.
        row_index = row_of_tile(variant, adapted(variant, contract, tile, self.targets))
        return table.index(row_index) if row_index in table and not widened(variant, contract, tile) else None


def bake(family: Family) -> Baked:
    """The winners and rates of the kernels and configurations that `family` has, by device and contract."""
    contracts = _contracts(family)
    by_device: dict[str, list[Measured]] = {}
    for one in family.measured:
        by_device.setdefault(one.device, []).append(one)
    like, won, rates, errors = [], [], [], [0.0]
    for device, measured in by_device.items():
        groups, own = _groups(contracts, measured)
        tables = {
            names[0]: _tables([contracts[name] for name in names], sources, measured) for sources, names in groups
        }
        used = {source for sources, names in groups if tables[names[0]][1] for source in sources}
        errors += [each.error for each in measured if any(entry.contract in used for entry in each.fitted)]
        alike = [(device, other, first) for _, (first, *others) in groups for other in others]
        like += sorted(alike, key=lambda entry: list(contracts).index(entry[1]))
        for name in sorted(contracts):
            shared, rows = tables.get(name, ({}, {}))
            # Winners of the contract itself come before those of the contract that stands for it.
            winners = {**shared, **own.get(name, {})}
            if winners:
                won.append((device, name, tuple((sizes, *row) for sizes, row in sorted(winners.items()))))
            if rows:
                rates.append((device, name, tuple((how, tuple(sorted(rows[how].items()))) for how in sorted(rows))))
    entered = {device for device, _, _ in (*won, *rates)}
    devices = tuple(DEVICES[slug(name)] for name in by_device if name in entered and slug(name) in DEVICES)
    return Baked(f"{max(errors):.1%}", tuple(like), tuple(won), tuple(rates), devices)


def _groups(
    contracts: Mapping[str, _Contract], measured: Sequence[Measured]
) -> tuple[list[tuple[tuple[str, ...], list[str]]], dict[str, _Winners]]:
    """The contracts that share measurements of one device, after the contracts that these are of; and own winners.

    They have equal configurations of the kernels that they share, and their tables the name of the first. The winners
    are of each contract that was measured and whose rates are those of another contract.
    """
    known = {name for name, _, _ in entries(measured)}
    sources = {name: _sources(contract, measured) for name, contract in contracts.items()}
    others = {name: contract for name, contract in contracts.items() if name not in sources[name]}
    own = {name: _winners(contract, name, measured) for name, contract in others.items()}
    groups: list[tuple[tuple[str, ...], list[str]]] = []
    # A contract with winners of its own is the first of no group: they do not hold for other contracts.
    for name in sorted(contracts, key=lambda name: bool(own.get(name))):
        if known.intersection(sources[name]):
            for those, names in groups:
                first, tables = contracts[names[0]].tables, contracts[name].tables
                if those == sources[name] and all(first.get(how, rows) == rows for how, rows in tables.items()):
                    names.append(name)
                    break
            else:
                groups.append((sources[name], [name]))
    return groups, own


def _tables(
    contracts: Sequence[_Contract], sources: Sequence[str], measured: Sequence[Measured]
) -> tuple[_Winners, dict[str, dict[int, str]]]:
    """The winners and the rates of contracts that share them; the first contract, and the first source, counts."""
    won: _Winners = {}
    rates: dict[str, dict[int, str]] = {}
    for contract in reversed(contracts):
        own: dict[str, dict[int, str]] = {}
        for source in reversed(sources):
            won |= _winners(contract, source, measured)
            # The first source that has rates of a kernel has those of all its configurations.
            own |= _rates(contract, source, measured)
        rates = {how: {**rates.get(how, {}), **own.get(how, {})} for how in (*rates, *own)}
    return won, rates


def left_out(family: Family) -> Iterator[tuple[str, str]]:
    """The files of the spec of which something does not enter the family, each with what does not and why.

    Files that the package ships are omitted: they are of more kernels than a spec may have.
    """
    if not family.spec.tuned:
        return
    contracts = _contracts(family)
    others = {name for contract in contracts.values() for name in contract.similar}
    for measured in family.spec.tuned:
        everything = list(entries([measured]))
        if SHIPPED and (family.spec.path.parent / str(measured.file)).resolve().is_relative_to(SHIPPED):
            continue
        unfit: dict[tuple[str, str], list[str]] = {}
        fit: list[Winner] = []
        for winner in measured.winners:
            if winner.contract in contracts and (reason := _why_unfit(contracts[winner.contract], winner)):
                unfit.setdefault((winner.contract, reason), []).append("x".join(map(str, winner.sizes)))
            else:
                fit.append(winner)
        for (name, reason), sizes in unfit.items():
            listed = ", ".join(sizes[:3]) + (f" and {len(sizes) - 3} more" if len(sizes) > 3 else "")
            yield str(measured.file), f"winner of {name} at {listed} does not enter the family: {reason}"
        own = [entry for entry in entries([replace(measured, winners=tuple(fit))]) if entry[0] in contracts]
        lacking = Counter(how for name, how, row in own if contracts[name].index(name, how, row) is None)
        if lacking:
            which = ", ".join(f"{how} ({count})" for how, count in sorted(lacking.items()))
            total = f"{lacking.total()} of the {len(own)} winners and rates of its contracts do not enter the family"
            yield str(measured.file), f"{total}, which lacks the kernels or configurations: {which}"
        elif not any(name in others for name, _, _ in everything):
            yield str(measured.file), "has nothing of the contracts of this family, nor of similar ones"
        if family.spec.rows_alike and measured.winners:
            yield str(measured.file), "has winners, each of one M, which are not used with `invariant: rows`"


def _why_unfit(contract: _Contract, winner: Winner) -> str | None:
    """Why no kernel of its contract can have the winner, or None: its sizes, or keys of its configuration."""
    several = contract.variant.products.several
    if len(winner.sizes) != 3 + several:
        return "`batch`, the number of products or groups, is missing" if several else "one product has no `batch`"
    legal = dict.fromkeys(key for table in contract.tables.values() for row in table for key in row)
    hints = {key: nearest(key, legal).partition("legal: ")[0].strip() for key in winner.row if key not in legal}
    listed = ", ".join(f"{key!r} ({hint})" if hint else repr(key) for key, hint in hints.items())
    return f"no kernel has the keys {listed}; legal: {', '.join(legal)}" if hints else None


def _contracts(family: Family) -> dict[str, _Contract]:
    return {
        name: _Contract(kernels[0].variant, family.spec.targets, {kernel.how: kernel for kernel in kernels})
        for name, kernels in family.contracts.items()
    }


def _sources(contract: _Contract, measured: Sequence[Measured]) -> tuple[str, ...]:
    """The contracts whose measurements are used for another: the most similar one with rates from enough sizes.

    If there is none, the most similar one with rates, or with winners; if there is none, the contract itself. In front
    of another contract comes one with a similar chain, if there is one with rates from enough sizes: the former then
    counts for the kernels that the latter was not measured with.
    """
    sizes = Counter(name for name, _ in {(each.contract, each.sizes) for file in measured for each in file.winners})
    rated = {entry.contract for file in measured for entry in file.fitted}
    enough = {name for name in rated if sizes[name] >= _SIZES}
    some = (name for those in (enough, rated, sizes) for name in contract.similar if name in those)
    own = contract.variant.contract
    source = next(some, own)
    chains = (name for name in similar_chains(contract.variant) if name in enough)
    return (*itertools.islice(chains, source != own), source)


def _winners(contract: _Contract, source: str, measured: Sequence[Measured]) -> _Winners:
    """Sizes -> how and configuration of the winner; of several files, the first counts.

    Those of a contract with another number of sizes, of one product for a batch, are of no use.
    """
    winners: _Winners = {}
    several = bool(contract.variant.products.several)
    for winner in (winner for each in measured for winner in each.winners if winner.contract == source):
        *before, columns, k = winner.sizes
        sizes = (*before, columns // 2 if halves(contract.variant, source) else columns, k)
        if sizes not in winners and len(sizes) == 3 + several:
            index = contract.index(source, winner.how, winner.row)
            if index is not None:
                winners[sizes] = winner.how, index
    return winners


def _rates(contract: _Contract, source: str, measured: Sequence[Measured]) -> dict[str, dict[int, str]]:
    """How -> configuration -> rates; of several files, the first counts."""
    rates: dict[str, dict[int, str]] = {}
    for entry in (entry for each in measured for entry in each.fitted if entry.contract == source):
        index = contract.index(source, entry.how, entry.row)
        if index is not None:
            rates.setdefault(entry.how, {}).setdefault(index, _literal(entry.rates))
    return rates


def _literal(rates: Rates) -> str:
    """The rates as a Python tuple."""
    first, *others = rates
    return f"({int(first)}, {', '.join(f'{value:.4g}'.replace('e+', 'e') for value in others)})"
