"""Read the axis `dtype`: a shorthand, or a mapping of types and of how the operands are stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from yaml.nodes import MappingNode, Node, SequenceNode

from generator.language.document import described, plain
from generator.language.dtypes import (
    ACCUMULATORS,
    CONVERTED,
    DTYPE_SHORTHANDS,
    OFFSET,
    PACKED,
    PACKINGS,
    PRECISIONS,
    QUANTISED,
    RESULTS,
    SPARSITIES,
    WEIGHTS,
)
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.errors import nearest
from generator.language.keys import DTYPE_KEYS
from generator.language.model import Dtype
from generator.language.other_names import mapping_of, nearest_type, type_of
from generator.language.reader import Reader
from generator.language.storage import element_of

#: The largest number of elements along one side of a block of scales, but for the whole extent.
LARGEST_BLOCK = 1 << 20


def read_dtype(reader: Reader, node: Node) -> Dtype | None:
    """A shorthand, or a mapping; omitted keys follow from `a` and `b`. None if it has a mistake, which is recorded."""
    if not isinstance(node, MappingNode):
        shorthand = reader.one_of(node, "dtype", DTYPE_SHORTHANDS, _nearest_shorthand)
        return None if shorthand is None else Dtype.of(shorthand)
    before = len(reader.mistakes)
    entries = reader.mapping(node, DTYPE_KEYS, "dtype", required=("a",))
    a = _choose(reader, entries, "a", None, ACCUMULATORS, _nearest_a)
    b = _choose(reader, entries, "b", a, tuple(dict.fromkeys((*ACCUMULATORS, *WEIGHTS))))
    if a is None or b is None:
        return None
    wide = element_of(a).bits == 16
    needs = "a and b of one 16-bit type"
    sparse = _stored_so(reader, entries, "sparsity", SPARSITIES, None if wide and a == b else needs, a, b)
    needs = f"an a of 16 bits and a b of {', '.join(PACKED)}"
    fragments = _stored_so(reader, entries, "packing", PACKINGS, None if wide and b in PACKED else needs, a, b)
    scales, zeros = _scales(reader, entries, a, b), _zeros(reader, entries, b)
    if not _multiplied(reader, entries, a, b, scaled=bool(scales)):
        return None
    types = _types(reader, entries, a, b, stored=a != b or a in FORMATS or bool(scales) or sparse)
    if types is None or len(reader.mistakes) > before:
        return None
    return replace(types.scaled_by(scales, zeros=zeros), sparse=sparse, fragments=fragments)


def _nearest_shorthand(written: str, legal: Collection[str]) -> str:
    """The end of a message about a word that is no shorthand, which may be a type of stored operands."""
    word = type_of(written)
    stored = None if word is None or word in legal else mapping_of(word)
    if stored is None:
        return nearest_type(written, legal)
    return f"{word} is a type of operands as they are stored: {stored}; legal: {', '.join(legal)}"


def _nearest_a(written: str, legal: Collection[str]) -> str:
    """The same about a type that no A has, which may be one of B."""
    word = type_of(written)
    if word not in WEIGHTS or word in legal:
        return nearest_type(written, legal)
    return f"a B is stored so, and a has the type that it is multiplied in; legal: {', '.join(legal)}"


def _choose(
    reader: Reader,
    entries: Mapping[str, Node],
    key: str,
    default: str | None,
    legal: Collection[str],
    hint: Callable[[str, Collection[str]], str] = nearest_type,
) -> str | None:
    """The word of a key, or its default; None if it is not legal."""
    return reader.one_of(entries[key], f"dtype.{key}", legal, hint) if key in entries else default


def _types(reader: Reader, entries: Mapping[str, Node], a: str, b: str, *, stored: bool) -> Dtype | None:
    """The types of the product, without what is said of storage."""
    accumulators = ACCUMULATORS[a][:1] if stored else ACCUMULATORS[a]
    acc = _choose(reader, entries, "acc", accumulators[0], accumulators)
    floating = tuple(name for name in RESULTS if ELEMENTS[name].floating)
    # A product of scaled integers has no type of its own, nor has one of a format.
    own = a in ELEMENTS and (element_of(a).floating or not stored)
    sums = () if element_of(a).floating or stored else (ELEMENTS[a].result,)
    results = (*floating, *sums, *(name for name in QUANTISED if not ELEMENTS[name].floating))
    default = ELEMENTS[a].result if own else "bf16"
    out = _choose(reader, entries, "out", default, results)
    precision = None
    if a in PRECISIONS:
        precision = _choose(reader, entries, "precision", PRECISIONS[a][0], PRECISIONS[a], nearest)
        if precision is None:
            return None
    elif "precision" in entries:
        reader.wrong(
            entries["precision"], f"dtype.precision: a product of {a} has no choice of precision; leave it out"
        )
        return None
    return None if acc is None or out is None else Dtype(a, b, acc, out, precision)


def _multiplied(reader: Reader, entries: Mapping[str, Node], a: str, b: str, *, scaled: bool) -> bool:
    """Whether operands of these types can be multiplied."""
    legal, mixed = _legal_with(a), b in ELEMENTS and a in ELEMENTS[b].others
    if b in legal or (mixed and scaled):
        return True
    if mixed:
        reason = "fp8 operands of two types need `scales`"
    elif a in ELEMENTS and b in CONVERTED.get(element_of(a).bits, ()):
        reason = f"{a} does not hold every number of {b}"
    elif element_of(b).bits > element_of(a).bits:
        reason = "the operand of fewer bits is b"
    else:
        reason = f"legal with it: {', '.join(legal)}"
    reader.wrong(entries["b"], f"dtype.b: {b!r} cannot be multiplied with an a of {a}; {reason}")
    return False


def _legal_with(a: str) -> tuple[str, ...]:
    """The types of B that an A of `a` can be multiplied with, without scales of a spec's own."""
    if a in ELEMENTS:
        return (a, *(word for word in CONVERTED.get(element_of(a).bits, ()) if element_of(a).holds(element_of(word))))
    standard = FORMATS[a].standard if a in FORMATS else ""
    return tuple(word for word, each in FORMATS.items() if each.standard == standard) if standard else (a,)


