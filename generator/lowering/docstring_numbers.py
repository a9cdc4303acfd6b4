"""The sentences of a kernel's docstring on its numbers: what stored elements stand for, and what is rounded where."""

from __future__ import annotations

from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Variant
from generator.language.storage import CONTAINER, SCALE_TYPES, WORDS, Storage, element_of
from generator.lowering import approximate_math
from generator.lowering.decoding import MOST_DECODED
from generator.lowering.view import View


def stored(v: Variant) -> str:
    """What the elements of stored operands stand for; nothing where operands are stored as they are multiplied."""
    sentences = [text for storage in v.dtype.stored if (text := _stored(storage))]
    if v.traits.decodes:
        dense = v.dtype.stored_b.multiplied
        makes = "decodes B into memory" if v.dtype.stored_b.converted else "copies B row-major"
        sentences.append(f"A first kernel {makes}, with at most {MOST_DECODED >> 20} MiB for it.")
        if v.dtype.scaled:
            sentences.append(f"It computes each value in fp32 and rounds it once, to {dense}.")
    elif v.dtype.zeros:
        sentences.append("A zero point times the sum of A's elements is subtracted from a block's sum.")
    if v.dtype.stored_b.scaled_alone and not v.traits.decodes:
        to = v.dtype.stored_b.multiplied
        sentences.append(f"A scale is rounded to {to}, and then its product with an element.")
    elif v.dtype.scaled and not v.traits.decodes and not v.dtype.native:
        sentences.append("Sums are multiplied by scales in fp32, those of each block where several follow along K.")
    scaled = [storage for storage in v.dtype.stored if storage.block is not None]
    if scaled and scaled[0].bytewise:
        scale = ELEMENTS[scaled[0].scale_types[0]]
        sentences.append(scale.scale)
        if v.dtype.native and scale.signed:
            sentences.append("They have no sign: one below zero counts as NaN.")
    elif scaled:
        types = " or ".join(element_of(word).torch for word in SCALE_TYPES).replace(" or ", ", ", len(SCALE_TYPES) - 2)
        sentences.append(f"Scales are {types}{f', zero points one of these or {CONTAINER}' if v.dtype.zeros else ''}.")
    text = " ".join(sentences)
    return text[:1].lower() + text[1:]


def _stored(storage: Storage) -> str:
    """What the elements of one operand stand for."""
    x, parts = storage.letter, []
    if storage.sparse:
        parts.append(f"Of each four elements of {x} along K two are stored, and the others are 0.")
        parts.append(f"A byte of {storage.index} is for eight elements: its bits 0-1 and 2-3 are the places of the two")
        parts.append("among the first four, the lower first, and bits 4-5 and 6-7 those among the second four.")
    elif storage.fragments:
        integer = "two's complement" if storage.element.signed else "unsigned"
        places = f"bits {storage.bits}j and {storage.bits}j + 16 (j from 0 to {storage.packed // 2 - 1}; {integer})"
        parts.append(
            f"Word i of each {WORDS} along K of {x} has elements 8j + 2i and 8j + 2i + 1 of {storage.together},"
        )
        parts.append(f"from {places} on, as a matrix unit takes them.")
    elif storage.packed > 1:
        integer = "two's complement" if storage.element.signed else "unsigned"
        kind = storage.element.format if storage.element.floating else integer
        parts.append(f"Byte i along K of {x} has element 2i in its low four bits and 2i + 1 in its high ones ({kind}).")
    if storage.block is not None:
        value = f"(stored - {storage.zero})" if storage.zeros else "stored"
        parts.append(f"A value of {x} is {value} * {storage.scale}, with {_scales(storage)}.")
    elif storage.word != storage.multiplied:
        parts.append(f"Elements of {x} are converted to {storage.multiplied}, which holds each of them exactly.")
    return " ".join(parts)


