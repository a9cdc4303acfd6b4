"""Syntax trees compared with patterns, Python with holes: what is compared is what a tree says, not how it is written.

In a pattern `$name` stands for any expression, and as a statement of its own for any statement; `*$name` for any number
of them in a row, `**$name` for the keyword arguments that are left. A name that comes twice stands for equal trees.
Comments, docstrings, line breaks, quotes and redundant parentheses make no difference. All else does: what reads
otherwise and means the same is another tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from generator.emit.syntax_digest import undocumented

#: What a hole is called in the tree of a pattern: a name that no file has.
_HOLE = "HOLE_IN_A_PATTERN_"
#: Fields of a node that say nothing of what it means, or that another one says already.
_IDLE = frozenset({"ctx", "kind", "type_comment"})

#: What the holes of a pattern stand for: a node each, or a list of them.
Found = dict[str, Any]


def matched(tree: ast.AST | Sequence[ast.stmt], *patterns: str) -> Found | None:
    """What the holes of the first pattern that an expression, a statement or several are of stand for; else None."""
    if isinstance(tree, ast.expr):
        tree = ast.Expr(tree)
    trees = [tree] if isinstance(tree, ast.AST) else list(tree)
    for pattern in patterns:
        found: Found = {}
        if _same(trees, _parsed(pattern), found):
            return found
    return None


def matches(tree: ast.AST | Sequence[ast.stmt], *patterns: str) -> bool:
    """Whether an expression, a statement or several are of one of the patterns."""
    return matched(tree, *patterns) is not None


def expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return ast.parse(text, mode="eval").body


def assigned(trees: Iterable[ast.AST]) -> set[str]:
    """The names that statements give another meaning, in whatever depth."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return names | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def dotted(node: ast.expr) -> str:
    """A name, or one that is found in another, as it is called: `tl.cdiv`; empty for any other expression."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(ast.Name() | ast.Attribute() as owner, name) if dotted(owner):
            return f"{dotted(owner)}.{name}"
    return ""


@cache
def _parsed(pattern: str) -> list[ast.stmt]:
    return ast.parse(pattern.replace("$", _HOLE)).body


def _same(tree: object, wanted: object, found: Found) -> bool:
    hole = _hole(wanted)
    if hole is not None:
        return isinstance(tree, ast.AST) and _stands(hole, tree, found)
    if isinstance(wanted, list):
        return isinstance(tree, list) and _same_rows(tree, wanted, found)
    if type(tree) is not type(wanted):
        return False
    if isinstance(tree, ast.AST) and isinstance(wanted, ast.AST):
        pairs = zip(_fields(tree), _fields(wanted), strict=True)
        return all(_same(value, other, found) for (_, value), (_, other) in pairs)
    return tree == wanted


def _same_rows(trees: list[Any], wanted: list[Any], found: Found) -> bool:
    """The same of nodes in a row, of which one of the pattern's may stand for any number."""
    rest = next((place for place, node in enumerate(wanted) if _rest(node) is not None), None)
    if rest is None:
        return len(trees) == len(wanted) and all(map(_same, trees, wanted, [found] * len(trees)))
    behind = len(trees) - (len(wanted) - rest - 1)
    return (
        behind >= rest
        and _same_rows(trees[:rest], wanted[:rest], found)
        and _same_rows(trees[behind:], wanted[rest + 1 :], found)
        and _stands(str(_rest(wanted[rest])), trees[rest:behind], found)
    )


def _stands(hole: str, tree: Any, found: Found) -> bool:
    """Whether a hole may stand for a tree: it does from here on, or it stands for an equal one already."""
    return _same(tree, found.setdefault(hole, tree), {})


def _hole(node: object) -> str | None:
    match node:
        case ast.Name(name) | ast.Expr(ast.Name(name)) if name.startswith(_HOLE):
            return name.removeprefix(_HOLE)
    return None


def _rest(node: object) -> str | None:
    match node:
        case ast.Starred(value) | ast.Expr(ast.Starred(value)) | ast.keyword(None, value):
            return _hole(value)
    return None


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for name, value in ast.iter_fields(node):
        if name not in _IDLE:
            yield name, undocumented(node) if name == "body" and isinstance(node, ast.FunctionDef) else value
