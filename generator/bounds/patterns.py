"""Comparison of syntax trees with patterns, which are Python code with holes.

In a pattern `$name` matches any expression, and as a separate statement any statement; `*$name` matches any number of
consecutive ones, `**$name` the other keyword arguments. A name that occurs twice must match equal trees. Comments,
docstrings, line breaks, quotes and redundant parentheses are ignored. Everything else must be the same: code that is
written differently does not match, even if it is equivalent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from generator.emit.syntax_digest import undocumented

#: The prefix of a hole's name in the tree of a pattern, which no file uses.
_HOLE = "HOLE_IN_A_PATTERN_"
#: Fields of a node that do not affect its meaning, or that other fields imply.
_IDLE = frozenset({"ctx", "kind", "type_comment"})

#: The matches of a pattern's holes: a node each, or a list of nodes.
Found = dict[str, Any]


def matched(tree: ast.AST | Sequence[ast.stmt], *patterns: str) -> Found | None:
    """The matches of the holes in the first pattern that matches an expression, a statement or several; or None."""
    if isinstance(tree, ast.expr):
        tree = ast.Expr(tree)
    trees = [tree] if isinstance(tree, ast.AST) else list(tree)
    for pattern in patterns:
        holes: Found = {}
        if _same(trees, _parsed(pattern), holes):
            return holes
    return None


def matches(tree: ast.AST | Sequence[ast.stmt], *patterns: str) -> bool:
    """Whether an expression, a statement or several match one of the patterns."""
    return matched(tree, *patterns) is not None


def expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return ast.parse(text, mode="eval").body


def assigned(trees: Iterable[ast.AST]) -> set[str]:
    """The names that statements assign or define, at any depth."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return names | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def dotted(node: ast.expr) -> str:
    """The dotted name of an expression, such as `tl.cdiv`; empty for any other expression."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(ast.Name() | ast.Attribute() as owner, name) if dotted(owner):
            return f"{dotted(owner)}.{name}"
    return ""


@cache
def _parsed(pattern: str) -> list[ast.stmt]:
    return ast.parse(pattern.replace("$", _HOLE)).body


def _same(tree: object, wanted: object, holes: Found) -> bool:
    hole = _hole(wanted)
    if hole is not None:
        return isinstance(tree, ast.AST) and _fits(hole, tree, holes)
    if isinstance(wanted, list):
        return isinstance(tree, list) and _same_rows(tree, wanted, holes)
    if type(tree) is not type(wanted):
        return False
    if isinstance(tree, ast.AST) and isinstance(wanted, ast.AST):
        pairs = zip(_fields(tree), _fields(wanted), strict=True)
        return all(_same(value, other, holes) for (_, value), (_, other) in pairs)
    return tree == wanted


def _same_rows(trees: list[Any], wanted: list[Any], holes: Found) -> bool:
    """Whether a list of nodes matches a list in a pattern, in which one hole may match any number of nodes."""
    rest = next((index for index, node in enumerate(wanted) if _rest(node) is not None), None)
    if rest is None:
        return len(trees) == len(wanted) and all(map(_same, trees, wanted, [holes] * len(trees)))
    behind = len(trees) - (len(wanted) - rest - 1)
    return (
        behind >= rest
        and _same_rows(trees[:rest], wanted[:rest], holes)
        and _same_rows(trees[behind:], wanted[rest + 1 :], holes)
        and _fits(str(_rest(wanted[rest])), trees[rest:behind], holes)
    )


def _fits(hole: str, tree: Any, holes: Found) -> bool:
    """Whether a hole matches a tree: the first match is recorded, and later ones must be equal to it."""
    return _same(tree, holes.setdefault(hole, tree), {})


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
