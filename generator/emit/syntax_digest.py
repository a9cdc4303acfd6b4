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
    return _text(node, [] if nodes is None else nodes)


def undocumented(node: ast.AST) -> list[ast.stmt]:
    """The body of a module, class or function without its docstring."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    first = body[0] if body else None
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if documented and isinstance(first.value.value, str) else body  # type: ignore[union-attr]


def _text(value: object, nodes: list[ast.AST]) -> str:
    """A node, or the value of a field of a node."""
    if isinstance(value, ast.Constant):
        return _constant(value.value)
    if isinstance(value, ast.JoinedStr):
        return _string(value, nodes)
    if isinstance(value, ast.AST):
        nodes.append(value)
        return _all(f"({type(value).__name__}", _held(value), ")", nodes)
    if isinstance(value, list):
        return _all("[", value, "]", nodes)
    if isinstance(value, str):
        return json.dumps(value)
    # A missing expression differs from the constant None: `{**a}` has one, `{None: a}` the other.
    return "-" if value is None else _constant(value)


def _all(begin: str, values: Iterable[object], end: str, nodes: list[ast.AST]) -> str:
    return "".join([begin, *(f" {_text(value, nodes)}" for value in values), end])


def _held(node: ast.AST) -> Iterator[object]:
    """The values of the fields of a node that are written."""
    name = type(node).__name__
    if not hasattr(ast, name):
        raise ValueError(f"{__name__} does not support nodes of type {name}")
    for field in node._fields:
        if field in _WRITTEN:
            documented = field == "body" and isinstance(node, DOCUMENTED)
            yield undocumented(node) if documented else getattr(node, field)
        # Later versions of Python add fields, which are ignored while they are empty.
        elif field not in _SILENT and getattr(node, field, None):
            raise ValueError(f"{__name__} does not support the field {name}.{field}")


def _string(node: ast.JoinedStr, nodes: list[ast.AST]) -> str:
    """An f-string by its parts; one without replacement fields is a plain string."""
    parts = list(_parts(node))
    if all(isinstance(part, str) for part in parts):
        return _constant("".join(map(str, parts)))
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(_constant(part))
        else:
            spec = part.format_spec
            has_spec = isinstance(spec, ast.JoinedStr) and any(_parts(spec))
            held = [part.value, part.conversion, spec if has_spec else None]
            texts.append(_all("(FormattedValue", held, ")", nodes))
    return f"(JoinedStr {' '.join(texts)})"


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
