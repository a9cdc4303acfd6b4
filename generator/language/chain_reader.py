"""Read the axis `epilogue`: the operations of a chain and their parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from yaml.nodes import MappingNode, Node, SequenceNode

from generator.epilogue import gated_units
from generator.epilogue.auxiliary_outputs import ACCUMULATE, ACCUMULATED, AUXILIARY, named
from generator.epilogue.chain import Epilogue, Used, why_no_chain
from generator.epilogue.formula import FormulaError, Number
from generator.epilogue.gradient_operation import (
    GRAD,
    GradientOperation,
    gradient_name,
    gradient_of,
    why_no_gradient,
)
from generator.epilogue.operations import EpilogueOperation, Settings
from generator.epilogue.quantisation import BLOCK, DEFAULT_BLOCK, FP32, PARAMETERS, QUANTIZE, SCALE, SCALES, TO
from generator.epilogue.quantisation import quantisation as quantisation_to
from generator.language.built_in import BUILT_IN
from generator.language.document import described, plain
from generator.language.elements import FORMATS
from generator.language.errors import nearest, shown
from generator.language.operation_reader import read_keyword
from generator.language.other_names import nearest_operation, nearest_type
from generator.language.quantised_results import BLOCKS, RESULT_TYPES
from generator.language.reader import Reader

#: The operations that a chain may use; None for one whose definition has a mistake, which is already recorded.
Operations = Mapping[str, EpilogueOperation | None]
#: An operation as it is written: its name, the node of the name, and that of its parameters.
_Written = tuple[str, Node, Node | None]

#: The most operations of a chain. The name of a kernel, which has all of them, has room for fewer.
LONGEST_CHAIN = 100
#: Longer names of outputs would not fit into a kernel's lines.
_LONGEST_OUTPUT = 14
#: The gradient of an operation.
_GRADIENT = re.compile(rf"{GRAD}\((.*)\)", re.S)
#: What a spec writes for a result in fp8.
_EXAMPLE = f"[{{{QUANTIZE}: {{{TO}: fp8e4m3, {BLOCK}: {DEFAULT_BLOCK}}}}}]"
#: What to write for blocks that are whole rows, whose scale no program knows before all of them are computed.
_ONE_SCALE = "for one scale a row, scale_m with dtype.out where it is known before, else row_amax returns the maxima"


def read_epilogue(reader: Reader, node: Node, operations: Operations = BUILT_IN) -> Epilogue | None:
    """`none`, operations joined by `+`, or a list of operations; None where one has a mistake, which is recorded."""
    if plain(node) == "none":
        return Epilogue()
    items = [node]
    if isinstance(node, SequenceNode):
        items = reader.items(node, "epilogue")
    elif isinstance(node, MappingNode):
        operation = described(node.value[0][0]) if node.value else "an operation"
        reader.wrong(
            node, f"epilogue: {operation} with parameters must be in a list inside the axis's list: [[{{name: ...}}]]"
        )
        # Mistakes of its parameters are told in the same run.
        items = [node] if len(node.value) == 1 else []
    elif not isinstance(plain(node), str):
        reader.wrong(node, f"epilogue: expected none, operations joined by +, or a list, found {described(node)}")
        return None
    steps: list[Used | None] = []
    for item in items:
        steps += [each and _step(reader, *each, operations) for each in _written(reader, item)]
        if len(steps) > LONGEST_CHAIN:
            message = f"epilogue: the chain has {len(steps):,} operations, at most {LONGEST_CHAIN} are allowed"
            reader.wrong(node, message)
            return None
    used = [step for step in steps if step is not None]
    if isinstance(node, MappingNode) or not steps or len(used) < len(steps):
        return None
    chain = Epilogue.chain(used)
    reason = why_no_chain([operation for _, operation, _ in used])
    names = chain.keywords
    twice = next((name for name in names if names.count(name) > 1), None)
    if reason is not None:
        reader.wrong(node, f"epilogue: {chain.word} has {reason}")
    elif twice is not None:
        those = "keywords" if len(names) > len(chain.operands) else "operands"
        reader.wrong(node, f"epilogue: two {those} of {chain.word} would be called {twice!r}; rename that of an op")
    elif [step.operation for step in chain.steps].count(ACCUMULATE) > 1:
        reader.wrong(node, f"epilogue: {ACCUMULATE!r} reads C, so a chain has it at most once")
    else:
        return chain
    return None


def _written(reader: Reader, node: Node) -> list[_Written | None]:
    """The operations of an element of a chain: those that `+` joins, or one with its parameters.

    None for each that has a mistake, or where there are too many.
    """
    if isinstance(node, MappingNode) and len(node.value) == 1:
        key, settings = node.value[0]
        return [(str(plain(key)), key, settings)]
    text = plain(node)
    if isinstance(node, (MappingNode, SequenceNode)) or not isinstance(text, str):
        expected = "expected an operation, or one with parameters as {name: {...}}"
        reader.wrong(node, f"epilogue: {expected}, found {described(node)}")
        return [None]
    names = [name.strip(" ") for name in text.split("+")]
    if len(names) > LONGEST_CHAIN:
        return [None] * len(names)
    if not text:
        reader.wrong(node, "epilogue: expected an operation, found an empty text")
    elif "" in names:
        reason = "has a '+' without an operation on each side; write it as in bias+relu"
        reader.wrong(node, f"epilogue: {described(node)} {reason}")
    return [None] if "" in names else [(name, node, None) for name in names]


def _step(reader: Reader, name: str, node: Node, settings: Node | None, operations: Operations) -> Used | None:
    """An operation of a chain, or the gradient of one, with its settings."""
    gradient = None if settings is not None else _GRADIENT.fullmatch(name)
    if name == GRAD and settings is not None:
        entries = reader.entries(settings, f"epilogue.{GRAD}") if isinstance(settings, MappingNode) else []
        of = next((value for key, _, value in entries if key == "op"), None)
        if of is None:
            expected = f"expected an operation, as in {{{GRAD}: {{op: leaky_relu, negative_slope: 0.2}}}}"
            reader.wrong(settings, f"epilogue.{GRAD}: {expected}, found {described(settings)}")
            return None
        word = reader.text(of, f"epilogue.{GRAD}.op")
        if word is None:
            return None
        rest = [(key_node, value) for key, key_node, value in entries if key != "op"]
        name, node = gradient_name(word), of
        gradient = _GRADIENT.fullmatch(name)
        settings = MappingNode(settings.tag, rest, settings.start_mark, settings.end_mark) if rest else None
    operation = _known(reader, node, name, operations) if gradient is None else None
    if gradient is not None and _GRADIENT.fullmatch(gradient[1]):
        message = f"{gradient_name(gradient[1])!r} is a gradient of a gradient, which is not available"
        reader.wrong(node, f"epilogue: {message}")
    elif gradient is not None and (base := _known(reader, node, gradient[1], operations)) is not None:
        if reason := why_no_gradient(base):
            reader.wrong(node, f"epilogue: {name!r} is not available: {gradient[1]!r} {reason}")
        else:
            operation = gradient_of(base)
    if operation is None:
        return None
    if name == QUANTIZE:
        return _quantisation(reader, node, settings)
    if settings is None:
        return (name, operation, ()) if _settled(reader, node, name, operation) else None
    return (_output if name in AUXILIARY else _with_settings)(reader, settings, name, operation)


def _known(reader: Reader, node: Node, name: str, operations: Operations) -> EpilogueOperation | None:
    if name == "none":
        reader.wrong(node, "epilogue: 'none' cannot be part of a chain")
    elif name == GRAD:
        reader.wrong(node, f"epilogue: {GRAD!r} needs an operation, as in {gradient_name('gelu')}")
    elif name not in operations:
        reader.wrong(node, f"epilogue: unknown operation {shown(name)}; {nearest_operation(name, operations)}")
    return operations.get(name)


def _with_settings(reader: Reader, node: Node, name: str, operation: EpilogueOperation) -> Used | None:
    """An operation with its settings, in the operation's order, without those that are the default."""
    before, what = len(reader.mistakes), f"epilogue.{name}"
    if not operation.parameters:
        reader.wrong(node, f"epilogue: {name!r} takes no parameters")
        return None
    parameters: dict[str, Number | str] = {}
    for key, key_node, value_node in reader.entries(node, what):
        if key not in operation.parameters:
            reader.wrong(key_node, f"{what}: no parameter {shown(key)}; {nearest(key, operation.parameters)}")
            continue
        if operation.gated and key == gated_units.ORDER:
            order = reader.one_of(value_node, f"{what}.{key}", gated_units.ORDERS)
            if order not in (None, gated_units.CONCATENATED):
                parameters[key] = gated_units.INTERLEAVED
            continue
        value = reader.number(value_node, f"{what}.{key}")
        if value is not None and math.isinf(value) and value != operation.scalars[key]:
            reader.wrong(value_node, f"{what}.{key}: expected a finite number, found {described(value_node)}")
        elif value == 0 and operation is ACCUMULATED:
            reader.wrong(value_node, f"{what}.{key}: C is not read with a beta of 0; leave {name!r} out")
        elif value is not None and value != operation.scalars[key]:
            parameters[key] = value
    settings = tuple((key, parameters[key]) for key in operation.parameters if key in parameters)
    valid = len(reader.mistakes) == before and _settled(reader, node, name, operation, settings)
    return (name, operation, settings) if valid else None


