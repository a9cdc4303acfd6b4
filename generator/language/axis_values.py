"""Read the axes that are more than words, `layout` and `epilogue`, and the configurations of `tile`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yaml.nodes import MappingNode, Node, SequenceNode

from generator.epilogue.auxiliary_outputs import ACCUMULATE, AUXILIARY
from generator.epilogue.chain import Epilogue, Used, why_no_chain
from generator.epilogue.gradient_operation import GRAD, gradient_name, gradient_of, why_no_gradient
from generator.epilogue.operations import EpilogueOperation
from generator.epilogue.quantisation import QUANTIZE
from generator.language.built_in import BUILT_IN
from generator.language.document import described, plain
from generator.language.dtype_reader import read_dtype
from generator.language.errors import nearest, shown
from generator.language.keys import LAYOUT_KEYS, TILE_KEYS, TILE_REQUIRED
from generator.language.model import AxisValue, Layout, Tile
from generator.language.operation_reader import read_output, read_quantisation, read_settings, settled, without_type
from generator.language.other_names import nearest_operation
from generator.language.reader import Reader
from generator.language.vocabulary import LAYOUT_LETTERS, WORDS

#: The operations that a chain may use; None for one whose definition has a mistake, which is already recorded.
Operations = Mapping[str, EpilogueOperation | None]

#: The most operations of a chain. The name of a kernel, which has all of them, has room for fewer.
LONGEST_CHAIN = 100


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
    return reader.word(node, axis, WORDS[axis])


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
    before = len(reader.mistakes)
    entries = reader.mapping(node, LAYOUT_KEYS, "layout", required=LAYOUT_KEYS)
    words = list(LAYOUT_LETTERS.values())
    for operand, value in entries.items():
        if plain(value) not in words:
            reader.unknown(value, f"layout.{operand}", nearest(str(plain(value)), words))
    if len(reader.mistakes) > before:
        return None
    return Layout(**{operand: str(plain(value)) for operand, value in entries.items()})


def read_epilogue(reader: Reader, node: Node, operations: Operations = BUILT_IN) -> Epilogue | None:
    """`none`, operations joined by `+`, or a list of operations."""
    steps: list[Used | None] = []
    if isinstance(node, SequenceNode):
        for item in reader.items(node, "epilogue"):
            steps += _operation(reader, item, operations)
            if len(steps) > LONGEST_CHAIN:
                break
    elif isinstance(node, MappingNode):
        if len(node.value) == 1:
            # Its mistakes are told in the same run.
            _operation(reader, node, operations)
        operation = described(node.value[0][0]) if node.value else "an operation"
        reader.wrong(
            node, f"epilogue: {operation} with parameters must be in a list inside the axis's list: [[{{name: ...}}]]"
        )
        return None
    else:
        text = plain(node)
        if text == "none":
            return Epilogue()
        if not isinstance(text, str):
            reader.wrong(node, f"epilogue: expected none, operations joined by +, or a list, found {described(node)}")
            return None
        steps = _sum(reader, node, text, operations)
    if len(steps) > LONGEST_CHAIN:
        reader.wrong(node, f"epilogue: the chain has {len(steps):,} operations, at most {LONGEST_CHAIN} are allowed")
        return None
    used = [entry for entry in steps if entry is not None]
    if not steps or len(used) < len(steps):
        return None
    chain = Epilogue.chain(used)
    reason = why_no_chain([meaning for _, meaning, _ in used])
    if reason is not None:
        reader.wrong(node, f"epilogue: {chain.word} has {reason}")
        return None
    names = chain.keywords
    for name in names:
        if names.count(name) > 1:
            those = "keywords" if len(names) > len(chain.operands) else "operands"
            reader.wrong(node, f"epilogue: two {those} of {chain.word} would be called {name!r}; rename that of an op")
            return None
    if [step.operation for step in chain.steps].count(ACCUMULATE) > 1:
        reader.wrong(node, f"epilogue: {ACCUMULATE!r} reads C, so a chain has it at most once")
        return None
    return chain


def _operation(reader: Reader, node: Node, operations: Operations) -> list[Used | None]:
    """One or several operations of a list; an operation may be a mapping of its name to its parameters."""
    if isinstance(node, MappingNode) and len(node.value) == 1:
        key, settings = node.value[0]
        name = str(plain(key))
        if name == GRAD:
            return [_gradient_with_settings(reader, settings, operations)]
        operation = _known(reader, key, name, operations)
        if operation is None:
            return [None]
        if name in AUXILIARY:
            writer = read_output(reader, settings, name)
            return [None if writer is None else (name, writer, ())]
        if name == QUANTIZE:
            quantisation = read_quantisation(reader, settings)
            return [None if quantisation is None else (name, quantisation, ())]
        values = read_settings(reader, settings, name, operation)
        return [None if values is None else (name, operation, values)]
    value = plain(node)
    if isinstance(value, str) and not isinstance(node, (MappingNode, SequenceNode)):
        return _sum(reader, node, value, operations)
    reader.wrong(
        node, f"epilogue: expected an operation, or one with parameters as {{name: {{...}}}}, found {described(node)}"
    )
    return [None]


def _sum(reader: Reader, node: Node, text: str, operations: Operations) -> list[Used | None]:
    """The operations that `+` joins; of too many, None for each of them."""
    names = [name.strip(" ") for name in text.split("+")]
    if len(names) > LONGEST_CHAIN:
        return [None] * len(names)
    if "" in names:
        if text:
            text_read = described(node)
            reader.wrong(
                node, f"epilogue: {text_read} has a '+' without an operation on each side; write it as in bias+relu"
            )
        else:
            reader.wrong(node, "epilogue: expected an operation, found an empty text")
        return [None]
    return [_plain(reader, node, name, operations) for name in names]


def _plain(reader: Reader, node: Node, name: str, operations: Operations) -> Used | None:
    """An operation without parameters."""
    if name == QUANTIZE:
        without_type(reader, node)
        return None
    of = _GRADIENT.fullmatch(name)
    operation = _known(reader, node, name, operations) if of is None else _gradient(reader, node, of[1], operations)
    return (name, operation, ()) if operation is not None and settled(reader, node, name, operation) else None


#: The gradient of an operation.
_GRADIENT = re.compile(rf"{GRAD}\((.*)\)")


def _gradient(reader: Reader, node: Node, name: str, operations: Operations) -> EpilogueOperation | None:
    """The gradient of the operation `name`."""
    if _GRADIENT.fullmatch(name):
        reader.wrong(node, f"epilogue: {gradient_name(name)!r} is a gradient of a gradient, which is not available")
        return None
    operation = _known(reader, node, name, operations)
    reason = None if operation is None else why_no_gradient(operation)
    if reason is not None:
        reader.wrong(node, f"epilogue: {gradient_name(name)!r} is not available: {name!r} {reason}")
    return None if operation is None or reason is not None else gradient_of(operation)


def _gradient_with_settings(reader: Reader, node: Node, operations: Operations) -> Used | None:
    """The gradient of an operation with parameters: `{op: leaky_relu, negative_slope: 0.2}`."""
    entries = reader.entries(node, f"epilogue.{GRAD}") if isinstance(node, MappingNode) else []
    of = next((value for key, _, value in entries if key == "op"), None)
    if of is None:
        example = f"{{{GRAD}: {{op: leaky_relu, negative_slope: 0.2}}}}"
        reader.wrong(node, f"epilogue.{GRAD}: expected an operation, as in {example}, found {described(node)}")
        return None
    name = reader.text(of, f"epilogue.{GRAD}.op")
    operation = None if name is None else _gradient(reader, of, name, operations)
    if name is None or operation is None:
        return None
    rest = [(key_node, value) for key, key_node, value in entries if key != "op"]
    if not rest:
        return (gradient_name(name), operation, ()) if settled(reader, node, gradient_name(name), operation) else None
    settings = MappingNode(node.tag, rest, node.start_mark, node.end_mark)
    values = read_settings(reader, settings, gradient_name(name), operation)
    return None if values is None else (gradient_name(name), operation, values)


def _known(reader: Reader, node: Node, name: str, operations: Operations) -> EpilogueOperation | None:
    if name == "none":
        reader.wrong(node, "epilogue: 'none' cannot be part of a chain")
    elif name == GRAD:
        reader.wrong(node, f"epilogue: {GRAD!r} needs an operation, as in {gradient_name('gelu')}")
    elif name not in operations:
        reader.wrong(node, f"epilogue: unknown operation {shown(name)}; {nearest_operation(name, operations)}")
    return operations.get(name)


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
