"""Read the operations of a spec's `ops`, and the names that calls give their operands."""

from __future__ import annotations

from collections.abc import Mapping

from yaml.nodes import Node, SequenceNode

from generator.epilogue import formula, gated_units
from generator.epilogue.formula import FUNCTIONS, FormulaError, Number
from generator.epilogue.gradient_operation import GRAD, gradient_name, why_no_gradient
from generator.epilogue.operations import SHAPES, EpilogueOperation, written
from generator.language.document import described, plain
from generator.language.keys import OPERATION_KEYS
from generator.language.reader import Reader
from generator.language.reserved_names import is_taken
from generator.language.vocabulary import ROUNDING

#: Longer names of operands would not fit into a launcher's lines.
_LONGEST_OPERAND = 24


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
    of = f"{what}.operands"
    for name, key, value in reader.entries(entries["operands"], of) if "operands" in entries else ():
        read_keyword(reader, key, of, name)
        if (shape := _shape(reader, value, f"{of}.{name}")) is not None:
            operands[name] = shape
    of = f"{what}.scalars"
    for name, key, value in reader.entries(entries["scalars"], of) if "scalars" in entries else ():
        if plain(value) is None:
            # Each call gives it.
            read_keyword(reader, key, of, name)
        elif reader.name(key, of, name) is not None and name in _VALUES:
            reader.wrong(key, f"{of}: {name!r} is {_VALUES[name]} of a formula; choose another name")
        if same := [each for each in (*operands, *scalars) if written(each) == written(name)]:
            reader.wrong(key, f"{of}: {name!r} and {same[0]!r} differ only in underscores; choose another name")
        scalars[name] = None if plain(value) is None else reader.number(value, f"{of}.{name}")
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


def _shape(reader: Reader, node: Node, what: str) -> str | None:
    parts = tuple(map(plain, node.value)) if isinstance(node, SequenceNode) else None
    # True equals 1 as a key.
    if parts is not None and parts in SHAPES and not any(part is True for part in parts):
        return SHAPES[parts]
    shapes = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in SHAPES)
    reader.wrong(node, f"{what}: {described(node)} is not a shape of an operand; shapes: {shapes} ([] is a number)")
    return None
