"""Operations of an epilogue: one entry each, from which kernel, launcher, docstring, reference and checks follow.

The built-in ones are in `operations.yaml`, in the form of a spec's own `ops`, and read by the same reader.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from yaml.nodes import Node, SequenceNode

from generator import folding, formula, gates
from generator.document import compose, plain
from generator.errors import SpecError, nearest, shown
from generator.formula import FUNCTIONS, FormulaError, Number
from generator.names import is_taken
from generator.reading import Reader
from generator.vocabulary import ROUNDING

#: Shapes that an operand may have: a number, an element on the device, a vector along M or N, a matrix in C's layout.
SCALAR, ELEMENT, ROWS, COLUMNS, MATRIX = "", "1", "M", "N", "MN"
#: The shape of what has shape N in front of a gate.
HALVES = "2N"
#: The result itself, as it was before the kernel writes it; of no operation of a spec's own.
OUT = "C"

#: Each as a spec writes it.
SHAPES: Mapping[tuple[object, ...], str] = {
    (): SCALAR,
    (1,): ELEMENT,
    ("M",): ROWS,
    ("N",): COLUMNS,
    ("M", "N"): MATRIX,
}

#: What a chain sets of an operation: its scalars, and the order of a gate.
Settings = tuple[tuple[str, Number | str], ...]

#: Longer names of operands would not fit into a launcher's lines.
_LONGEST_NAME = 24


@dataclass(frozen=True)
class Operation:
    """One epilogue operation: a formula over the running value `x`, its operands and its scalars.

    An operand has a shape. A scalar has a default, or None where each call gives it. One whose default is infinite is a
    bound that may be left out, though not every one of them.
    """

    formula: str
    operands: Mapping[str, str] = field(default_factory=dict, hash=False)
    scalars: Mapping[str, Number | None] = field(default_factory=dict, hash=False)

    @property
    def names(self) -> frozenset[str]:
        """What the formula is over."""
        return frozenset({formula.X, *([formula.GATE] if self.gated else []), *self.operands, *self.scalars})

    @cached_property
    def gated(self) -> bool:
        """Whether it is a gate, which makes one column of two."""
        return re.search(rf"\b{formula.GATE}\b", self.formula) is not None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The scalars of which at least one must be given."""
        return tuple(name for name, value in self.scalars.items() if value is not None and math.isinf(value))

    @property
    def parameters(self) -> tuple[str, ...]:
        """What a chain may set."""
        return (*self.scalars, *([gates.ORDER] if self.gated else []))

    @property
    def arguments(self) -> Mapping[str, str]:
        """The operands, and the scalars that are left to the call, each with its shape."""
        return {**self.operands, **{name: SCALAR for name, value in self.scalars.items() if value is None}}

    def tree(self, settings: Settings = ()) -> ast.expr:
        """The formula with its scalars' values; raise `FormulaError` where they make none."""
        values = {name: value for name, value in self.scalars.items() if value is not None}
        values |= {name: value for name, value in settings if not isinstance(value, str)}
        return folding.bind(self.formula, self.names, tuple(values.items()))

    def check(self) -> None:
        """Raise `FormulaError` unless the formula is one, and of everything that the operation names."""
        tree = formula.parse(self.formula, self.names)
        unused = sorted(self.names - set(formula.used(tree)))
        if unused:
            raise FormulaError(f"{unused[0]!r} is not used", 1)
        inside = {
            id(argument): node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            for argument in node.args
        }
        for node in formula.reads(tree):
            wanted = "max" if self.scalars.get(node.id) == -math.inf else "min"
            if node.id in self.bounds and inside.get(id(node)) != wanted:
                told = (
                    f"{node.id!r} is {self.scalars[node.id]} by default, which only {wanted} takes, as one of its two"
                )
                raise FormulaError(told, formula.column_of(node))
        if not self.bounds:
            self.tree()


def written(name: str) -> str:
    """An operation or a scalar as a kernel's name has it."""
    return name.replace("_", "")


