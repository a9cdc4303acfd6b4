"""Read YAML nodes; every mistake is recorded with its position instead of stopping at the first."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from generator.epilogue.formula import FormulaError, check_number
from generator.language.document import Place, described, place, plain, rounded_away, scalar
from generator.language.errors import MOST_MISTAKES, Mistake, SpecError, nearest, nearest_sums
from generator.language.family_names import why_no_identifier
from generator.language.model import NARROWEST
from generator.language.other_names import nearest_key

T = TypeVar("T")

LARGEST_NUMBER = 1 << 20


class Reader:
    """Reads one file's nodes; `mistakes` collects what is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mistakes: list[Mistake] = []

    def wrong(self, at: Node | Place, message: str) -> None:
        """Record a mistake at a node or a place; raise `SpecError` with all of them once there are `MOST_MISTAKES`."""
        where = at if isinstance(at, Place) else place(at)
        self.mistakes.append(Mistake(self.path, *where, message))
        if len(self.mistakes) == MOST_MISTAKES:
            more = f"there may be more mistakes; reading stops after {MOST_MISTAKES}"
            raise SpecError([*self.mistakes, Mistake(self.path, *where, more)])

    def mapping(
        self,
        node: Node,
        keys: Iterable[str],
        what: str,
        required: Iterable[str] = (),
        unused: Collection[str] = (),
    ) -> dict[str, Node]:
        """The values of a mapping by key; unknown, duplicate and missing keys are mistakes.

        No message offers the keys in `unused`.
        """
        known = list(keys)
        legal = [key for key in known if key not in unused]
        if not isinstance(node, MappingNode):
            self.wrong(node, f"{what}: expected a mapping with the keys {', '.join(legal)}, found {described(node)}")
            return {}
        entries: dict[str, Node] = {}
        for key_node, value in node.value:
            key = scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str) or key not in known:
                self.wrong(key_node, f"{what}: unknown key {described(key_node)}; {nearest_key(str(key), legal)}")
            elif key in entries:
                self.wrong(key_node, f"{what}: the key {key!r} appears twice, first on line {place(entries[key]).line}")
            else:
                entries[key] = value
        for key in required:
            if key not in entries and not any(plain(key_node) == key for key_node, _ in node.value):
                self.wrong(node, f"{what}: the key {key!r} is missing")
        return entries

    def items(self, node: Node, what: str) -> list[Node]:
        """The nodes of a list that is not empty; anything else is a mistake."""
        if not isinstance(node, SequenceNode):
            self.wrong(node, f"{what}: expected a list, found {described(node)}")
            return []
        if not node.value:
            self.wrong(node, f"{what}: the list is empty; give at least one value or leave the key out")
        return list(node.value)

    def distinct(
        self, node: Node, what: str, read: Callable[[Node], T | None], label: Callable[[T], str]
    ) -> list[tuple[T, Node]]:
        """The items of a list, or the single value, each with its node; the same value twice is a mistake."""
        nodes = self.items(node, what) if isinstance(node, SequenceNode) else [node]
        unique: dict[str, tuple[T, Node]] = {}
        for item in nodes:
            value = read(item)
            if value is None:
                continue
            if label(value) in unique:
                self.wrong(item, f"{what}: {label(value)!r} is listed twice")
            else:
                unique[label(value)] = (value, item)
        return list(unique.values())

    def text(self, node: Node, what: str) -> str | None:
        """A scalar that is text."""
        value = scalar(node) if isinstance(node, ScalarNode) else None
        if isinstance(value, str):
            return value
        quote = " (quote it to make it text)" if isinstance(node, ScalarNode) and value is not None else ""
        self.wrong(node, f"{what}: expected text, found {described(node)}{quote}")
        return None

    def one_of(
        self,
        node: Node,
        what: str,
        legal: Collection[str],
        hint: Callable[[str, Collection[str]], str] = nearest,
    ) -> str | None:
        """One of the legal words; for another `hint` makes the end of the message."""
        word = plain(node)
        if isinstance(word, str) and word in legal:
            return str(word)
        self.wrong(node, f"{what}: unknown value {described(node)}; {hint(str(word), legal)}")
        return None

    def entries(self, node: Node, what: str) -> list[tuple[str, Node, Node]]:
        """The entries of a mapping whose keys are names: key, key node, value node; a repeated key is a mistake."""
        if not isinstance(node, MappingNode):
            self.wrong(node, f"{what}: expected a mapping of names, found {described(node)}")
            return []
        entries_by_key: dict[str, tuple[str, Node, Node]] = {}
        for key_node, value in node.value:
            key = self.text(key_node, what)
            if key in entries_by_key:
                first = place(entries_by_key[key][1]).line
                self.wrong(key_node, f"{what}: the key {key!r} appears twice, first on line {first}")
            elif key is not None:
                entries_by_key[key] = key, key_node, value
        return list(entries_by_key.values())

    def number(self, node: Node, what: str) -> int | float | None:
        """A number that is finite in fp32, or an infinity; a whole number is an int, however it is written."""
        value = plain(node)
        if value == 0 and isinstance(value, float) and math.copysign(1, value) < 0:
            self.wrong(node, f"{what}: {described(node)} is 0, and a 0 has no sign here; write 0")
            return None
        if type(value) not in (int, float) or value != value:
            self.wrong(node, f"{what}: expected a number, found {described(node)}")
            return None
        assert isinstance(value, int | float)
        if rounded_away(node):
            reason = "is 0" if value == 0 else "is not finite"
            self.wrong(node, f"{what}: the number {reason} in fp32: {described(node)}")
            return None
        if abs(value) == math.inf:
            return value
        try:
            check_number(value, 1)
        except FormulaError as error:
            self.wrong(node, f"{what}: {error}: {described(node)}")
            return None
        return int(value) if value == int(value) and abs(value) < 2**53 else float(value)

    def within(self, node: Node, column: int) -> Node | Place:
        """The position of character `column` (from 1) of a scalar's text, or of the scalar if it spans lines."""
        at, end = place(node), node.end_mark
        quotes = 0 if getattr(node, "style", None) is None else 2
        if end.line + 1 != at.line or end.column + 1 - at.column != len(node.value) + quotes:
            return node
        return Place(at.line, at.column + quotes // 2 + column - 1)

    def whole(self, node: Node, what: str, *, powers_of_two: int = 0) -> int | None:
        """A whole number of at least 1; with `powers_of_two`, the sum of at most so many different powers of two."""
        value = plain(node)
        if type(value) is not int or value < 1:
            self.wrong(node, f"{what}: expected a whole number of at least 1, found {described(node)}")
            return None
        if value > LARGEST_NUMBER:
            self.wrong(node, f"{what}: expected at most {LARGEST_NUMBER}, found {value}")
            return None
        narrow = value.bit_count() > 1 and value & -value < NARROWEST
        if powers_of_two and (value.bit_count() > powers_of_two or narrow):
            wanted = "a power of two" if powers_of_two == 1 else "a power of two, or two or three together, as 208 is"
            near = nearest_sums(value, powers_of_two, NARROWEST if powers_of_two > 1 else 1)
            self.wrong(node, f"{what}: expected {wanted}, found {value}; nearest: {near}")
            return None
        return value

    def printable(self, node: Node, what: str, text: str) -> bool:
        """Whether `text` has no control character and no line end, after which Python would read code."""
        for character in text:
            # Cc: controls, among them \r, \f and \x85; Cf: bidirectional overrides; Zl, Zp: U+2028, U+2029.
            if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs"):
                self.wrong(node, f"{what}: the control character U+{ord(character):04X} is not allowed")
                return False
        return True

    def name(
        self, node: Node | Place, what: str, text: str, reason: Callable[[str], str | None] = why_no_identifier
    ) -> str | None:
        """A name against which `reason` says nothing; else None, and a mistake."""
        why = reason(text)
        if why is None:
            return text
        self.wrong(node, f"{what}: {why}")
        return None
