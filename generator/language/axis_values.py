"""Read the values of axes, and the configurations of `tile`."""

from __future__ import annotations

from yaml.nodes import MappingNode, Node, SequenceNode

from generator.language.built_in import BUILT_IN
from generator.language.chain_reader import Operations, read_epilogue
from generator.language.document import described, plain
from generator.language.dtype_reader import read_dtype
from generator.language.keys import LAYOUT_KEYS, TILE_KEYS, TILE_REQUIRED
from generator.language.model import AxisValue, Layout, Tile
from generator.language.reader import Reader
from generator.language.vocabulary import LAYOUT_LETTERS, WORDS


def read_axis(reader: Reader, axis: str, node: Node, operations: Operations = BUILT_IN) -> AxisValue | None:
    """One value of `axis`; None if it is invalid, with the mistake recorded.

    `operations` are those that an epilogue may use.
    """
    match axis:
        case "layout":
            return read_layout(reader, node)
        case "dtype":
            return read_dtype(reader, node)
        case "epilogue":
            return read_epilogue(reader, node, operations)
    return reader.one_of(node, axis, WORDS[axis])


def read_layout(reader: Reader, node: Node) -> Layout | None:
    """Three letters, or a mapping of a, b and c to row, column or strided."""
    if not isinstance(node, MappingNode):
        letters = plain(node)
        if isinstance(letters, str) and len(letters) == 3 and set(letters) <= LAYOUT_LETTERS.keys():
            return Layout.of(letters)
        reader.wrong(
            node,
            f"layout: unknown value {described(node)}; expected three letters for A, B and C, each r (row-major), "
            "c (column-major) or s (strided), or a mapping {a: row, b: column, c: row}",
        )
        return None
    entries = reader.mapping(node, LAYOUT_KEYS, "layout", required=LAYOUT_KEYS)
    legal = list(LAYOUT_LETTERS.values())
    words = {key: reader.one_of(value, f"layout.{key}", legal) for key, value in entries.items()}
    given = {key: word for key, word in words.items() if word is not None}
    return Layout(**given) if len(given) == len(node.value) == len(LAYOUT_KEYS) else None


#: Keys of a configuration that no available schedule uses, each with the text that means "not used".
_UNUSED = {"ctas": "1", "warp_specialize": "false", "waves_per_eu": ""}


#: How many powers of two a key may be the sum of; a tile of several blocks has up to three along one side.
POWERS = {"m": 3, "n": 3, "k": 1, "warps": 1}


def read_tile(reader: Reader, node: Node) -> Tile | None:
    """One configuration of the key `tile`."""
    before = len(reader.mistakes)
    entries = reader.mapping(node, TILE_KEYS, "tile", required=TILE_REQUIRED, unused=_UNUSED)
    values: dict[str, int] = {}
    for key, value in entries.items():
        if key not in _UNUSED:
            if isinstance(value, SequenceNode) and POWERS.get(key, 0) > 1:
                number = _blocks(reader, value, key)
            else:
                number = reader.whole(value, f"tile.{key}", powers_of_two=POWERS.get(key, 0))
            if number is not None:
                values[key] = number
        elif described(value).lower() != _UNUSED[key]:
            reader.wrong(value, f"tile.{key}: not available yet; leave it out")
    return Tile(**values) if len(reader.mistakes) == before else None


def _blocks(reader: Reader, node: SequenceNode, key: str) -> int | None:
    """The size of a tile whose blocks a list has."""
    sizes = [reader.whole(item, f"tile.{key}", powers_of_two=1) for item in node.value]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and not 2 <= len(set(sizes)) == len(sizes) <= POWERS[key]:
        expected = "expected two or three different powers of two, as in [128, 64]"
        reader.wrong(node, f"tile.{key}: {expected}, found {described(node)}")
    return sum(known)