def _scales(reader: Reader, given: Mapping[str, Node], a: str, b: str) -> dict[str, tuple[int, int]]:
    """The block of each operand with scales: rows, then columns."""
    if "scales" not in given:
        return {}
    entries = reader.mapping(given["scales"], ("a", "b"), "dtype.scales")
    if not entries and isinstance(given["scales"], MappingNode) and not given["scales"].value:
        reader.wrong(given["scales"], "dtype.scales: names no operand; expected {b: [k, columns]} or {a: [rows, k]}")
    blocks = {}
    for key, node in entries.items():
        word, sides = {"a": (a, "[rows, k]"), "b": (b, "[k, columns]")}[key]
        what = f"dtype.scales.{key}"
        sizes = [plain(item) for item in node.value] if isinstance(node, SequenceNode) else []
        whole = [size for size in sizes if type(size) is int and 0 <= size <= LARGEST_BLOCK]
        if not len(whole) == len(sizes) == 2:
            expected = f"{sides}, the sizes of a block as whole numbers up to {LARGEST_BLOCK}, 0 for the whole extent"
            reader.wrong(node, f"{what}: expected {expected}; found {described(node)}")
        elif word in FORMATS:
            reader.wrong(node, f"{what}: {key} is {word}, which has scales of its own; leave this out")
        elif word in ELEMENTS and ELEMENTS[word].bits > 8:
            reader.wrong(node, f"{what}: {key} is {word}, and scales are of operands of 8 bits or fewer")
        else:
            blocks[key] = (whole[0], whole[1])
    return blocks


def _of_b(reader: Reader, entries: Mapping[str, Node], key: str) -> Node | None:
    """What a mapping of B alone says under a key; None where it says nothing."""
    what = f"dtype.{key}"
    return reader.mapping(entries[key], ("b",), what, required=("b",)).get("b") if key in entries else None


def _zeros(reader: Reader, entries: Mapping[str, Node], b: str) -> bool:
    """Whether B has zero points."""
    node = _of_b(reader, entries, "zeros")
    if node is None:
        return False
    value = plain(node)
    if not isinstance(value, bool):
        reader.wrong(node, f"dtype.zeros.b: expected true or false, found {described(node)}")
        return False
    scales = entries.get("scales")
    scaled = isinstance(scales, MappingNode) and any(plain(key) == "b" for key, _ in scales.value)
    if value and b not in OFFSET:
        reader.wrong(node, f"dtype.zeros.b: zero points go with {', '.join(OFFSET)}, and b is {b}")
    elif value and not scaled:
        reader.wrong(node, "dtype.zeros.b: zero points go with scales; give dtype.scales.b")
    return value


def _stored_so(
    reader: Reader, entries: Mapping[str, Node], key: str, legal: Collection[str], needs: str | None, a: str, b: str
) -> bool:
    """Whether B is stored as `key` says; `needs` is what the types lack for it."""
    node = _of_b(reader, entries, key)
    if node is None:
        return False
    if reader.one_of(node, f"dtype.{key}.b", legal) is not None and needs is not None:
        reader.wrong(node, f"dtype.{key}.b: needs {needs}, and they are {a} and {b}")
    return True
