"""The digest of a rendered module without its layout, from statements that the kernels of a family have in common.

`generator.emit.file_digests.unformatted_digest` parses a file. Kernels of one family consist of the same statements,
in other combinations. So here the text is cut at the lines where statements begin, and only a statement that was not
seen before is parsed. The digest is the same. Only rendered text is cut: its layout is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from generator.emit.module_text import digest_of, docstrings, document, tokens
from generator.emit.syntax_digest import written

#: The comments and the docstring at the top of a module; one with a backslash is not read here.
_TOP = re.compile(r'(?P<comments>(?:\#[^\n]*\n)*)"""(?P<docstring>(?:[^\\"]|"(?!""))*)"""\n')
#: The indentations of statements that are parsed alone.
_INDENTS = ("", 4 * " ", 8 * " ", 12 * " ")
#: By indentation, the end of the line before a statement: not before a comment, and not within a statement.
_ENDS = {indent: re.compile(rf"\n(?={indent}(?!else:|elif |except|finally:)[^\s)\]}}#])") for indent in _INDENTS}
#: Likewise, the end of the empty line before a statement or a comment.
_PARAGRAPHS = {indent: re.compile(rf"\n\n(?={indent}(?!else:|elif |except|finally:)[^\s)\]}}])") for indent in _INDENTS}
_COMMENTS = re.compile(r"(?:[ ]*\#[^\n]*\n)*")
#: A kernel or a loop as far as its body, with the docstring and comments at the top of this.
_HEADS = {
    indent: re.compile(
        rf"(?:{indent}@[^\n]*\n(?:{indent}[ )}}][^\n]*\n)*){'*' if indent else '+'}"
        rf"{indent}(?:def|for) (?:[^\n]*:|[^\n]*\(\n(?:{indent} [^\n]*\n)+{indent}\)[^\n]*:)\n"
        rf'(?:{indent}    """(?:[^\\"]|"(?!""))*"""\n)?(?:[ ]*\#[^\n]*\n)*(?![ ]*[brfuBRFU]*["\'])'
    )
    for indent in _INDENTS
}
#: The names of files that another name can stand for, so that kernels have statements in common; and that name.
_NAME = re.compile("[a-z_][a-z0-9_]*")
_ANY_NAME = "name_of_the_file"


@dataclass(frozen=True)
class _Piece:
    """A part of a module: its nodes as `written` writes them, the docstrings in it, and its tokens."""

    nodes: str
    docstrings: tuple[str, ...]
    tokens: str


def divided_digest(text: str, stem: str) -> str | None:
    """`unformatted_digest` of a rendered file whose name without its ending is `stem`; None if it is not divided."""
    top = _TOP.match(text)
    if top is None or _ANY_NAME in text or not _NAME.fullmatch(stem):
        return None
    try:
        pieces = list(_pieces(text[top.end() :].replace(stem, _ANY_NAME)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = "".join(piece.nodes for piece in pieces).replace(_ANY_NAME, stem)
    own = [each.replace(_ANY_NAME, stem) for piece in pieces for each in piece.docstrings]
    texts = "".join(piece.tokens for piece in pieces).replace(_ANY_NAME, stem)
    return digest_of(
        f"(Module [{nodes}])", [document(top["docstring"]), *own], "", f'{tokens(top["comments"])}"{texts}'
    )


def _pieces(text: str, depth: int = 0) -> Iterator[_Piece]:
    """The parts of a module without its docstring, or of a body."""
    if not depth:
        return _statements(text, depth)
    return (_paragraph(each, depth) for each in _PARAGRAPHS[_INDENTS[depth]].split(text))


@lru_cache(maxsize=1024)
def _paragraph(text: str, depth: int) -> _Piece:
    """Statements of a body with no empty line between them."""
    comments = _COMMENTS.match(text)
    assert comments is not None
    pieces = [_Piece("", (), tokens(comments[0])), *_statements(text[comments.end() :], depth)]
    documents = tuple(each for piece in pieces for each in piece.docstrings)
    return _Piece("".join(piece.nodes for piece in pieces), documents, "".join(piece.tokens for piece in pieces))


def _statements(text: str, depth: int) -> Iterator[_Piece]:
    indent, decorators = _INDENTS[depth], ""
    for part in _ENDS[indent].split(text.removesuffix("\n")):
        if part.startswith("@", len(indent)):
            decorators += part + "\n"
            continue
        whole, decorators = f"{decorators}{part}\n", ""
        has_body = depth + 1 < len(_INDENTS) and whole.startswith(("@", "def ", "for "), len(indent))
        head = _HEADS[indent].match(whole) if has_body else None
        if head is None or f"\n{indent}else:" in whole:
            yield _leaf(whole)
        else:
            before, after = _around(head[0])
            yield before
            yield from _pieces(whole[head.end() :], depth + 1)
            yield after
    if decorators:
        raise SyntaxError("decorators of nothing")


@lru_cache(maxsize=4096)
def _leaf(text: str) -> _Piece:
    """Statements that are not divided."""
    nodes: list[ast.AST] = []
    texts = [written(each, nodes) for each in _parsed(text)]
    return _Piece("".join(f" {each}" for each in texts), tuple(docstrings(nodes)), tokens(text))


@lru_cache(maxsize=4096)
def _around(head: str) -> tuple[_Piece, _Piece]:
    """What is before the body of a function or a loop, and after it."""
    indent = head[: -len(head.lstrip(" "))]
    (statement,) = _parsed(f"{head}{indent}    pass\n")
    nodes: list[ast.AST] = []
    before, after = written(statement, nodes).split("[ (Pass)]")
    return _Piece(f" {before}[", tuple(docstrings(nodes)), tokens(head)), _Piece(f"]{after}", (), "")


def _parsed(text: str) -> list[ast.stmt]:
    """Statements, which may be indented."""
    if not text.startswith(" "):
        return ast.parse(text).body
    (block,) = ast.parse("if 1:\n" + text).body
    assert isinstance(block, ast.If)
    if block.orelse:
        raise SyntaxError("statements of two blocks")
    return block.body
