"""docs/errors.md has messages that the code has: each part of a message, between its `…`, stands in a source."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.helpers.support import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `(.{8,}?)` \| ", PAGE, re.M)


def text(node: ast.AST) -> str:
    """A string as the code writes it, with `…` for what is put into it."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text(value) for value in values)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text(left) + text(right)
    return "…"


@functools.cache
def everything() -> str:
    """All texts of the generator and its templates."""
    found = []
    for path in sorted((ROOT / "generator").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [text(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp)]
    found += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "templates").rglob("*.j2"))]
    return "\n".join(found)


@pytest.mark.parametrize("message", MESSAGES)
def test_an_entry_is_of_a_message(message: str) -> None:
    parts = [part for part in message.split("…") if len(part.strip()) > 3]
    assert parts and [part for part in parts if part not in everything()] == []


def test_every_entry_is_found() -> None:
    assert len(MESSAGES) == len(re.findall(r"^\| `", PAGE, re.M)) > 30
