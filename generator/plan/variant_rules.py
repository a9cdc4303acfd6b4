"""The rules of the legality table about variants: what cannot exist at all, or with `invariant: rows`.

A rule yields the reasons why it forbids a variant, of which the first is given: what stands behind a reason is not
looked at where that holds. A new rule is a function here and its name in the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.operations import ELEMENT, MATRIX, ROWS, SCALAR
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.features import Feature
from generator.language.model import Variant
from generator.language.vocabulary import MASKING
from generator.plan import claims
from generator.plan.resources import SHORTEST_COPY, copies_too_little, shallowest

#: File systems allow 255 bytes; `.py` and the suffix of a temporary file need some of them.
_LONGEST_NAME = 240

#: What ends each reason why a variant cannot have `invariant: rows`.
WITH_ROWS = "with 'invariant: rows'"

Reasons = Iterator[str]
VariantRule = Callable[[Variant], Reasons]


def first_reason(rules: Iterable[Callable[..., Reasons]], *of: Any) -> str | None:
    """The first reason that one of the rules gives for a variant, or for a variant and a target; None without one."""
    return next((reason for rule in rules for reason in rule(*of)), None)


def ragged(masking: str) -> dict[str, bool | None]:
    """Whether each of m, n and k is masked: True always, False never, None if the call decides."""
    dimensions = MASKING[masking].ragged
    return {d: None if dimensions is None else d in dimensions for d in "mnk"}


def _first_reduction(v: Variant) -> str | None:
    """The first operation of the epilogue that reduces rows or columns, or None."""
    return next((step.operation for step in v.epilogue.steps if step.output and step.output.reduced), None)


def _elements(v: Variant) -> Reasons:
    if not v.traits.tiled and not v.loading.pointers:
        yield f"{v.schedule} loads single elements, which {v.load} cannot address; use 'load: pointer'"
    if not v.traits.tiled and v.dtype.precision in ("tf32", "tf32x3", "fast"):
        yield f"{v.dtype.precision} is a mode of the matrix unit, which {v.schedule} does not use; use tiled"


def _descriptors(v: Variant) -> Reasons:
    if not v.loading.descriptors:
        return
    if v.masking not in ("mnk", "auto"):
        yield f"the hardware bounds descriptor accesses, so 'masking: {v.masking}' has no effect; use mnk or auto"
    if "strided" in (v.layout.a, v.layout.b):
        yield "a descriptor needs an inner stride of 1, which a strided A or B need not have; use 'load: pointer'"
    if v.layout.c == "strided" and v.store == "as_load":
        yield "a descriptor cannot write a strided C; use 'store: pointer'"
    matrices = [operand.name for operand in v.epilogue.operands if operand.shape == MATRIX]
    matrices += [output.name for output in v.epilogue.outputs if output.shape == MATRIX]
    matrices += ["C"] if v.epilogue.reads_out else []
    if v.traits.walks_tiles and v.store == "as_load" and matrices:
        yield f"a tile of {matrices[0]} would need shared memory beside the loads in flight; use 'store: pointer'"


def _integer_output(v: Variant) -> Reasons:
    out = v.dtype.out
    # A quantised result is made of fp32, and rounds nothing to `dtype.out`.
    kept = v.quantised is None or any(not output.reduced for output in v.epilogue.outputs)
    whole = not ELEMENTS[out].floating and out not in QUANTISED and kept
    if whole and not v.exact and not all(step.keeps_integers(exact=False) for step in v.epilogue.steps):
        yield (
            f"the epilogue is computed in fp32, and no rounding back to {out} is defined; give dtype.out a float type, "
            "or add and bound alone, which is exact: 'bias', 'add', 'accumulate' with 'beta: 1', 'relu', 'clamp'"
        )


def _elementwise_reduction(v: Variant) -> Reasons:
    reduction = _first_reduction(v)
    if not v.traits.tiled and reduction:
        yield f"{reduction} is reduced tile by tile, and {v.schedule} has no tiles; use tiled"
    if v.traits.pairs and not v.traits.joins and reduction:
        yield f"{reduction} is reduced tile by tile, and a tile of {v.schedule} has several accumulators; use tiled"


def _batch_schedule(v: Variant) -> Reasons:
    if v.products.several and not v.products.divided and v.traits.divides_k:
        yield f"{v.schedule} divides the K of a single product, not those of a batch; use tiled"


def _groups(v: Variant) -> Reasons:
    if not v.products.divided:
        return
    divided = v.products.divided.lower()
    if not (v.traits.tiled and v.traits.looped) or v.traits.divides_k:
        yield f"{v.schedule} has no kernel for groups, whose sizes only the device knows; use tiled or persistent"
    if ragged(v.masking)[divided] is False:
        needed = "mn, mnk or auto" if divided == "m" else "k, mnk or auto"
        yield f"groups have any sizes, and 'masking: {v.masking}' needs multiples of the tile; use {needed}"
    if v.loading.blocks:
        yield "block pointers are not made for groups; use pointer or descriptor"
    if divided == "k" and not v.dtype.plain:
        yield f"operands that are stored as {v.dtype.word} have scales along K, which groups would divide"
    if v.loading.descriptors and divided == "k" and (v.layout.a, v.layout.b) != ("column", "row"):
        yield "a descriptor reads contiguous elements along K from multiples of 16 bytes on only; use 'load: pointer'"
    if v.loading.descriptors and v.layout.a == "column" and divided == "m":
        yield "a descriptor reads rows of a column-major A from multiples of 16 bytes on only; use 'load: pointer'"
    if v.loading.descriptors and v.store == "as_load" and divided == "m":
        yield "a descriptor's store past the end of a group would write rows of the next one; use 'store: pointer'"
    reduction = _first_reduction(v)
    if reduction:
        yield f"{reduction} would be reduced over tiles whose number only the device knows; compute it from the result"
    if any(storage.letter == "a" and storage.block and storage.block.across > 1 for storage in v.dtype.stored):
        yield "a scale of several rows of a would be shared by groups; give each row its own"


def _atomic_result(v: Variant) -> Reasons:
    if v.traits.repeatable:
        return
    if v.epilogue.steps:
        yield "each partial sum is added to the result separately, and an epilogue needs the whole sum; use split_k"
    if v.dtype.out != "fp32":
        yield f"partial sums are added in the result's type, and {v.dtype.out} rounds each addition; use split_k"
    if not ELEMENTS[v.dtype.sum].floating:
        yield f"partial sums are added in the result's type, and fp32 rounds {v.dtype.sum} sums; use split_k"
    if not v.loading.pointers and v.store == "as_load":
        yield f"{v.load} has no atomic add; use 'store: pointer'"


def _paired(v: Variant) -> Reasons:
    if not v.traits.pairs:
        return
    if v.loading.descriptors and v.store != "pointer" and not v.traits.joins:
        yield f"{v.schedule} stores through pointers only; use 'store: pointer'"
    if v.dtype.precision == "ieee":
        yield "fp32 without tf32 holds operands in registers, which are too few for two products; use tiled"


def _gate_load(v: Variant) -> Reasons:
    if v.epilogue.order is not None and v.loading.blocks:
        yield "block pointers cannot load the two columns of B of a gated linear unit; use pointer or descriptor"


def _rounding_to(v: Variant) -> Reasons:
    if v.rounding == "torch" and (v.dtype.out in QUANTISED or not ELEMENTS[v.dtype.out].floating):
        yield f"eager torch rounds no operation to {v.dtype.out}; use 'rounding: late', or give dtype.out fp16 or bf16"


def _claims(v: Variant) -> Reasons:
    """What a word does not say that it handles; rules that know a reason of their own come before."""
    for axis in claims.CLAIMING:
        feature = claims.unclaimed(v, axis)
        if feature is not None:
            legal = (other for other in claims.others(v, axis) if first_reason(VARIANT_RULES, other) is None)
            yield claims.refusal(v, axis, feature, [other.words[axis] for other in islice(legal, 2)])


def _name_length(v: Variant) -> Reasons:
    if len(v.name) > _LONGEST_NAME:
        yield f"its name has {len(v.name)} characters, and {_LONGEST_NAME} are allowed; shorten the epilogue"


def _stored(v: Variant) -> Reasons:
    if v.dtype.plain:
        return
    t = v.traits
    native = any(storage.native for storage in v.dtype.stored)
    if not (t.tiled and t.looped) or (t.pairs and native) or not t.repeatable:
        yield f"{v.schedule} takes no operands that are stored as {v.dtype.word}; use tiled, persistent or split_k"
    if t.side == "n" and v.dtype.sparse and v.product == "direct":
        yield "Triton cannot lay out several widths of a b among zeros in shared memory; use 'product: exchanged'"
    if v.loading.blocks:
        yield f"block pointers take no operands that are stored as {v.dtype.word}; use pointer or descriptor"
    b = v.dtype.stored_b
    if v.product == "exchanged" and b.converted and b.multiplied_bits == 8:
        yield (
            f"an exchanged product has a converted b in registers, from where sm90 multiplies {b.multiplied} wrongly; "
            "use 'product: direct'"
        )
    for storage in v.dtype.stored:
        least = max(shallowest(v), storage.together)
        if storage.scaled_by_step and storage.block is not None and storage.block.along % least:
            many = f"{storage.block.along} elements along K"
            yield f"a scale of {storage.letter} is for {many}, and a step needs a multiple of {least}"
        if storage.block is not None and storage.scaled_by_step and copies_too_little(v, storage, storage.block.along):
            yield f"a descriptor copies at least {SHORTEST_COPY} bytes of a row, and a scale is for fewer; use pointer"


def _products(v: Variant) -> Reasons:
    for storage in v.dtype.stored if v.product == "scaled" else ():
        if storage.word not in FORMATS:
            formats = f"formats that have scales ({', '.join(FORMATS)})"
            stored = f"{storage.letter} is stored as {storage.word}"
            yield f"a scaled product is of {formats}, and {stored}; use 'product: direct'"
    if v.product != "summed":
        return
    if v.dtype.precision != "ieee":
        yield "a summed product is for fp32, which no matrix unit multiplies in full precision; use 'product: direct'"
    if not (v.traits.plain or v.traits.splits):
        yield f"a summed product is for few rows, which leave {v.schedule} nothing to gain; use tiled or split_k"
    if v.load != "pointer":
        yield "a summed product loads by pointers only; use 'load: pointer'"


def _symmetric(v: Variant) -> Reasons:
    if not v.symmetric:
        return
    if v.products.divided:
        yield f"M is N in a symmetric result, and {v.batch} divides one of the sizes; use 'batch: none' or 'strided'"
    if not v.dtype.plain:
        yield f"a symmetric result is of A and A^T, and operands are stored as {v.dtype.word}; use plain types"
    if v.epilogue.order is not None:
        yield "a gated linear unit has two columns of B for each of C, and B of a symmetric result is of A's size"
    for vector in (x.name for x in v.epilogue.operands if x.shape not in (MATRIX, ELEMENT, SCALAR)):
        yield f"{vector} is for rows or for columns, which would make C not symmetric; use operands [M, N] and numbers"
    for reduced in (output.name for output in v.epilogue.outputs if output.reduced):
        yield f"{reduced} would be reduced over all elements, and those below the diagonal are not computed"
    if v.product == "summed" or (v.product == "exchanged" and v.dtype.precision != "ieee"):
        yield f"a product that is {v.product} is for few rows, and a symmetric result is square; use 'product: direct'"
    if not v.loading.pointers and v.store == "as_load":
        yield f"a tile on the diagonal is stored in part, which {v.load} cannot do; use 'store: pointer'"


def _quantised(v: Variant) -> Reasons:
    quantised = v.quantised
    if quantised is None:
        return
    each = f"a scale is found from {quantised.block} columns of a tile"
    if not v.traits.tiled:
        yield f"{each}, and {v.schedule} computes single elements; use tiled"
    if v.traits.pairs and not v.traits.joins:
        yield f"{each}, and a tile of {v.schedule} has several accumulators; use tiled or persistent"
    if not v.traits.repeatable:
        yield f"{each}, and programs of {v.schedule} add their sums one by one; use split_k"
    if v.layout.c != "row":
        kind = "column-major" if v.layout.c == "column" else v.layout.c
        yield f"a scale is for {quantised.block} neighbours in a row of C, and {v.layout.word} has a {kind} C; use r"
    if v.symmetric:
        yield "blocks of a tile are columns of one row, and those of its mirror image are not; use 'result: full'"
    if quantised.packed > 1 and not v.loading.pointers and v.store == "as_load":
        word = quantised.format
        yield f"a tile of {word} has two columns to a byte, which {v.load} does not store; use 'store: pointer'"


def _decoded(v: Variant) -> Reasons:
    if not v.traits.decodes:
        return
    if not v.dtype.stored_b.converted and v.dtype.precision != "ieee":
        yield f"{v.schedule} makes B of the type that is multiplied, and B is stored as {v.dtype.b} already; use tiled"
    if not v.dtype.stored_b.converted and v.layout.b == "row":
        yield f"{v.schedule} makes B of {v.dtype.b} row-major, and it is row-major already; use tiled"
    if v.dtype.scaled and v.dtype.stored_b.multiplied_bits == 8:
        yield f"{v.schedule} rounds each value of B to the type of a, and {v.dtype.a} has too few bits; use tiled"
    if v.product == "exchanged":
        yield "an exchanged product converts B in registers, and a decoded B is dense already; use 'product: direct'"
    if v.dtype.stored_a.block is not None:
        yield f"{v.schedule} multiplies a dense B by a dense A, and A is stored as {v.dtype.a}; use tiled"
    if v.batch != "none":
        yield "a batch has a B for each matrix, which would all be decoded into memory; use tiled"


def _taken_keyword(v: Variant) -> Reasons:
    names = {storage.scale for storage in v.dtype.stored if storage.block is not None}
    names |= {storage.zero for storage in v.dtype.stored if storage.zeros}
    names |= {storage.index for storage in v.dtype.stored if storage.sparse}
    for taken in (name for name in v.epilogue.keywords if name in names):
        yield f"{taken!r} is the keyword of an operand as it is stored; rename that of an op"


#: What cannot exist on any target.
VARIANT_RULES: tuple[VariantRule, ...] = (
    _products,
    _quantised,
    _symmetric,
    _stored,
    _decoded,
    _taken_keyword,
    _elements,
    _descriptors,
    _integer_output,
    _elementwise_reduction,
    _batch_schedule,
    _groups,
    _atomic_result,
    _paired,
    _gate_load,
    _rounding_to,
    _claims,
    _name_length,
)


def rows_of_any_number(v: Variant) -> Reasons:
    """What `invariant: rows` cannot have: results whose bits would depend on the number of rows, or on other rows."""
    if not v.traits.repeatable:
        yield f"{v.schedule} adds partial sums in an order that varies; use split_k or tiled {WITH_ROWS}"
    if v.traits.walks_steps:
        yield f"where {v.schedule} divides K depends on the number of tiles, and so on M; use split_k {WITH_ROWS}"
    if v.symmetric:
        yield f"M is N in a symmetric result, so that it has no other rows to depend on {WITH_ROWS}"
    if Feature.INVARIANT not in v.traits.handles:
        yield claims.refusal(v, "schedule", Feature.INVARIANT)
    if v.traits.tiled and ragged(v.masking)["m"] is False:
        yield f"M would decide which tiles are legal for 'masking: {v.masking}'; use mn, mnk or auto {WITH_ROWS}"
    if v.loading.descriptors and v.layout.a == "column":
        yield f"M would decide whether a descriptor can address a column-major A; use 'load: pointer' {WITH_ROWS}"
    if v.loading.descriptors and v.layout.c == "column" and v.store == "as_load":
        yield f"M would decide whether a descriptor can write a column-major C; use 'store: pointer' {WITH_ROWS}"
    for step in v.epilogue.steps:
        output = step.meaning
        if not isinstance(output, AuxiliaryOutput) or not output.reduction:
            continue
        if output.shape != ROWS:
            yield f"{step.operation} is computed from all rows together; compute it from the result {WITH_ROWS}"
        elif output.reduction == "sum":
            yield (
                f"{step.operation} adds the sums of tiles by torch.sum, whose order depends on M; "
                f"compute it from the result {WITH_ROWS}"
            )
