"""What a variant asks of its schedule, load and order of tiles, and whether their words say that they handle it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from generator.language.features import Feature
from generator.language.model import Variant
from generator.language.vocabulary import DEFAULTS, WORDS
from generator.language.word_traits import Word
from generator.plan.resources import in_registers

#: The axes whose words say what they handle.
CLAIMING = ("schedule", "load", "swizzle")


@dataclass(frozen=True)
class Need:
    """When a variant asks for a feature, and of which axes."""

    feature: Feature
    axes: tuple[str, ...]
    asked: Callable[[Variant], bool]


def _stored(trait: Callable[..., bool]) -> Callable[[Variant], bool]:
    return lambda v: any(trait(storage) for storage in v.dtype.stored)


def _product(word: str) -> Callable[[Variant], bool]:
    return lambda v: v.product == word and v.traits.tiled


def _precise(v: Variant) -> bool:
    return v.traits.tiled and (v.dtype.acc != "fp32" or v.dtype.precision is not None)


def _strided(v: Variant) -> bool:
    """Whether the load addresses a matrix of any strides; C too where it stores."""
    layouts = (v.layout.a, v.layout.b, *[v.layout.c] * (v.store == DEFAULTS["store"]))
    return "strided" in layouts


def waits(v: Variant) -> bool:
    """Whether the matrix unit reads an operand from registers, so that a step must wait for its product."""
    return v.traits.tiled and v.traits.looped and in_registers(v.multiplied) is not None


_BOTH = ("schedule", "load")
#: In the order in which reasons are given.
NEEDS: tuple[Need, ...] = (
    Need(Feature.CONVERSIONS, _BOTH, _stored(lambda storage: storage.converted and not storage.sparse)),
    Need(Feature.SPARSITY, _BOTH, _stored(lambda storage: storage.sparse)),
    Need(Feature.SCALES, _BOTH, _stored(lambda storage: storage.block is not None)),
    Need(Feature.MIXED, _BOTH, lambda v: v.dtype.stored_a.kind != v.dtype.stored_b.kind),
    Need(Feature.PRECISIONS, ("schedule",), _precise),
    Need(Feature.GATES, _BOTH, lambda v: v.epilogue.order is not None),
    Need(Feature.EPILOGUES, _BOTH, lambda v: bool(v.chain.steps)),
    Need(Feature.OUTPUTS, _BOTH, lambda v: bool(v.epilogue.outputs)),
    Need(Feature.REDUCTIONS, _BOTH, lambda v: any(output.reduced for output in v.epilogue.outputs)),
    Need(Feature.BATCHES, _BOTH, lambda v: v.products.several and not v.products.divided),
    Need(Feature.GROUPS, _BOTH, lambda v: v.products.divided == "M"),
    Need(Feature.GROUPS_OF_K, _BOTH, lambda v: v.products.divided == "K"),
    Need(Feature.STRIDED, ("load",), _strided),
    Need(Feature.EXCHANGED, _BOTH, _product("exchanged")),
    Need(Feature.SCALED, _BOTH, _product("scaled")),
    Need(Feature.SUMMED, _BOTH, _product("summed")),
    Need(Feature.SYMMETRIC, _BOTH, lambda v: v.symmetric),
    Need(Feature.QUANTISED, _BOTH, lambda v: v.quantised is not None),
    Need(Feature.REGISTERS, _BOTH, waits),
    Need(Feature.ORDERS, ("schedule",), lambda v: v.traits.tiled and v.swizzle != DEFAULTS["swizzle"]),
    Need(Feature.BLOCKS, ("schedule",), lambda v: v.loading.blocks),
    Need(Feature.DESCRIPTORS, ("schedule",), lambda v: v.loading.descriptors),
    Need(Feature.STORES, ("schedule",), lambda v: v.store not in (DEFAULTS["store"], v.load)),
    Need(Feature.ELEMENTS, ("load",), lambda v: not v.traits.tiled),
    Need(Feature.PARTS_OF_K, ("load",), lambda v: v.traits.divides_k),
    Need(Feature.PAIRS, ("load",), lambda v: v.traits.pairs),
    Need(Feature.NUMBERED, ("swizzle",), lambda v: v.traits.tiled and (v.traits.walks or v.products.several)),
)


def asked(v: Variant) -> Iterator[Need]:
    """What `v` asks for."""
    return (need for need in NEEDS if need.asked(v))


def unclaimed(v: Variant, axis: str) -> Feature | None:
    """The first feature that `v` asks of the word of an axis, and that this does not say that it handles; or None."""
    handles = _word(v, axis).handles
    lacking = (need for need in NEEDS if axis in need.axes and need.feature not in handles)
    return next((need.feature for need in lacking if need.asked(v)), None)


def refusal(v: Variant, axis: str, feature: Feature, others: Sequence[str] = ()) -> str:
    """Why there is no kernel: the word of an axis does not handle a feature, which `others` do."""
    instead = f"; use {' or '.join(others)}" if others else ""
    return f"{axis} {v.words[axis]} handles no {feature.value}{instead}"


def others(v: Variant, axis: str) -> Iterator[Variant]:
    """The variant with other words of an axis, which handle all that is asked of them; the first rank comes first."""
    words = sorted(WORDS[axis].items(), key=lambda entry: entry[1].rank)
    names = [word for word, entry in words if word != v.words[axis]]
    changed = (replace(v, **{axis: word}) for word in names)  # type: ignore[arg-type]
    return (other for other in changed if all(unclaimed(other, each) is None for each in CLAIMING))


def _word(v: Variant, axis: str) -> Word:
    return WORDS[axis][v.words[axis]]
