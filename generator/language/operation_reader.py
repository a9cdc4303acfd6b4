"""Read the operations of a spec's `ops`, the scalars that a chain sets, and the names of auxiliary outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from yaml.nodes import MappingNode, Node, SequenceNode

from generator.epilogue import formula, gated_units
from generator.epilogue.auxiliary_outputs import ACCUMULATED, AUXILIARY, AuxiliaryOutput, named
from generator.epilogue.formula import FUNCTIONS, FormulaError, Number
from generator.epilogue.gradient_operation import GRAD, GradientOperation, gradient_name, why_no_gradient
from generator.epilogue.operations import SHAPES, EpilogueOperation, Settings, written
from generator.epilogue.quantisation import (
    BLOCK,
    DEFAULT_BLOCK,
    FP32,
    PARAMETERS,
    QUANTIZE,
    SCALE,
    SCALES,
    TO,
    Quantisation,
    quantisation,
)
from generator.language.document import described, plain
from generator.language.elements import FORMATS
from generator.language.errors import nearest, shown
from generator.language.keys import OPERATION_KEYS
from generator.language.quantised_results import BLOCKS, RESULT_TYPES
from generator.language.reader import Reader
from generator.language.reserved_names import is_taken
from generator.language.type_names import nearest_type
from generator.language.vocabulary import ROUNDING

#: Longer names of operands would not fit into a launcher's lines.
_LONGEST_OPERAND = 24
#: Longer names of outputs would not fit into a kernel's lines.
_LONGEST_OUTPUT = 14


def read_operations(
    reader: Reader, node: Node, known: Mapping[str, EpilogueOperation]
) -> dict[str, EpilogueOperation | None]:
    """The operations of the mapping `ops`, by name; None for each that has a mistake."""
    operations: dict[str, EpilogueOperation | None] = {}
    spelled = {written(name): name for name in ("none", gated_units.INTERLEAVED, *known)}
    spelled |= {written(word): word for name, operation in known.items() for word in _gradients(name, operation)}
    # In kernels' names the axis `rounding` follows the chain.
    spelled |= {f"rounding{word}": f"rounding: {word}" for word in ROUNDING}
    for name, key, entry in reader.entries(node, "ops"):
        if reader.name(key, "ops", name) is None:
            continue
        if name in known or name in ("none", GRAD):
            reader.wrong(key, f"ops: {name!r} is a built-in operation; choose another name")
        elif name == gated_units.INTERLEAVED:
            reader.wrong(
                key, f"ops: {name!r} is the order of a gated linear unit in the names of kernels; choose another name"
            )
        operations[name] = operation = _operation(reader, entry, f"ops.{name}")
        words = {written(word): word for word in (name, *_gradients(name, operation))}
        same = [(word, spelled[text]) for text, word in words.items() if spelled.get(text, word) != word]
        if same:
            message = f"{same[0][0]!r} and {same[0][1]!r} would be the same in the names of kernels"
            reader.wrong(key, f"ops: {message}, which drop underscores; choose another name")
        spelled |= words
    return operations


def _gradients(name: str, operation: EpilogueOperation | None) -> list[str]:
    """The name of the gradient of an operation, if it has one."""
    return [] if operation is None or why_no_gradient(operation) is not None else [gradient_name(name)]


def _operation(reader: Reader, node: Node, what: str) -> EpilogueOperation | None:
    before = len(reader.mistakes)
    entries = reader.mapping(node, OPERATION_KEYS, what, required=("formula",))
    text = reader.text(entries["formula"], f"{what}.formula") if "formula" in entries else None
    operands: dict[str, str] = {}
    scalars: dict[str, Number | None] = {}
    spelled: dict[str, str] = {}
    if "operands" in entries:
        for name, key, value in reader.entries(entries["operands"], f"{what}.operands"):
            read_keyword(reader, key, f"{what}.operands", name)
            shape = _shape(reader, value, f"{what}.operands.{name}")
            if shape is not None:
                operands[name] = shape
                spelled.setdefault(written(name), name)
    if "scalars" in entries:
        for name, key, value in reader.entries(entries["scalars"], f"{what}.scalars"):
            _scalar_name(reader, key, f"{what}.scalars", name, spelled, left=plain(value) is None)
            spelled.setdefault(written(name), name)
            scalars[name] = None if plain(value) is None else reader.number(value, f"{what}.scalars.{name}")
    if text is None or len(reader.mistakes) > before:
        return None
    operation = EpilogueOperation(text, operands, scalars)
    if operation.gated and gated_units.ORDER in scalars:
        message = f"{gated_units.ORDER!r} is a parameter of every formula with 'gate'; choose another name"
        reader.wrong(entries["scalars"], f"{what}.scalars: {message}")
        return None
    try:
        operation.check()
    except FormulaError as error:
        reader.wrong(reader.within(entries["formula"], error.column), f"{what}.formula: {error}")
        return None
    return operation


#: The names that every formula may read.
_VALUES = {formula.X: "the running value", formula.GATE: "the gate's value"}


def read_keyword(reader: Reader, key: Node, what: str, name: str, longest: int = _LONGEST_OPERAND) -> None:
    """Record a mistake if `name` cannot be a keyword of the launcher."""
    if reader.name(key, what, name) is None:
        return
    if len(name) > longest:
        reader.wrong(key, f"{what}: the name has {len(name)} characters, at most {longest} are allowed")
    elif name in _VALUES or name in FUNCTIONS:
        reader.wrong(key, f"{what}: {name!r} is {_VALUES.get(name, 'a function')} of a formula; choose another name")
    elif is_taken(name):
        reader.wrong(key, f"{what}: {name!r} is a name that kernels or launchers use themselves; choose another")


def _scalar_name(reader: Reader, key: Node, what: str, name: str, before: Mapping[str, str], *, left: bool) -> None:
    """Check the name of a scalar, which is a keyword of the launcher if the call gives it (`left`).

    `before` has the operands and scalars before it, as they are written in kernels' names.
    """
    if left:
        read_keyword(reader, key, what, name)
    elif reader.name(key, what, name) is not None and name in _VALUES:
        reader.wrong(key, f"{what}: {name!r} is {_VALUES[name]} of a formula; choose another name")
    other = before.get(written(name))
    if other is not None:
        reader.wrong(key, f"{what}: {name!r} and {other!r} differ only in underscores; choose another name")


def _shape(reader: Reader, node: Node, what: str) -> str | None:
    parts = tuple(map(plain, node.value)) if isinstance(node, SequenceNode) else None
    # True equals 1 as a key.
    if parts is not None and parts in SHAPES and not any(part is True for part in parts):
        return SHAPES[parts]
    shapes = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in SHAPES)
    reader.wrong(node, f"{what}: {described(node)} is not a shape of an operand; shapes: {shapes} ([] is a number)")
    return None


def read_settings(reader: Reader, node: Node, name: str, operation: EpilogueOperation) -> Settings | None:
    """The settings of `operation` in a chain, in the operation's order, without those that are the default."""
    before = len(reader.mistakes)
    what = f"epilogue.{name}"
    if not operation.parameters:
        reader.wrong(node, f"epilogue: {name!r} takes no parameters")
        return None
    parameters: dict[str, Number | str] = {}
    for key, key_node, value_node in reader.entries(node, what):
        if key not in operation.parameters:
            reader.wrong(key_node, f"{what}: no parameter {shown(key)}; {nearest(key, operation.parameters)}")
            continue
        if operation.gated and key == gated_units.ORDER:
            if plain(value_node) not in gated_units.ORDERS:
                reader.unknown(value_node, f"{what}.{key}", nearest(str(plain(value_node)), gated_units.ORDERS))
            elif plain(value_node) != gated_units.CONCATENATED:
                parameters[key] = gated_units.INTERLEAVED
            continue
        value = reader.number(value_node, f"{what}.{key}")
        if value is not None and math.isinf(value) and value != operation.scalars[key]:
            reader.wrong(value_node, f"{what}.{key}: expected a finite number, found {described(value_node)}")
        elif value == 0 and operation is ACCUMULATED:
            reader.wrong(value_node, f"{what}.{key}: C is not read with a beta of 0; leave {name!r} out")
        elif value is not None and value != operation.scalars[key]:
            parameters[key] = value
    if len(reader.mistakes) > before:
        return None
    settings = tuple((key, parameters[key]) for key in operation.parameters if key in parameters)
    return settings if settled(reader, node, name, operation, settings) else None


