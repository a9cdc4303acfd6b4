"""YAML text as a tree of nodes with positions: scalars by the YAML 1.2 core schema, and no object constructed.

PyYAML composes the tree without a constructor, so that no tag can create an object.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from generator.language.errors import MOST_MISTAKES, Mistake, SpecError, shortened, shown
from generator.language.yaml_hints import hint

Scalar = str | int | float | bool | None

_NULL = re.compile(r"(null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAGS = {
    ScalarNode: "tag:yaml.org,2002:str",
    SequenceNode: "tag:yaml.org,2002:seq",
    MappingNode: "tag:yaml.org,2002:map",
}
_DEEPEST = 16
_MOST_DIGITS = 1000
#: The most nodes of a spec, where an alias counts as what it stands for: PyYAML needs seconds for so many.
LARGEST_TREE = 100_000


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


def place(node: Node) -> Place:
    """The position at which `node` begins."""
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


class _TreeError(yaml.MarkedYAMLError):
    """A tree with a cycle, nested too deeply or of too many nodes, found before it is complete."""


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's loader up to the composed tree: no implicit types, no constructor, at most `LARGEST_TREE` nodes.

    `mistakes` collects tags and characters that a spec cannot have.
    """

    def __init__(self, path: Path, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.path = path
        self.mistakes: list[Mistake] = []
        #: The nodes so far, those of each finished node, and in how many the next one is.
        self.count = self.depth = 0
        self.sizes: dict[int, int] = {}

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """The next node; raise `_TreeError` for an alias of a node that it is part of, or where a limit is passed."""
        before = self.count
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.depth > _DEEPEST:
            raise _TreeError(problem="nested too deeply", problem_mark=mark)
        self.depth += 1
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        if node is None:
            return None
        if alias and id(node) not in self.sizes:
            raise _TreeError(problem="an alias stands for a node that it is part of", problem_mark=mark)
        if not alias:
            self._check(node)
        self.count += self.sizes[id(node)] if alias else 1
        self.sizes.setdefault(id(node), self.count - before)
        if self.count > LARGEST_TREE:
            problem = f"more than {LARGEST_TREE:,} nodes, where an alias counts as what it stands for"
            raise _TreeError(problem=problem, problem_mark=mark)
        return node

    def _check(self, node: Node) -> None:
        """Record a tag, and a character that is none."""
        if node.tag not in (_TAGS[type(node)], "?"):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!", 1)
            message = f"tags are not part of the spec language, found {shown(tag)}"
            self.mistakes.append(Mistake(self.path, *place(node), message))
        surrogate = _SURROGATE.search(node.value) if isinstance(node, ScalarNode) else None
        if surrogate is not None:
            # Only an escape can be half of a pair: it is no character, and no file can hold it.
            message = f"the character U+{ord(surrogate[0]):04X} is not allowed in YAML"
            self.mistakes.append(Mistake(self.path, *place(node), message))
        if len(self.mistakes) >= MOST_MISTAKES:
            raise SpecError(self.mistakes)


def compose(path: Path, text: str) -> Node:
    """The tree of the one document in `text`; raise `SpecError` if it is not YAML, empty, or nested too deeply."""

    def wrong(line: int, column: int, message: str) -> SpecError:
        return SpecError([Mistake(path, line, column, message)])

    loader: _Loader | None = None
    try:
        loader = _Loader(path, text)
        root = loader.get_single_node()
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise wrong(line, column, f"the character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        advice = hint(error, text)
        message = f"not YAML: {reason}{f'; {advice}' if advice else ''}"
        if isinstance(error, _TreeError):
            message = f"not a spec: {reason}"
        raise wrong(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, message) from None
    except (ValueError, OverflowError):
        # PyYAML makes a character of any 32 bits that an escape has, and a version of any number of digits.
        assert loader is not None
        mark = loader.get_mark()
        message = "not YAML: an escape or a number that stands for nothing"
        raise wrong(mark.line + 1, mark.column + 1, message) from None
    if root is None:
        raise wrong(1, 1, "the file is empty; a spec needs summary, layout and dtype")
    if loader.mistakes:
        raise SpecError(loader.mistakes)
    return root


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
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) <= _MOST_DIGITS else text
    if _FLOAT.match(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def rounded_away(node: Node) -> bool:
    """Whether a number is so large or so small that no float has it: `1e999`, `1e-999`."""
    if not isinstance(node, ScalarNode) or node.style is not None or not _FLOAT.match(node.value):
        return False
    value = scalar(node)
    digits = re.search("[1-9]", re.split("[eE]", node.value)[0]) is not None
    return isinstance(value, float) and digits and (value == 0 or math.isinf(value))


def described(node: Node, limit: int = 60) -> str:
    """A node for a message, as YAML has it, on one line: text in quotes, and a list or a mapping that is short."""
    if isinstance(node, ScalarNode):
        value = scalar(node)
        if value is None:
            return node.value or "nothing"
        is_text = isinstance(value, str) and (node.style is not None or not _INT.match(value))
        return shown(value, limit) if is_text else shortened(node.value, limit)
    description, parts = shown(plain(node)), _parts(node)
    if not parts or not all(isinstance(part, ScalarNode) for part in parts):
        return description
    items = [described(part, limit) if getattr(part, "style", None) else str(part.value) for part in parts]
    if isinstance(node, SequenceNode):
        text = f"[{', '.join(items)}]"
    else:
        text = f"{{{', '.join(f'{key}: {value}' for key, value in zip(items[::2], items[1::2]))}}}"
    return text if len(text) <= limit else description


def _parts(node: Node) -> list[Node]:
    """The children of a node."""
    if isinstance(node, ScalarNode):
        return []
    return [part for pair in node.value for part in pair] if isinstance(node, MappingNode) else list(node.value)


class NodeDescription(str):
    """The description of a node that is not a scalar; it never equals the text of a scalar."""

    def __repr__(self) -> str:
        return str(self)


def plain(node: Node) -> object:
    """The value of a scalar, or the description of a list or a mapping."""
    if isinstance(node, ScalarNode):
        return scalar(node)
    empty = "" if node.value else "n empty"
    return NodeDescription(f"a{empty} {'list' if isinstance(node, SequenceNode) else 'mapping'}")
