"""Digests of a rendered file: of its text, and of Python without the layout, which a formatter may change.

The layout is spaces, line breaks, quotes, trailing commas and redundant parentheses. Everything else counts: names,
numbers as they are spelled, comments with their places, docstrings, the order of imports. A digest is the same on each
version of Python that the project supports.
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import cleandoc

from generator.emit.syntax_digest import DOCUMENTED, written

#: The ends of the names of files whose layout does not count.
_PYTHON = (".py", ".pyi")
#: A comment, or a string: what is in either is no layout.
_TEXTS = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|[A-Za-z]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")",
    re.S,
)
#: What a formatter adds or removes between the tokens. Parentheses and commas that have a meaning are in the tree. It
#: adds no form feed, no carriage return, and no empty line at the top.
_LAYOUT = re.compile(r"[ \t\n(),;\\]+")


def digest(text: str) -> str:
    """sha256 of the text in UTF-8, as hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


@lru_cache(maxsize=256)
def unformatted_digest(text: str) -> str | None:
    """The digest of a module's text without its layout: 64 hexadecimal digits; None if the text is not Python."""
    try:
        nodes: list[ast.AST] = []
        tree = written(ast.parse(text), nodes)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    documents = [_document(ast.get_docstring(node, clean=False)) for node in nodes if isinstance(node, DOCUMENTED)]
    tokens = text[: len(text) - len(text.lstrip())] + _tokens(text)
    # Of strings that Python joins: a formatter joins and splits them.
    while '""' in tokens:
        tokens = tokens.replace('""', '"')
    return digest("\n".join([tree, *documents, tokens]))


def _document(text: str | None) -> str:
    """A docstring as formatters leave it: they indent it, and remove spaces at the ends of lines."""
    return "-" if text is None else repr("\n".join(line.rstrip() for line in cleandoc(text).strip().splitlines()))


def _tokens(text: str) -> str:
    """The tokens of a text, without strings, whose values are in the tree, and each comment in a line at its place."""
    parts: list[str] = []
    end = 0
    for match in _TEXTS.finditer(text):
        parts.append(_LAYOUT.sub("", text[end : match.start()]).lower())
        parts.append(f"\n{match['comment'].rstrip()}\n" if match["comment"] else '"')
        end = match.end()
    parts.append(_LAYOUT.sub("", text[end:]).lower())
    return "".join(parts)


def is_same(name: str, one: str, other: str) -> bool:
    """Whether two texts of a file differ in nothing, or in the layout of Python alone."""
    if one == other or not name.endswith(_PYTHON):
        return one == other
    found = unformatted_digest(one)
    return found is not None and found == unformatted_digest(other)


@dataclass(frozen=True)
class Digests:
    """What a manifest says of each file's text: its sha256, and of Python files the digest without their layout."""

    files: dict[str, str] = field(default_factory=dict)
    unformatted: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, text: str, known: Digests) -> None:
        """Add a rendered file's; `known` has the digests of earlier files, among which the same text may be."""
        self.files[name] = digest(text)
        if known.files.get(name) == self.files[name]:
            self.keep(name, known)
        if name.endswith(_PYTHON) and name not in self.unformatted:
            found = unformatted_digest(text)
            if found is not None:
                self.unformatted[name] = found

    def keep(self, name: str, known: Digests) -> None:
        """Add what `known` has of a file."""
        self.files[name] = known.files[name]
        if name in known.unformatted:
            self.unformatted[name] = known.unformatted[name]

    def has(self, name: str, text: str) -> bool:
        """Whether the text is that of the file in the manifest, perhaps in another layout."""
        if self.files.get(name) == digest(text):
            return True
        return name in self.unformatted and self.unformatted[name] == unformatted_digest(text)

    def entries(self) -> dict[str, dict[str, str]]:
        """The entries of the manifest."""
        return {"unformatted": dict(sorted(self.unformatted.items())), "files": dict(sorted(self.files.items()))}