def read_operations(reader: Reader, node: Node, known: Mapping[str, Operation]) -> dict[str, Operation | None]:
    """The operations that a mapping of names to entries tells of; None for each that has a mistake."""
    found: dict[str, Operation | None] = {}
    spelled = {written(name): name for name in ("none", gates.INTERLEAVED, *known)}
    # A later axis stands behind the chain.
    spelled |= {f"rounding{word}": f"rounding: {word}" for word in ROUNDING}
    for name, key, entry in reader.entries(node, "ops"):
        if reader.name(key, "ops", name) is None:
            continue
        if name in known or name == "none":
            reader.wrong(key, f"ops: {name!r} is an operation that every spec has; choose another name")
        elif name == gates.INTERLEAVED:
            reader.wrong(key, f"ops: {name!r} is an order of gates, which names of kernels have; choose another name")
        elif written(name) in spelled:
            told = f"{name!r} and {spelled[written(name)]!r} would be one in the names of kernels"
            reader.wrong(key, f"ops: {told}, which drop underscores; choose another name")
        found[name] = _operation(reader, entry, f"ops.{name}")
        spelled[written(name)] = name
    return found


def _operation(reader: Reader, node: Node, what: str) -> Operation | None:
    before = len(reader.mistakes)
    found = reader.mapping(node, ("formula", "operands", "scalars"), what, required=("formula",))
    text = reader.text(found["formula"], f"{what}.formula") if "formula" in found else None
    operands: dict[str, str] = {}
    scalars: dict[str, Number | None] = {}
    if "operands" in found:
        for name, key, value in reader.entries(found["operands"], f"{what}.operands"):
            read_keyword(reader, key, f"{what}.operands", name)
            shape = _shape(reader, value, f"{what}.operands.{name}")
            if shape is not None:
                operands[name] = shape
    if "scalars" in found:
        for name, key, value in reader.entries(found["scalars"], f"{what}.scalars"):
            _scalar_name(reader, key, f"{what}.scalars", name, (*operands, *scalars), left=plain(value) is None)
            scalars[name] = None if plain(value) is None else reader.number(value, f"{what}.scalars.{name}")
    if text is None or len(reader.mistakes) > before:
        return None
    operation = Operation(text, operands, scalars)
    if operation.gated and gates.ORDER in scalars:
        told = f"{gates.ORDER!r} is a parameter that every gate has, a formula with 'gate'; choose another name"
        reader.wrong(found["scalars"], f"{what}.scalars: {told}")
        return None
    try:
        operation.check()
    except FormulaError as error:
        reader.wrong(reader.within(found["formula"], error.column), f"{what}.formula: {error}")
        return None
    return operation


#: The values that a formula has by itself.
_VALUES = {formula.X: "the running value", formula.GATE: "the gate's value"}


def read_keyword(reader: Reader, key: Node, what: str, name: str, longest: int = _LONGEST_NAME) -> None:
    """Record as a mistake what no keyword of a launcher may be called."""
    if reader.name(key, what, name) is None:
        return
    if len(name) > longest:
        reader.wrong(key, f"{what}: the name has {len(name)} characters, at most {longest} are allowed")
    elif name in _VALUES or name in FUNCTIONS:
        reader.wrong(key, f"{what}: {name!r} is {_VALUES.get(name, 'a function')} of a formula; choose another name")
    elif is_taken(name):
        reader.wrong(key, f"{what}: {name!r} is a name that kernels or launchers have for themselves; choose another")


def _scalar_name(reader: Reader, key: Node, what: str, name: str, before: tuple[str, ...], *, left: bool) -> None:
    """The name of a scalar, which is a keyword of the launcher where it is `left` to the call."""
    if left:
        read_keyword(reader, key, what, name)
    elif reader.name(key, what, name) is not None and name in _VALUES:
        reader.wrong(key, f"{what}: {name!r} is {_VALUES[name]} of a formula; choose another name")
    for other in before:
        if written(other) == written(name):
            reader.wrong(key, f"{what}: {name!r} and {other!r} are written alike; choose another name")


