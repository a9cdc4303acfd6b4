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
from functools import cache, lru_cache

#: The fields of each type of node, in the order in which they are written.
_FIELDS: dict[str, tuple[str, ...]] = {
    "Module": ("body",),
    # Statements.
    "FunctionDef": ("name", "args", "body", "decorator_list", "returns"),
    "AsyncFunctionDef": ("name", "args", "body", "decorator_list", "returns"),
    "ClassDef": ("name", "bases", "keywords", "body", "decorator_list"),
    "Return": ("value",),
    "Delete": ("targets",),
    "Assign": ("targets", "value"),
    "AugAssign": ("target", "op", "value"),
    "AnnAssign": ("target", "annotation", "value", "simple"),
    "For": ("target", "iter", "body", "orelse"),
    "AsyncFor": ("target", "iter", "body", "orelse"),
    "While": ("test", "body", "orelse"),
    "If": ("test", "body", "orelse"),
    "With": ("items", "body"),
    "AsyncWith": ("items", "body"),
    "Match": ("subject", "cases"),
    "Raise": ("exc", "cause"),
    "Try": ("body", "handlers", "orelse", "finalbody"),
    "Assert": ("test", "msg"),
    "Import": ("names",),
    "ImportFrom": ("module", "names", "level"),
    "Global": ("names",),
    "Nonlocal": ("names",),
    "Expr": ("value",),
    "Pass": (),
    "Break": (),
    "Continue": (),
    # Expressions; constants and f-strings are written by functions of their own.
    "BoolOp": ("op", "values"),
    "NamedExpr": ("target", "value"),
    "BinOp": ("left", "op", "right"),
    "UnaryOp": ("op", "operand"),
    "Lambda": ("args", "body"),
    "IfExp": ("test", "body", "orelse"),
    "Dict": ("keys", "values"),
    "Set": ("elts",),
    "ListComp": ("elt", "generators"),
    "SetComp": ("elt", "generators"),
    "DictComp": ("key", "value", "generators"),
    "GeneratorExp": ("elt", "generators"),
    "Await": ("value",),
    "Yield": ("value",),
    "YieldFrom": ("value",),
    "Compare": ("left", "ops", "comparators"),
    "Call": ("func", "args", "keywords"),
    "Attribute": ("value", "attr"),
    "Subscript": ("value", "slice"),
    "Starred": ("value",),
    "Name": ("id",),
    "List": ("elts",),
    "Tuple": ("elts",),
    "Slice": ("lower", "upper", "step"),
    # Parts of both.
    "comprehension": ("target", "iter", "ifs", "is_async"),
    "ExceptHandler": ("type", "name", "body"),
    "arguments": ("posonlyargs", "args", "vararg", "kwonlyargs", "kw_defaults", "kwarg", "defaults"),
    "arg": ("arg", "annotation"),
    "keyword": ("arg", "value"),
    "alias": ("name", "asname"),
    "withitem": ("context_expr", "optional_vars"),
    "match_case": ("pattern", "guard", "body"),
    "MatchValue": ("value",),
    "MatchSingleton": ("value",),
    "MatchSequence": ("patterns",),
    "MatchMapping": ("keys", "patterns", "rest"),
    "MatchClass": ("cls", "patterns", "kwd_attrs", "kwd_patterns"),
    "MatchStar": ("name",),
    "MatchAs": ("pattern", "name"),
    "MatchOr": ("patterns",),
    **dict.fromkeys(("And", "Or", "Not", "Invert", "UAdd", "USub"), ()),
    **dict.fromkeys(("Add", "Sub", "Mult", "MatMult", "Div", "FloorDiv", "Mod", "Pow"), ()),
    **dict.fromkeys(("LShift", "RShift", "BitOr", "BitXor", "BitAnd"), ()),
    **dict.fromkeys(("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot", "In", "NotIn"), ()),
}

#: Fields that follow from the position of a node, and fields that do not affect execution.
_SILENT = frozenset({"ctx", "kind", "type_comment", "type_ignores"})

#: The nodes that have docstrings.
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=256)
def digest(text: str) -> str:
    """The digest of a module's syntax tree; raises what `ast.parse` and `written` raise."""
    return digest_of([written(ast.parse(text))])


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
        held = [getattr(node, field) for field in _fields(name)]
        if isinstance(node, DOCUMENTED):
            held[_fields(name).index("body")] = undocumented(node)
        for field in _foreign(name, node._fields):
            if getattr(node, field, None):
                raise ValueError(f"{__name__} does not support the field {name}.{field}")
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


def _fields(name: str) -> tuple[str, ...]:
    try:
        return _FIELDS[name]
    except KeyError:
        raise ValueError(f"{__name__} does not support nodes of type {name}") from None


@cache
def _foreign(name: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields that a later version of Python has added; they are ignored while they are empty."""
    return tuple(field for field in fields if field not in _FIELDS[name] and field not in _SILENT)


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
    text = ""
    for part in _pieces(node):
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
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
