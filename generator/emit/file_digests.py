"""Digests of a rendered file: of its text, and of Python without the layout, which a formatter may change.

The layout is spaces, line breaks, quotes, trailing commas and redundant parentheses. Everything else counts: names,
numbers as they are spelled, comments with their places, docstrings, the order of imports. A digest is the same on each
version of Python that the project supports.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath

from generator.emit.divided_text import divided_digest
from generator.emit.module_text import digest_of, docstrings, tokens
from generator.emit.syntax_digest import written

#: The ends of the names of files whose layout does not count.
_PYTHON = (".py", ".pyi")


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
    return digest_of(tree, docstrings(nodes), text[: len(text) - len(text.lstrip())], tokens(text))


def rendered_digest(name: str, text: str) -> str | None:
    """`unformatted_digest` of a file that was rendered just now, which is cut into statements that others have, too."""
    digest = divided_digest(text, PurePath(name).stem)
    return unformatted_digest(text) if digest is None else digest


def is_same(name: str, one: str, other: str) -> bool:
    """Whether two texts of a file differ in nothing, or in the layout of Python alone."""
    if one == other or not name.endswith(_PYTHON):
        return one == other
    digest = unformatted_digest(one)
    return digest is not None and digest == unformatted_digest(other)


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
            own = rendered_digest(name, text)
            if own is not None:
                self.unformatted[name] = own

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
