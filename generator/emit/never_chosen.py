"""The kernels of a family that its functions choose for no call on any of their targets, each with the reason.

A function runs what measurements or the analytic model choose, and else the first kernel, in the order of
`family_package.contracts`, that accepts the call. So a kernel is never chosen if no measurement names it, the model
gives an earlier kernel the same cost, and an earlier kernel accepts every call that it accepts. What is not known of a
call, such as which of two modelled times is less, counts as if the kernel could be chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from generator.cost import tuned
from generator.cost.family_costs import FamilyCosts, family_costs
from generator.emit import family_package
from generator.language.model import Tile, Variant
from generator.lowering.call_table import CallTable
from generator.lowering.kernel_lowering import view
from generator.plan.configurations import configurations
from generator.plan.devices import DEVICES, slug
from generator.plan.kernels import Family, Kernel

#: What a cost reads of a configuration.
_READ = re.compile(r'row\["(\w+)"\]')


@dataclass(frozen=True)
class NeverChosen:
    """A kernel that the function of its contract runs only by the kernel's name, and why."""

    name: str
    reason: str


def never_chosen(family: Family) -> tuple[NeverChosen, ...]:
    """The kernels of a family that its functions never choose, in the order of the family."""
    if family.spec.package == "files":
        # There are no functions.
        return ()
    by_name = {kernel.name: kernel for kernel in family.kernels}
    several = [each for each in family_package.contracts(family) if len(each.kernels) > 1]
    if not several:
        return ()
    measured = _measured(family)
    costs = family_costs(family) if family.spec.select == "fastest" else None
    reasons: dict[str, str] = {}
    for contract in several:
        kernels = [by_name[name] for name in contract.kernels]
        # The order of tiles has no part in a call.
        candidates = [_Candidate(x, *_needs(replace(x.variant, swizzle="linear"), x.tiles)) for x in kernels]
        named = measured.get(contract.name, {})
        reasons |= dict(_covered(contract.name, candidates, named, costs, family.spec.select))
    return tuple(NeverChosen(name, reasons[name]) for name in by_name if name in reasons)


@dataclass(frozen=True)
class _Candidate:
    """A kernel as the choice sees it: what it needs of a call but for the device, and of a call by a configuration."""

    kernel: Kernel
    conditions: frozenset[str]
    #: The dimensions that must be multiples of the tile, and whether one load has all of K.
    divided: frozenset[str]
    one_load: bool
    #: Whether the hardware copies A.
    described: bool

    @cached_property
    def configurations(self) -> tuple[dict[str, int], ...]:
        return configurations(self.kernel)

    def rows(self, target: str) -> list[dict[str, int]]:
        """The configurations that a target offers."""
        too_large = dict(self.kernel.not_offered).get(target, ())
        return [row for index, row in enumerate(self.configurations) if index not in too_large]

    def accepts_all_of(self, other: _Candidate, target: str, equal: frozenset[str] = frozenset()) -> bool:
        """Whether, on a target, this kernel accepts every call that another one accepts.

        With `equal`, also by a configuration with the same values of these keys as the other's.
        """
        if target not in self.kernel.targets or not self.conditions <= other.conditions:
            return False
        if not self.divided <= other.divided or (self.one_load and not other.one_load):
            return False
        own = self.rows(target)
        if not (self.divided or self.one_load or equal):
            # Any configuration takes all sizes.
            return bool(own)
        return bool(own) and all(any(self._as_wide(x, y, equal) for x in own) for y in other.rows(target))

    def _as_wide(self, own: Mapping[str, int], other: Mapping[str, int], equal: frozenset[str]) -> bool:
        """Whether a configuration takes the sizes that another one takes."""
        steps = [f"BLOCK_{dimension}" for dimension in self.divided]
        return (
            all(other[step] % own[step] == 0 for step in steps)
            and (not self.one_load or own["BLOCK_K"] >= other["BLOCK_K"])
            and all(own.get(key) == other.get(key) for key in equal)
        )