def _scales(storage: Storage) -> str:
    """How many scales there are."""
    assert storage.block is not None
    along, across = storage.block.along, storage.block.across
    line = {"a": "row", "b": "column"}[storage.letter]
    if across == 1:
        return f"one scale for each {along} elements along K of a {line}" if along else f"one scale for each {line}"
    if along and across:
        return f"one scale for each block of {along} elements along K and {across} {line}s"
    if along:
        return f"one scale for each {along} elements along K"
    return f"one scale for each {across} {line}s" if across else "one scale for all"


def rounding(k: View) -> str:
    """What is rounded where."""
    v, dtype = k.v, k.v.dtype
    whole = not ELEMENTS[dtype.acc].floating
    if whole and dtype.scaled:
        text = f"products are summed in {dtype.acc}, exactly as long as the sum fits, and scaled sums in fp32."
    elif whole:
        text = f"products are summed in {dtype.acc}, exactly as long as the sum fits."
    else:
        text = f"products are summed in {dtype.acc}"
        text += {
            "tf32": ", of operands that the matrix unit reduces to tf32 (10 bits of mantissa).",
            "tf32x3": ", each emulated by three tf32 products to about the accuracy of fp32.",
            "full": ", promoted from the matrix unit's short accumulator at least every 128 elements along K.",
            "fast": ", on Hopper in the matrix unit's short accumulator (about 14 bits) for all of K.",
        }.get(dtype.precision or "" if dtype.stored_a.multiplied_bits != 16 and not dtype.native else "", ".")
    if v.rounds_between:
        text += f" The sum and the result of each epilogue operation, computed in fp32, are rounded to {dtype.out}, as"
        text += f" eager torch rounds each tensor; no two operations are fused into one.{approximate_math.described(v)}"
        text += f" Saved outputs are already rounded to {dtype.out}." if k.saved else ""
        return text + (" Sums and maxima are fp32, of the rounded values." if k.parts else "")
    if v.epilogue.steps:
        text += f" The epilogue is computed in {k.kind}.{approximate_math.described(v)}"
    if dtype.out in QUANTISED and v.quantised is None:
        text += quantising(k)
    elif k.rounds and v.quantised is None:
        text += f" The result is rounded once, to {dtype.out}, at the store."
    if k.saved:
        how = "saturated and rounded like the result" if dtype.out in QUANTISED else "rounded"
        text += f" Saved outputs are {how} at their own store; the chain goes on with the unrounded value."
    if k.parts:
        text += " Sums and maxima are fp32, of the unrounded values."
    return text


def quantising(k: View) -> str:
    """How the value after the epilogue becomes one of a narrow type."""
    out = k.v.dtype.out
    limits = QUANTISED[out]
    text = f" The result is saturated to [{limits.least}, {limits.most}]"
    if k.saturates:
        return f"{text} at the store."
    return f"{text}, including infinities, and rounded once, to nearest even, to {out} at the store; {limits.nan}."


def quantised(v: Variant) -> str:
    """How C is stored under scales of its own; nothing where it has none."""
    q = v.quantised
    if q is None:
        return ""
    word, scale = q.format or q.kind, ELEMENTS[q.scale]
    text = f"C is stored as {word}: a value is an element of the result times out_scale, of which {q.block} columns"
    text += f" of a row have one. A block's largest magnitude becomes {q.element.most:g}"
    if q.rule == "pow2":
        text += ", or less where the scale is rounded up to a power of two"
    elif scale.powers:
        text += f", or less, or is rounded down from at most {q.limit:g}, since the scale is a power of two"
    elif q.format:
        text += f", or is rounded down from at most {q.limit:g}, since the scale is rounded to {q.scale}"
    text += ". Quotients are rounded once, to nearest even. A block of zeros has a scale above 0, and one with a NaN a"
    text += " scale of NaN"
    if q.format and not scale.powers:
        text += f", as has one above {scale.most * q.limit:g}"
    text += f"; {q.element.nan}." if not q.element.nan.startswith("NaN stays") else "."
    if q.packed > 1:
        text += " Byte i of a row has column 2i in its low four bits and 2i + 1 in its high ones."
    return f"{text} {scale.scale}" if scale.powers else text
