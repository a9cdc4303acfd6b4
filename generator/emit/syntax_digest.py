"""Write syntax trees as text, so that two sources that mean the same to Python have the same digest.

Comments, positions, quotes, parentheses and docstrings do not change the text; everything else does. The text is the
same, byte for byte, on each version of Python that the project supports. `ast.dump` and `ast.unparse` differ between
versions, because the fields of nodes, their order and the parts of f-strings do. This module imports only Python's
standard library.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import groupby

#: The fields that are written; each type of node has its own in the same order in every version of Python.
_NAMES = """
    annotation arg args asname attr bases body cases cause cls comparators context_expr decorator_list
    defaults elt elts exc finalbody func generators guard handlers id ifs is_async items iter key keys keywords
    kw_defaults kwarg kwd_attrs kwd_patterns kwonlyargs left level lower module msg name names op operand ops
    optional_vars orelse pattern patterns posonlyargs rest returns right simple slice step subject target targets test
    type upper value values vararg
"""
_WRITTEN = frozenset(_NAMES.split())

#: Fields that follow from the position of a node, and fields that do not affect execution.
_SILENT = frozenset({"ctx", "kind", "type_comment", "type_ignores"})

#: The nodes that have docstrings.
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def digest_of(texts: Iterable[str]) -> str:
    """The digest of nodes, each as `written` writes it, in this order: 32 hexadecimal digits."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def written(node: ast.AST, nodes: list[ast.AST] | None = None) -> str:
    """A node as ASCII text; raises ValueError for a type of node, or a field of one, that is not supported.

    Appends the nodes in it to `nodes` in the order of the text, without docstrings and constants.
    """
    writer = _Writer()
    writer.add(node)
    if nodes is not None:
        nodes += writer.nodes
    return "".join(writer.texts)


def undocumented(node: ast.AST) -> list[ast.stmt]:
    """The body of a module, class or function without its docstring."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    first = body[0] if body else None
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if documented and isinstance(first.value.value, str) else body  # type: ignore[union-attr]


class _Writer:
    """Collects the text of nodes piece by piece, and the nodes."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.nodes: list[ast.AST] = []

    def add(self, value: object) -> None:
        """Add a node, or the value of a field of a node."""
        if isinstance(value, ast.Constant):
            self.texts.append(_constant(value.value))
        elif isinstance(value, ast.JoinedStr):
            self._add_string(value)
        elif isinstance(value, ast.AST):
            self._add_node(value)
        elif isinstance(value, list):
            self._add_all("[", value, "]")
        elif isinstance(value, str):
            self.texts.append(json.dumps(value))
        elif value is None:
            # A missing expression differs from the constant None: `{**a}` has one, `{None: a}` the other.
            self.texts.append("-")
        else:
            self.texts.append(_constant(value))

    def _add_all(self, begin: str, values: Iterable[object], end: str) -> None:
        self.texts.append(begin)
        for value in values:
            self.texts.append(" ")
            self.add(value)
        self.texts.append(end)

    def _add_node(self, node: ast.AST) -> None:
        self.nodes.append(node)
        name = type(node).__name__
        if not hasattr(ast, name):
            raise ValueError(f"{__name__} does not support nodes of type {name}")
        # Later versions of Python add fields, which are ignored while they are empty.
        for field in node._fields:
            if field not in _WRITTEN and field not in _SILENT and getattr(node, field, None):
                raise ValueError(f"{__name__} does not support the field {name}.{field}")
        held = [
            undocumented(node) if field == "body" and isinstance(node, DOCUMENTED) else getattr(node, field)
            for field in node._fields
            if field in _WRITTEN
        ]
        self._add_all(f"({name}", held, ")")

    def _add_string(self, node: ast.JoinedStr) -> None:
        """Add an f-string by its parts; one without replacement fields is a plain string."""
        parts = list(_parts(node))
        if all(isinstance(part, str) for part in parts):
            self.texts.append(_constant("".join(map(str, parts))))
            return
        self.texts.append("(JoinedStr")
        for part in parts:
            self.texts.append(" ")
            if isinstance(part, str):
                self.texts.append(_constant(part))
                continue
            spec = part.format_spec
            has_spec = isinstance(spec, ast.JoinedStr) and any(_parts(spec))
            self._add_all("(FormattedValue", [part.value, part.conversion, spec if has_spec else None], ")")
        self.texts.append(")")


def _constant(value: object) -> str:
    """A constant with its type: 1, 1.0, True and "1" differ; 16 and 0x10 do not."""
    if value is None or value is Ellipsis or isinstance(value, bool):
        return f"<{value}>"
    if isinstance(value, int):
        # Python refuses to convert very long integers to decimal.
        return f"<int {value:#x}>"
    if isinstance(value, float):
        return f"<float {value.hex()}>"
    if isinstance(value, complex):
        return f"<complex {value.real.hex()} {value.imag.hex()}>"
    if isinstance(value, str):
        # Not `repr`: the characters that it escapes depend on the version of Unicode.
        return f"<str {json.dumps(value)}>"
    if isinstance(value, bytes):
        return f"<bytes {value.hex()}>"
    raise ValueError(f"{__name__} does not support constants of type {type(value).__name__}")


def _parts(node: ast.JoinedStr) -> Iterator[str | ast.FormattedValue]:
    """The texts and replacement fields of an f-string; adjacent texts, which vary with Python's version, are joined."""
    for is_text, group in groupby(_pieces(node), lambda part: isinstance(part, str)):
        if not is_text:
            yield from group
        elif text := "".join(map(str, group)):
            yield text


def _pieces(node: ast.JoinedStr) -> Iterator[str | ast.FormattedValue]:
    for part in node.values:
        if isinstance(part, ast.JoinedStr):
            yield from _pieces(part)
        elif isinstance(part, ast.FormattedValue):
            yield part
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        else:
            raise ValueError(f"{__name__} does not support {type(part).__name__} in an f-string")