def settled(reader: Reader, node: Node, name: str, operation: EpilogueOperation, settings: Settings = ()) -> bool:
    """Whether the operation is valid with these settings; if not, a mistake is recorded."""
    if operation.bounds and not any(key in operation.bounds for key, _ in settings):
        bound = f"{operation.bounds[0]}: 0"
        example = f"[{{{name}: {{{bound}}}}}]"
        if isinstance(operation, GradientOperation):
            example = f"[{{{GRAD}: {{op: {name.removeprefix(GRAD)[1:-1]}, {bound}}}}}]"
        reader.wrong(node, f"epilogue: {name!r} needs one of {', '.join(operation.bounds)}, as in {example}")
        return False
    try:
        operation.tree(settings)
    except FormulaError as error:
        reader.wrong(node, f"epilogue.{name}: with these parameters its formula {operation.formula!r} {error}")
        return False
    return True


def read_output(reader: Reader, node: Node, word: str) -> AuxiliaryOutput | None:
    """The auxiliary output `word` with the name in `node`; None if the name is illegal, with the mistake recorded."""
    before = len(reader.mistakes)
    name, what = plain(node), f"epilogue.{word}"
    if isinstance(node, MappingNode) and not node.value:
        return AUXILIARY[word]
    if isinstance(node, (MappingNode, SequenceNode)) or not isinstance(name, str):
        reason = f"expected the name of the output, as in {{{word}: hidden}}, found {described(node)}"
        reader.wrong(node, f"{what}: {reason}")
        return None
    read_keyword(reader, node, what, name, _LONGEST_OUTPUT)
    if len(reader.mistakes) == before and "_" in name and name != AUXILIARY[word].output:
        message = f"{name!r} has an underscore, which the names of kernels drop; choose a name of letters and digits"
        reader.wrong(node, f"{what}: {message}")
    return named(AUXILIARY[word], name) if len(reader.mistakes) == before else None


