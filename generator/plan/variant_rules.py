"""The rules of the legality table about variants: what cannot exist at all, or with `invariant: rows`.

A rule returns the reason why it forbids a variant, or None; a new rule is a function here and its name in a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

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

VariantRule = Callable[[Variant], str | None]


def ragged(masking: str) -> dict[str, bool | None]:
    """Whether each of m, n and k is masked: True always, False never, None if the call decides."""
    dimensions = MASKING[masking].ragged
    return {d: None if dimensions is None else d in dimensions for d in "mnk"}


def _tile_load_of_elements(v: Variant) -> str | None:
    if not v.traits.tiled and not v.loading.pointers:
        return f"{v.schedule} loads single elements, which {v.load} cannot address; use 'load: pointer'"
    return None


def _precision_of_elements(v: Variant) -> str | None:
    if not v.traits.tiled and v.dtype.precision in ("tf32", "tf32x3", "fast"):
        return f"{v.dtype.precision} is a mode of the matrix unit, which {v.schedule} does not use; use tiled"
    return None


def _descriptor_masking(v: Variant) -> str | None:
    if v.loading.descriptors and v.masking not in ("mnk", "auto"):
        return f"the hardware bounds descriptor accesses, so 'masking: {v.masking}' has no effect; use mnk or auto"
    return None


def _descriptor_strides(v: Variant) -> str | None:
    if not v.loading.descriptors:
        return None
    if "strided" in (v.layout.a, v.layout.b):
        return "a descriptor needs an inner stride of 1, which a strided A or B need not have; use 'load: pointer'"
    if v.layout.c == "strided" and v.store == "as_load":
        return "a descriptor cannot write a strided C; use 'store: pointer'"
    return None


def _descriptor_matrices(v: Variant) -> str | None:
    matrices = [operand.name for operand in v.epilogue.operands if operand.shape == MATRIX]
    matrices += [output.name for output in v.epilogue.outputs if output.shape == MATRIX]
    matrices += ["C"] if v.epilogue.reads_out else []
    if v.traits.walks_tiles and v.loading.descriptors and v.store == "as_load" and matrices:
        return f"a tile of {matrices[0]} would need shared memory beside the loads in flight; use 'store: pointer'"
    return None


def _integer_output(v: Variant) -> str | None:
    out = v.dtype.out
    # A quantised result is made of fp32, and rounds nothing to `dtype.out`.
    kept = v.quantised is None or any(not output.reduced for output in v.epilogue.outputs)
    whole = not ELEMENTS[out].floating and out not in QUANTISED and kept
    if whole and not v.exact and not all(step.keeps_integers(exact=False) for step in v.epilogue.steps):
        return (
            f"the epilogue is computed in fp32, and no rounding back to {out} is defined; give dtype.out a float type, "
            "or add and bound alone, which is exact: 'bias', 'add', 'accumulate' with 'beta: 1', 'relu', 'clamp'"
        )
    return None


def _first_reduction(v: Variant) -> str | None:
    """The first operation of the epilogue that reduces rows or columns, or None."""
    return next((step.operation for step in v.epilogue.steps if step.output and step.output.reduced), None)


def _elementwise_reduction(v: Variant) -> str | None:
    reduction = _first_reduction(v)
    if not v.traits.tiled and reduction:
        return f"{reduction} is reduced tile by tile, and {v.schedule} has no tiles; use tiled"
    if v.traits.pairs and not v.traits.joins and reduction:
        return f"{reduction} is reduced tile by tile, and a tile of {v.schedule} has several accumulators; use tiled"
    return None


def _batch_schedule(v: Variant) -> str | None:
    if v.products.several and not v.products.divided and v.traits.divides_k:
        return f"{v.schedule} divides the K of a single product, not those of a batch; use tiled"
    return None


def _groups(v: Variant) -> str | None:
    if not v.products.divided:
        return None
    divided = v.products.divided.lower()
    if not (v.traits.tiled and v.traits.looped) or v.traits.divides_k:
        return f"{v.schedule} has no kernel for groups, whose sizes only the device knows; use tiled or persistent"
    if ragged(v.masking)[divided] is False:
        needed = "mn, mnk or auto" if divided == "m" else "k, mnk or auto"
        return f"groups have any sizes, and 'masking: {v.masking}' needs multiples of the tile; use {needed}"
    if v.loading.blocks:
        return "block pointers are not made for groups; use pointer or descriptor"
    if divided == "k" and not v.dtype.plain:
        return f"operands that are stored as {v.dtype.word} have scales along K, which groups would divide"
    if v.loading.descriptors and divided == "k" and (v.layout.a, v.layout.b) != ("column", "row"):
        return "a descriptor reads contiguous elements along K from multiples of 16 bytes on only; use 'load: pointer'"
    if v.loading.descriptors and v.layout.a == "column" and divided == "m":
        return "a descriptor reads rows of a column-major A from multiples of 16 bytes on only; use 'load: pointer'"
    if v.loading.descriptors and v.store == "as_load" and divided == "m":
        return "a descriptor's store past the end of a group would write rows of the next one; use 'store: pointer'"
    reduction = _first_reduction(v)
    if reduction:
        return f"{reduction} would be reduced over tiles whose number only the device knows; compute it from the result"
    if any(storage.letter == "a" and storage.block and storage.block.across > 1 for storage in v.dtype.stored):
        return "a scale of several rows of a would be shared by groups; give each row its own"
    return None


def _atomic_result(v: Variant) -> str | None:
    if v.traits.repeatable:
        return None
    if v.epilogue.steps:
        return "each partial sum is added to the result separately, and an epilogue needs the whole sum; use split_k"
    if v.dtype.out != "fp32":
        return f"partial sums are added in the result's type, and {v.dtype.out} rounds each addition; use split_k"
    if not ELEMENTS[v.dtype.sum].floating:
        return f"partial sums are added in the result's type, and fp32 rounds {v.dtype.sum} sums; use split_k"
    if not v.loading.pointers and v.store == "as_load":
        return f"{v.load} has no atomic add; use 'store: pointer'"
    return None


def _paired(v: Variant) -> str | None:
    if not v.traits.pairs:
        return None
    if v.loading.descriptors and v.store != "pointer" and not v.traits.joins:
        return f"{v.schedule} stores through pointers only; use 'store: pointer'"
    if v.dtype.precision == "ieee":
        return "fp32 without tf32 holds operands in registers, which are too few for two products; use tiled"
    return None


def _gate_load(v: Variant) -> str | None:
    if v.epilogue.order is not None and v.loading.blocks:
        return "block pointers cannot load the two columns of B of a gated linear unit; use pointer or descriptor"
    return None


def _rounding_to(v: Variant) -> str | None:
    if v.rounding == "torch" and (v.dtype.out in QUANTISED or not ELEMENTS[v.dtype.out].floating):
        return f"eager torch rounds no operation to {v.dtype.out}; use 'rounding: late', or give dtype.out fp16 or bf16"
    return None


def _claims(v: Variant) -> str | None:
    """What a word does not say that it handles; rules that know a reason of their own come before."""
    for axis in claims.CLAIMING:
        feature = claims.unclaimed(v, axis)
        if feature is not None:
            legal = (other for other in claims.others(v, axis) if all(rule(other) is None for rule in VARIANT_RULES))
            return claims.refusal(v, axis, feature, [other.words[axis] for other in islice(legal, 2)])
    return None


def _name_length(v: Variant) -> str | None:
    if len(v.name) > _LONGEST_NAME:
        return f"its name has {len(v.name)} characters, and {_LONGEST_NAME} are allowed; shorten the epilogue"
    return None


def _stored(v: Variant) -> str | None:
    if v.dtype.plain:
        return None
    t = v.traits
    native = any(storage.native for storage in v.dtype.stored)
    if not (t.tiled and t.looped) or (t.pairs and native) or not t.repeatable:
        return f"{v.schedule} takes no operands that are stored as {v.dtype.word}; use tiled, persistent or split_k"
    if t.side == "n" and v.dtype.sparse and v.product == "direct":
        return "Triton cannot lay out several widths of a b among zeros in shared memory; use 'product: exchanged'"
    if v.loading.blocks:
        return f"block pointers take no operands that are stored as {v.dtype.word}; use pointer or descriptor"
    b = v.dtype.stored_b
    if v.product == "exchanged" and b.converted and b.multiplied_bits == 8:
        return (
            f"an exchanged product has a converted b in registers, from where sm90 multiplies {b.multiplied} wrongly; "
            "use 'product: direct'"
        )
    for storage in v.dtype.stored:
        least = max(shallowest(v), storage.together)
        if storage.scaled_by_step and storage.block is not None and storage.block.along % least:
            many = f"{storage.block.along} elements along K"
            return f"a scale of {storage.letter} is for {many}, and a step needs a multiple of {least}"
        if storage.block is not None and storage.scaled_by_step and copies_too_little(v, storage, storage.block.along):
            return f"a descriptor copies at least {SHORTEST_COPY} bytes of a row, and a scale is for fewer; use pointer"
    return None


def _scaled(v: Variant) -> str | None:
    if v.product != "scaled":
        return None
    for storage in v.dtype.stored:
        if storage.word not in FORMATS:
            formats = f"formats that have scales ({', '.join(FORMATS)})"
            stored = f"{storage.letter} is stored as {storage.word}"
            return f"a scaled product is of {formats}, and {stored}; use 'product: direct'"
    return None


def _summed(v: Variant) -> str | None:
    if v.product != "summed":
        return None
    if v.dtype.precision != "ieee":
        return "a summed product is for fp32, which no matrix unit multiplies in full precision; use 'product: direct'"
    if not (v.traits.plain or v.traits.splits):
        return f"a summed product is for few rows, which leave {v.schedule} nothing to gain; use tiled or split_k"
    if v.load != "pointer":
        return "a summed product loads by pointers only; use 'load: pointer'"
    return None


def _symmetric(v: Variant) -> str | None:
    if not v.symmetric:
        return None
    if v.products.divided:
        return f"M is N in a symmetric result, and {v.batch} divides one of the sizes; use 'batch: none' or 'strided'"
    if not v.dtype.plain:
        return f"a symmetric result is of A and A^T, and operands are stored as {v.dtype.word}; use plain types"
    if v.epilogue.order is not None:
        return "a gated linear unit has two columns of B for each of C, and B of a symmetric result is of A's size"
    vector = next((x.name for x in v.epilogue.operands if x.shape not in (MATRIX, ELEMENT, SCALAR)), None)
    if vector is not None:
        return f"{vector} is for rows or for columns, which would make C not symmetric; use operands [M, N] and numbers"
    reduced = next((output.name for output in v.epilogue.outputs if output.reduced), None)
    if reduced is not None:
        return f"{reduced} would be reduced over all elements, and those below the diagonal are not computed"
    if v.product == "summed" or (v.product == "exchanged" and v.dtype.precision != "ieee"):
        return f"a product that is {v.product} is for few rows, and a symmetric result is square; use 'product: direct'"
    if not v.loading.pointers and v.store == "as_load":
        return f"a tile on the diagonal is stored in part, which {v.load} cannot do; use 'store: pointer'"
    return None


def _quantised(v: Variant) -> str | None:
    quantised = v.quantised
    if quantised is None:
        return None
    each = f"a scale is found from {quantised.block} columns of a tile"
    if not v.traits.tiled:
        return f"{each}, and {v.schedule} computes single elements; use tiled"
    if v.traits.pairs and not v.traits.joins:
        return f"{each}, and a tile of {v.schedule} has several accumulators; use tiled or persistent"
    if not v.traits.repeatable:
        return f"{each}, and programs of {v.schedule} add their sums one by one; use split_k"
    if v.layout.c != "row":
        kind = "column-major" if v.layout.c == "column" else v.layout.c
        return f"a scale is for {quantised.block} neighbours in a row of C, and {v.layout.word} has a {kind} C; use r"
    if v.symmetric:
        return "blocks of a tile are columns of one row, and those of its mirror image are not; use 'result: full'"
    if quantised.packed > 1 and not v.loading.pointers and v.store == "as_load":
        word = quantised.format
        return f"a tile of {word} has two columns to a byte, which {v.load} does not store; use 'store: pointer'"
    return None


def _decoded(v: Variant) -> str | None:
    if not v.traits.decodes:
        return None
    if not v.dtype.stored_b.converted and v.dtype.precision != "ieee":
        return f"{v.schedule} makes B of the type that is multiplied, and B is stored as {v.dtype.b} already; use tiled"
    if not v.dtype.stored_b.converted and v.layout.b == "row":
        return f"{v.schedule} makes B of {v.dtype.b} row-major, and it is row-major already; use tiled"
    if v.dtype.scaled and v.dtype.stored_b.multiplied_bits == 8:
        return f"{v.schedule} rounds each value of B to the type of a, and {v.dtype.a} has too few bits; use tiled"
    if v.product == "exchanged":
        return "an exchanged product converts B in registers, and a decoded B is dense already; use 'product: direct'"
    if v.dtype.stored_a.block is not None:
        return f"{v.schedule} multiplies a dense B by a dense A, and A is stored as {v.dtype.a}; use tiled"
    if v.batch != "none":
        return "a batch has a B for each matrix, which would all be decoded into memory; use tiled"
    return None


def _taken_keyword(v: Variant) -> str | None:
    names = {storage.scale for storage in v.dtype.stored if storage.block is not None}
    names |= {storage.zero for storage in v.dtype.stored if storage.zeros}
    names |= {storage.index for storage in v.dtype.stored if storage.sparse}
    taken = [name for name in v.epilogue.keywords if name in names]
    return f"{taken[0]!r} is the keyword of an operand as it is stored; rename that of an op" if taken else None


#: What cannot exist on any target.
VARIANT_RULES: tuple[VariantRule, ...] = (
    _scaled,
    _summed,
    _quantised,
    _symmetric,
    _stored,
    _decoded,
    _taken_keyword,
    _tile_load_of_elements,
    _precision_of_elements,
    _descriptor_masking,
    _descriptor_strides,
    _descriptor_matrices,
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


def _order_of_sums(v: Variant) -> str | None:
    if not v.traits.repeatable:
        return f"{v.schedule} adds partial sums in an order that varies; use split_k or tiled {WITH_ROWS}"
    if v.traits.walks_steps:
        return f"where {v.schedule} divides K depends on the number of tiles, and so on M; use split_k {WITH_ROWS}"
    return None


def _rows_of_symmetric(v: Variant) -> str | None:
    return (
        f"M is N in a symmetric result, so that it has no other rows to depend on {WITH_ROWS}" if v.symmetric else None
    )


def _claimed_rows(v: Variant) -> str | None:
    return None if Feature.INVARIANT in v.traits.handles else claims.refusal(v, "schedule", Feature.INVARIANT)


def _divided_rows(v: Variant) -> str | None:
    if v.traits.tiled and ragged(v.masking)["m"] is False:
        return f"M would decide which tiles are legal for 'masking: {v.masking}'; use mn, mnk or auto {WITH_ROWS}"
    return None


def _pitch_of_rows(v: Variant) -> str | None:
    if not v.loading.descriptors:
        return None
    if v.layout.a == "column":
        return f"M would decide whether a descriptor can address a column-major A; use 'load: pointer' {WITH_ROWS}"
    if v.layout.c == "column" and v.store == "as_load":
        return f"M would decide whether a descriptor can write a column-major C; use 'store: pointer' {WITH_ROWS}"
    return None


def _outputs_of_rows(v: Variant) -> str | None:
    for step in v.epilogue.steps:
        output = step.meaning
        if not isinstance(output, AuxiliaryOutput) or not output.reduction:
            continue
        if output.shape != ROWS:
            return f"{step.operation} is computed from all rows together; compute it from the result {WITH_ROWS}"
        if output.reduction == "sum":
            return (
                f"{step.operation} adds the sums of tiles by torch.sum, whose order depends on M; "
                f"compute it from the result {WITH_ROWS}"
            )
    return None


#: What `invariant: rows` cannot have: results whose bits would depend on the number of rows, or on other rows.
ROW_RULES: tuple[VariantRule, ...] = (
    _order_of_sums,
    _rows_of_symmetric,
    _claimed_rows,
    _divided_rows,
    _pitch_of_rows,
    _outputs_of_rows,
)