def _covered(
    contract: str,
    candidates: list[_Candidate],
    named: Mapping[str, frozenset[str]],
    costs: FamilyCosts | None,
    select: str,
) -> Iterator[tuple[str, str]]:
    """The kernels of a contract that are never chosen, each with the reason; `named` are targets of measurements."""
    known: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        kernel, earlier = candidate.kernel, dict[str, str]()
        for target in kernel.targets:
            first = known.setdefault(target, [])
            cover = next((each for each in first if each.accepts_all_of(candidate, target)), None)
            if cover is None:
                first.append(candidate)
            elif target not in named.get(kernel.how, ()) and _no_less(contract, candidate, candidates, target, costs):
                earlier[target] = cover.kernel.name
        if len(earlier) == len(kernel.targets):
            yield kernel.name, _reason(earlier, select)


def _no_less(
    contract: str, candidate: _Candidate, candidates: list[_Candidate], target: str, costs: FamilyCosts | None
) -> bool:
    """Whether the analytic model never gives a kernel less than all kernels that are tried before it."""
    if costs is None:
        return True
    how = candidate.kernel.how
    functions = {**costs.common, **costs.own.get(contract, {})}
    if how not in functions or target in costs.not_for.get(how, ()):
        return True
    body = next(each.body for each in costs.functions if each.name == functions[how])
    read = frozenset(_READ.findall("\n".join(body)))
    return any(
        functions.get(each.kernel.how) == functions[how]
        and target not in costs.not_for.get(each.kernel.how, ())
        # Of operands that are not whole, only kernels of descriptors are compared.
        and each.described >= candidate.described
        and each.accepts_all_of(candidate, target, read)
        for each in candidates[: candidates.index(candidate)]
    )


def _reason(earlier: Mapping[str, str], select: str) -> str:
    """Why a kernel is never chosen: `earlier` has, by target, the kernel that is tried before it."""
    names = {*earlier.values()}
    several = " and ".join(f"{name} on {target}" for target, name in earlier.items())
    first, accept = (f"{several} are", "accept") if len(names) > 1 else (f"{names.pop()} is", "accepts")
    why = {
        "table": "no measurement names it",
        "fastest": "no measurement names it, and the analytic model never prefers it",
    }.get(select, f"`select: {select}` does not compare kernels")
    return f"{first} tried before it and {accept} every call that it accepts; {why}"


def _measured(family: Family) -> dict[str, dict[str, frozenset[str]]]:
    """Contract -> how -> the targets on whose devices measurements may choose the kernel."""
    if not family.measured:
        return {}
    baked = tuned.bake(family)
    targets = {kernel.name: kernel.targets for kernel in family.kernels}
    sources = {(device, name): source for device, name, source in baked.like}
    entries = [(device, contract, {how for how, _ in rates}) for device, contract, rates in baked.rates]
    # A winner is of one M, which has no part in the choice where rows are alike.
    won = () if family.spec.rows_alike else baked.won
    entries += [(device, contract, {how for _, how, _ in winners}) for device, contract, winners in won]
    measured: dict[str, dict[str, set[str]]] = {}
    for contract, kernels in family.contracts.items():
        own = {kernel.how: set[str]() for kernel in kernels}
        for device, source, hows in entries:
            if source not in (contract, sources.get((device, contract))):
                continue
            target = DEVICES[slug(device)].target if slug(device) in DEVICES else None
            for how in own.keys() & hows:
                # Nothing is known of another device: it may be of any target.
                own[how].update({target} if target is not None else targets[f"{contract}__{how}"])
        measured[contract] = own
    return {contract: {how: frozenset(each) for how, each in own.items()} for contract, own in measured.items()}


@cache
def _needs(variant: Variant, tiles: tuple[Tile, ...]) -> tuple[frozenset[str], frozenset[str], bool, bool]:
    """What a kernel needs of a call: see `_Candidate`."""
    table = CallTable(view(Kernel(variant, tiles, (), "", "fixed")))
    # The targets of a kernel are those whose capability it needs.
    conditions = {each for each in (*table.needs, *table.undescribed) if not each.startswith("capability(")}
    described = any(slot.parameter == "a_desc" for launch in table.launches for slot in launch.slots)
    return frozenset(conditions), frozenset(table.divided), not table.kernel.schedule.looped, described