def _settled(reader: Reader, node: Node, name: str, operation: EpilogueOperation, settings: Settings = ()) -> bool:
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


def _output(reader: Reader, node: Node, word: str, operation: EpilogueOperation) -> Used | None:
    """The auxiliary output `word` with the name in `node`; None if the name is illegal, with the mistake recorded."""
    before, name, what = len(reader.mistakes), plain(node), f"epilogue.{word}"
    if isinstance(node, MappingNode) and not node.value:
        return word, operation, ()
    if isinstance(node, (MappingNode, SequenceNode)) or not isinstance(name, str):
        reason = f"expected the name of the output, as in {{{word}: hidden}}, found {described(node)}"
        reader.wrong(node, f"{what}: {reason}")
        return None
    read_keyword(reader, node, what, name, _LONGEST_OUTPUT)
    if len(reader.mistakes) == before and "_" in name and name != AUXILIARY[word].output:
        message = f"{name!r} has an underscore, which the names of kernels drop; choose a name of letters and digits"
        reader.wrong(node, f"{what}: {message}")
    return (word, named(AUXILIARY[word], name), ()) if len(reader.mistakes) == before else None


def _quantisation(reader: Reader, node: Node, settings: Node | None) -> Used | None:
    """`quantize` with its parameters; None where one is illegal, with the mistake recorded."""
    before, what = len(reader.mistakes), f"epilogue.{QUANTIZE}"
    if settings is None:
        reader.wrong(node, f"epilogue: {QUANTIZE!r} needs a type, as in {_EXAMPLE}")
        return None
    if not isinstance(settings, MappingNode):
        reader.wrong(settings, f"{what}: expected a mapping, as in {_EXAMPLE}, found {described(settings)}")
        return None
    entries = reader.mapping(settings, PARAMETERS, what, required=(TO,))
    to = reader.one_of(entries[TO], f"{what}.{TO}", RESULT_TYPES, nearest_type) if TO in entries else None
    # A format has blocks and scales of its own.
    own = FORMATS.get(to or "")
    if (at := entries.get(BLOCK)) is not None:
        block = plain(at)
        if own is not None and block != own.block:
            reader.wrong(at, f"{what}.{BLOCK}: blocks of {to} have {own.block} columns, found {described(at)}")
        elif own is None and (type(block) is not int or block not in BLOCKS):
            reason = f"{described(at)} columns; a block has one of {', '.join(map(str, BLOCKS))}"
            reader.wrong(at, f"{what}.{BLOCK}: {reason}; {_ONE_SCALE}")
    scale: str | None = FP32
    if SCALE in entries and own is not None:
        reason = f"scales of {to} are {own.scales[0]}, which no spec can change"
        reader.wrong(entries[SCALE], f"{what}.{SCALE}: {reason}")
    elif SCALE in entries:
        scale = reader.one_of(entries[SCALE], f"{what}.{SCALE}", SCALES)
    if to is None or scale is None or len(reader.mistakes) > before:
        return None
    if own is not None or BLOCK not in entries:
        return QUANTIZE, quantisation_to(to, scale=scale), ()
    return QUANTIZE, quantisation_to(to, int(str(plain(entries[BLOCK]))), scale), ()