#: What a spec writes for a result in fp8.
_EXAMPLE = f"[{{{QUANTIZE}: {{{TO}: fp8e4m3, {BLOCK}: {DEFAULT_BLOCK}}}}}]"


#: What to write for blocks that are whole rows, whose scale no program knows before all of them are computed.
_ONE_SCALE = "for one scale a row, scale_m with dtype.out where it is known before, else row_amax returns the maxima"


def without_type(reader: Reader, node: Node) -> None:
    """Record that `quantize` says no type."""
    reader.wrong(node, f"epilogue: {QUANTIZE!r} needs a type, as in {_EXAMPLE}")


def read_quantisation(reader: Reader, node: Node) -> Quantisation | None:
    """The parameters of `quantize`; None where one is illegal, with the mistake recorded."""
    before, what = len(reader.mistakes), f"epilogue.{QUANTIZE}"
    if not isinstance(node, MappingNode):
        reader.wrong(node, f"{what}: expected a mapping, as in {_EXAMPLE}, found {described(node)}")
        return None
    entries = reader.mapping(node, PARAMETERS, what, required=(TO,))
    to, scale = plain(entries[TO]) if TO in entries else None, plain(entries[SCALE]) if SCALE in entries else FP32
    block = plain(entries[BLOCK]) if BLOCK in entries else DEFAULT_BLOCK
    if TO in entries and to not in RESULT_TYPES:
        reader.unknown(entries[TO], f"{what}.{TO}", nearest_type(str(to), RESULT_TYPES))
    own = FORMATS[to] if isinstance(to, str) and to in FORMATS else None
    if BLOCK in entries and own is not None and block != own.block:
        reason = f"blocks of {to} have {own.block} columns, found {described(entries[BLOCK])}"
        reader.wrong(entries[BLOCK], f"{what}.{BLOCK}: {reason}")
    elif BLOCK in entries and own is None and (type(block) is not int or block not in BLOCKS):
        reason = f"{described(entries[BLOCK])} columns; a block has one of {', '.join(map(str, BLOCKS))}"
        reader.wrong(entries[BLOCK], f"{what}.{BLOCK}: {reason}; {_ONE_SCALE}")
    if SCALE in entries and own is not None:
        reason = f"scales of {to} are {own.scales[0]}, which no spec can change"
        reader.wrong(entries[SCALE], f"{what}.{SCALE}: {reason}")
    elif scale not in SCALES:
        reader.unknown(entries[SCALE], f"{what}.{SCALE}", nearest(str(scale), SCALES))
    if len(reader.mistakes) > before:
        return None
    # A format has blocks and scales of its own.
    return quantisation(str(to), *(() if own is not None else (int(str(block)), str(scale))))
