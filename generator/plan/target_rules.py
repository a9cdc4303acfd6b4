"""The rules of the legality table about targets: what one of them cannot run.

A rule yields the reasons why a target cannot run a variant, of which the first is given; a new rule is a function here
and its name in the tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from generator.language.elements import ELEMENTS, PRECISION_TARGETS
from generator.language.model import Variant
from generator.language.storage import Storage
from generator.language.targets import TARGETS
from generator.language.vocabulary import PRODUCT
from generator.plan.variant_rules import VARIANT_RULES, Reasons, first_reason

TargetRule = Callable[[Variant, str], Reasons]


def _descriptor_target(v: Variant, target: str) -> Reasons:
    if v.loading.descriptors and not TARGETS[target].descriptors:
        yield f"{target} has no bulk tensor copies; descriptors need sm90 or later"


def _element_target(v: Variant, target: str) -> Reasons:
    if missing := [word for storage in v.dtype.stored for word in _missing(storage, target)]:
        yield f"{target} does not multiply {min(missing)}"


def _missing(storage: Storage, target: str) -> list[str]:
    """The types of an operand, as it is stored and as it is multiplied, that kernels for a target cannot take."""
    element, multiplied = ELEMENTS[storage.kind], ELEMENTS[storage.multiplied]
    able = element.converted if storage.kind != storage.multiplied else element.multiplied
    # What scales the matrix unit multiplies by is a property of the target.
    able = able | element.converted if storage.native else able
    missing = [] if target in able else [storage.kind]
    return missing if storage.native or target in multiplied.multiplied else [*missing, storage.multiplied]


def _result_target(v: Variant, target: str) -> Reasons:
    # Elements of four bits, and scales of eight that are powers of two, are written as whole numbers.
    q = v.quantised
    written = [v.out] if q is None else [word for word in (q.kind, q.scale) if ELEMENTS[word].quantises]
    written = [word for word in written if q is None or ELEMENTS[word].bits > 4]
    for lacking in (word for word in written if target not in ELEMENTS[word].written):
        yield f"Triton cannot convert results to {lacking} on {target}; use int8"


def _precision_target(v: Variant, target: str) -> Reasons:
    rule = PRECISION_TARGETS.get(v.dtype.precision or "")
    if rule is not None and target not in rule.targets:
        yield rule.reason.format(target)


def _exchanged_target(v: Variant, target: str) -> Reasons:
    capability = TARGETS[target].capability
    # Scalar units, which every NVIDIA GPU has, read the left operand of fp32 faster where K is contiguous.
    scalar = v.dtype.precision == "ieee" and capability
    if v.product == "exchanged" and capability not in (90, 100) and not scalar:
        yield f"an exchanged product is for matrix instructions of 64 rows, which {target} does not have"


def _paired_target(v: Variant, target: str) -> Reasons:
    scaled = any(storage.scales_sums for storage in v.dtype.stored)
    if v.traits.pairs and scaled and TARGETS[target].capability != 90:
        yield f"several sums that are scaled step by step spill registers on {target}; use tiled or persistent"


def scaling_targets(v: Variant) -> tuple[str, ...]:
    """The targets whose matrix unit multiplies the operands as they are stored, and by their scales."""
    mixed = len({storage.bits for storage in v.dtype.stored}) > 1
    return tuple(name for name, target in TARGETS.items() if (target.scales_mixed if mixed else target.scales))


def _scaled_target(v: Variant, target: str) -> Reasons:
    if v.product != "scaled" or target in scaling_targets(v):
        return
    those = " or ".join(scaling_targets(v))
    reason = f"a scaled product of {v.dtype.a} and {v.dtype.b} needs the matrix unit of {those}"
    others = (word for word in PRODUCT if word != v.product)
    works = next((word for word in others if _runs(replace(v, product=word), target)), None)
    yield reason if works is None else f"{reason}; use 'product: {works}'"


def _runs(v: Variant, target: str) -> bool:
    return first_reason(VARIANT_RULES, v) is None and first_reason(TARGET_RULES, v, target) is None


def packed_from_sm90(v: Variant) -> str | None:
    """Why no NVIDIA GPU from sm90 on takes a product with packed operands."""
    a, b = v.dtype.stored
    if v.product != "direct" or v.traits.decodes:
        return None
    if a.packed > 1:
        # Measured with Triton 3.6.0: every element of nvfp4 by nvfp4 was wrong.
        return "an a of 4 bits that is read from registers is multiplied wrongly from sm90 on"
    if b.packed > 1 and v.loading.pointers and b.multiplied_bits == 16:
        return "unaligned rows of a packed b do not compile in a direct product from sm90 on"
    return None


def _packed_target(v: Variant, target: str) -> Reasons:
    reason = packed_from_sm90(v) if TARGETS[target].capability >= 90 else None
    if reason is None:
        return
    scaled = {"scaled": "product"} if target in scaling_targets(v) else {}
    for word, axis in {"exchanged": "product", **scaled, "decoded": "schedule", "descriptor": "load"}.items():
        other = replace(v, **{axis: word})  # type: ignore[arg-type]
        if packed_from_sm90(other) is None and _runs(other, target):
            yield f"{reason}; use '{axis}: {word}'"
    yield reason


#: What one target cannot run.
TARGET_RULES: tuple[TargetRule, ...] = (
    _descriptor_target,
    _element_target,
    _result_target,
    _precision_target,
    _exchanged_target,
    _paired_target,
    _scaled_target,
    _packed_target,
)
