"""YAML text as a tree of nodes with positions: scalars by the YAML 1.2 core schema, and no object constructed.

PyYAML composes the tree without a constructor, so that no tag can create an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from generator.language.errors import Mistake, SpecError

Scalar = str | int | float | bool | None

_NULL = re.compile(r"(null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_TAGS = {
    ScalarNode: "tag:yaml.org,2002:str",
    SequenceNode: "tag:yaml.org,2002:seq",
    MappingNode: "tag:yaml.org,2002:map",
}
_DEEPEST = 16


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's loader up to the composed tree: no implicit types, no constructor."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


@dataclass(frozen=True)
class Place:
    """A line and a column, both from 1."""

    line: int
    column: int


def place(node: Node) -> Place:
    """The position at which `node` begins."""
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def compose(path: Path, text: str) -> Node:
    """The tree of the one document in `text`; raise `SpecError` if it is not YAML, empty, or nested too deeply."""

    def wrong(line: int, column: int, message: str) -> SpecError:
        return SpecError([Mistake(path, line, column, message)])

    try:
        root = _Loader(text).get_single_node()
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise wrong(line, column, f"the character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise wrong(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, f"not YAML: {reason}") from None
    except RecursionError:
        raise wrong(1, 1, "not a spec: nested too deeply") from None
    if root is None:
        raise wrong(1, 1, "the file is empty; a spec needs summary, layout and dtype")
    for node, depth in _walk(root, 0):
        at = place(node)
        if depth > _DEEPEST:
            raise wrong(at.line, at.column, "not a spec: nested too deeply")
        if node.tag not in (_TAGS[type(node)], "?"):
            raise wrong(at.line, at.column, f"tags are not part of the spec language, found {node.tag!r}")
    return root


def _walk(node: Node, depth: int) -> Iterator[tuple[Node, int]]:
    """Every node once, so that aliases cannot make the walk longer than the file."""
    seen: set[int] = set()
    open_nodes = [(node, depth)]
    while open_nodes:
        node, depth = open_nodes.pop()
        yield node, depth
        if id(node) in seen:
            continue
        seen.add(id(node))
        children = [part for pair in node.value for part in pair] if isinstance(node, MappingNode) else node.value
        if not isinstance(node, ScalarNode):
            open_nodes.extend((child, depth + 1) for child in children)


def scalar(node: ScalarNode) -> Scalar:
    """The value of a scalar by the core schema: a quoted scalar is always text."""
    text: str = node.value
    if node.style is not None:
        return text
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        # int() raises for more than 4,300 digits; no key of a spec accepts such a number.
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 20 else text
    if _FLOAT.match(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class Shape(str):
    """The description of a node that is not a scalar; it never equals the text of a scalar."""

    def __repr__(self) -> str:
        return str(self)


def plain(node: Node) -> object:
    """The value of a scalar, or the description of a list or a mapping."""
    if isinstance(node, ScalarNode):
        return scalar(node)
    empty = "" if node.value else "n empty"
    return Shape(f"a{empty} {'list' if isinstance(node, SequenceNode) else 'mapping'}")