def _shape(reader: Reader, node: Node, what: str) -> str | None:
    parts = tuple(map(plain, node.value)) if isinstance(node, SequenceNode) else None
    # True is 1 to a mapping.
    if parts is not None and parts in SHAPES and not any(part is True for part in parts):
        return SHAPES[parts]
    shapes = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in SHAPES)
    value = list(parts) if parts is not None else plain(node)
    reader.wrong(node, f"{what}: no shape of an operand: {shown(value)}; shapes: {shapes} ([] is a number)")
    return None


def read_settings(reader: Reader, node: Node, name: str, operation: Operation) -> Settings | None:
    """What a chain sets for `operation`, scalars in its own order, less what is the default anyway."""
    before = len(reader.mistakes)
    what = f"epilogue.{name}"
    if not operation.parameters:
        reader.wrong(node, f"epilogue: {name!r} takes no parameters")
        return None
    found: dict[str, Number | str] = {}
    for key, key_node, value_node in reader.entries(node, what):
        if key not in operation.parameters:
            reader.wrong(key_node, f"{what}: no parameter {shown(key)}; {nearest(key, operation.parameters)}")
            continue
        if operation.gated and key == gates.ORDER:
            if plain(value_node) not in gates.ORDERS:
                told = nearest(str(plain(value_node)), gates.ORDERS)
                reader.wrong(value_node, f"{what}.{key}: unknown value {shown(plain(value_node))}; {told}")
            elif plain(value_node) != gates.CONCATENATED:
                found[key] = gates.INTERLEAVED
            continue
        value = reader.number(value_node, f"{what}.{key}")
        if value is not None and math.isinf(value) and value != operation.scalars[key]:
            reader.wrong(value_node, f"{what}.{key}: expected a finite number, found {value}")
        elif value is not None and value != operation.scalars[key]:
            found[key] = value
    if len(reader.mistakes) > before:
        return None
    settings = tuple((key, found[key]) for key in operation.parameters if key in found)
    return settings if settled(reader, node, name, operation, settings) else None


def settled(reader: Reader, node: Node, name: str, operation: Operation, settings: Settings = ()) -> bool:
    """Whether an operation is one with these settings."""
    if operation.bounds and not any(key in operation.bounds for key, _ in settings):
        example = f"[{{{name}: {{{operation.bounds[0]}: 0}}}}]"
        reader.wrong(node, f"epilogue: {name!r} needs one of {', '.join(operation.bounds)}, as in {example}")
        return False
    try:
        operation.tree(settings)
    except FormulaError as error:
        reader.wrong(node, f"epilogue.{name}: with these parameters its formula {operation.formula!r} {error}")
        return False
    return True


def _built_in() -> dict[str, Operation]:
    path = Path(__file__).with_name("operations.yaml")
    reader = Reader(path)
    found = read_operations(reader, compose(path, path.read_text(encoding="utf-8")), {})
    if reader.mistakes:
        raise SpecError(reader.mistakes)
    return {name: operation for name, operation in found.items() if operation is not None}


#: The built-in operations.
OPERATIONS: Mapping[str, Operation] = _built_in()


def table() -> str:
    """The built-in operations as a Markdown table."""
    rows = ["| operation | formula | operands | parameters |", "|---|---|---|---|"]
    spelled = {shape: f"[{', '.join(map(str, parts))}]" for parts, shape in SHAPES.items()}
    for name, operation in OPERATIONS.items():
        operands = ", ".join(f"`{operand}` {spelled[shape]}" for operand, shape in operation.operands.items())
        parameters = {**operation.scalars, **({gates.ORDER: gates.CONCATENATED} if operation.gated else {})}
        scalars = ", ".join(f"`{name}` {value}" for name, value in parameters.items())
        rows.append(f"| `{name}` | `{operation.formula}` | {operands} | {scalars} |")
    return "\n".join(rows)


def functions() -> str:
    """The functions of the formula language as a Markdown table."""
    rows = ["| function | what it is |", "|---|---|"]
    rows += [f"| `{name}({function.parameters})` | {function.meaning} |" for name, function in FUNCTIONS.items()]
    return "\n".join(rows)
