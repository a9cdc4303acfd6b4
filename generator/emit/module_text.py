"""What the digest of a module without its layout is made of: its docstrings, and its tokens.

`generator.emit.file_digests` says what the layout is; the rest is the syntax tree, as `generator.emit.syntax_digest`
writes it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from inspect import cleandoc

from generator.emit.syntax_digest import DOCUMENTED

#: A comment, or a string: what is in either is no layout.
_TEXTS = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|[A-Za-z]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")",
    re.S,
)
#: What a formatter adds or removes between the tokens. Parentheses and commas that have a meaning are in the tree. It
#: adds no form feed, no carriage return, and no empty line at the top.
_LAYOUT = re.compile(r"[ \t\n(),;\\]+")


def digest_of(tree: str, documents: Iterable[str], top: str, tokens: str) -> str:
    """The digest of a module: its nodes as `written` writes them, its `docstrings`, spaces at its top, its tokens."""
    texts = top + tokens
    # Of strings that Python joins: a formatter joins and splits them.
    while '""' in texts:
        texts = texts.replace('""', '"')
    parts = [tree, *documents, texts]
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The docstrings of those nodes that can have one, as the digest has them."""
    for node in nodes:
        if isinstance(node, DOCUMENTED):
            yield document(ast.get_docstring(node, clean=False))


def document(text: str | None) -> str:
    """A docstring as formatters leave it: they indent it, and remove spaces at the ends of lines."""
    return "-" if text is None else repr("\n".join(line.rstrip() for line in cleandoc(text).strip().splitlines()))


def tokens(text: str) -> str:
    """The tokens of a text, without strings, whose values are in the tree, and each comment in a line at its place."""
    parts: list[str] = []
    end = 0
    for match in _TEXTS.finditer(text):
        parts.append(_LAYOUT.sub("", text[end : match.start()]).lower())
        parts.append(f"\n{match['comment'].rstrip()}\n" if match["comment"] else '"')
        end = match.end()
    parts.append(_LAYOUT.sub("", text[end:]).lower())
    return "".join(parts)
