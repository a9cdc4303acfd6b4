"""The analytic cost model of a family, as a file of the family holds it: a function for each way to count the cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from generator.cost import analytic
from generator.language.model import Variant
from generator.language.targets import TARGETS
from generator.language.vocabulary import DEFAULTS, SPLIT_K
from generator.plan import legality
from generator.plan.kernels import Family
from generator.plan.shared_memory import staged


@dataclass(frozen=True)
class CostFunction:
    """A function of a configuration, the sizes and the device's figures: its name, what it is for, and its lines."""

    name: str
    summary: str
    body: tuple[str, ...]


@dataclass(frozen=True)
class FamilyCosts:
    """The functions of a family, each once, and which one a kernel has.

    A kernel is known by its contract and by the part of its name after the `__`. Kernels without tiles have no cost.
    """

    functions: tuple[CostFunction, ...]
    #: Whether the functions read the number of products in a batch.
    batched: bool
    #: Kernel -> name of the function in most contracts.
    common: Mapping[str, str]
    #: Contract -> kernel -> name of the function, where it is another one.
    own: Mapping[str, Mapping[str, str]]
    #: Kernel -> the targets for which it is illegal in every contract. Those that need descriptors are omitted: they
    #: refuse the operands on other devices.
    not_for: Mapping[str, Sequence[str]]


def family_costs(family: Family) -> FamilyCosts:
    """The functions that the kernels of `family` need."""
    functions: dict[str, CostFunction] = {}
    contracts: dict[str, dict[str, str]] = {}
    illegal: dict[str, set[str]] = {}
    batched = False
    for kernel in family.kernels:
        v = kernel.variant
        if not v.traits.tiled:
            continue
        if family.spec.rows_alike:
            # The choice is the same for any number of products, too.
            v = replace(v, batch=DEFAULTS["batch"])
        batched = batched or v.products.several
        function, how = _function(v), kernel.how
        functions.setdefault(function.name, function)
        contracts.setdefault(kernel.variant.contract, {})[how] = function.name
        if not v.loading.descriptors:
            refused = {target for target in TARGETS if legality.why_not_on(v, target) is not None}
            illegal[how] = illegal.get(how, refused) & refused
    common = {
        how: Counter(kernels[how] for kernels in contracts.values() if how in kernels).most_common(1)[0][0]
        for how in dict.fromkeys(how for kernels in contracts.values() for how in kernels)
    }
    own = {
        contract: {how: name for how, name in kernels.items() if name != common[how]}
        for contract, kernels in contracts.items()
        if not kernels.items() <= common.items()
    }
    not_for = {how: sorted(targets) for how, targets in illegal.items() if targets}
    return FamilyCosts(tuple(functions.values()), batched, common, own, not_for)


def _function(v: Variant) -> CostFunction:
    """The function for a variant; variants with equal lines have the same name."""
    words = list(_words(v))
    name = "_".join(("", *(word for word, _ in words)))
    kind, *details = (text for _, text in words)
    return CostFunction(name, f"{kind}: {', '.join(details)}.", analytic.comparable_body(v))


def _words(v: Variant) -> Iterator[tuple[str, str]]:
    """What the lines of the cost of a variant depend on, each as a word of a name and as text."""
    # The blocks of a tile cost what the tile costs.
    schedule = SPLIT_K if v.traits.pairs else v.schedule
    several = (schedule, f"Tiles of several programs ({schedule})")
    yield several if v.traits.divides_k else ("tiles", "Tiles of one program each")
    if v.products.several:
        yield "batched", "batched"
    if v.epilogue.order is not None:
        yield "gated", "gated"
    if v.product == "summed" or (v.product != DEFAULTS["product"] and v.dtype.precision != "ieee"):
        yield ("native", "scaled by the matrix unit") if v.dtype.native else (v.product, v.product)
    bits = v.dtype.stored_a.bits
    if v.dtype.precision == "ieee":
        yield "ieee", f"{bits}-bit IEEE elements"
        if analytic.by_column(v.multiplied):
            yield "columns", "K contiguous on the right"
    else:
        yield f"{bits}bit", f"{bits}-bit elements"
    b = v.dtype.stored_b
    if b.converted:
        yield f"{b.bits}bit_b", f"B of {b.bits} bits, converted"
    if v.traits.decodes:
        yield "decoded", "before the tiles are computed"
    if any(storage.scales_sums for storage in v.multiplied.dtype.stored):
        yield "scaled", "sums of steps scaled"
    if staged(v):
        yield "staged", "staged result"
