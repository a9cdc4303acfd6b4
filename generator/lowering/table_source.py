"""The source of a call's table (`call_table`), read back: its values, and their expressions as those of `gemm`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

#: What a name of the table is in `gemm`, where it is not the same.
_NAMES = {"STAGES": 'row["num_stages"]', "PROGRAMS": "programs"}
_OF_ROW = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "LEFT_N", "MIDDLE_N", "TOP_M", "MIDDLE_M", "SPLIT")


class _Spelled(ast.NodeTransformer):
    """Expressions of the table as those of `gemm`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _OF_ROW:
            return ast.parse(f'row["{node.id}"]', mode="eval").body
        return ast.parse(_NAMES[node.id], mode="eval").body if node.id in _NAMES else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name, listed = getattr(node.func, "id", ""), [ast.unparse(x) for x in node.args]
        if name == "ceil":
            return ast.parse(f"triton.cdiv({', '.join(listed)})", mode="eval").body
        if name == "least":
            return ast.parse(f"min({', '.join(listed)})", mode="eval").body
        if name == "power":
            return ast.parse(f"max({listed[1]}, triton.next_power_of_2({listed[0]}))", mode="eval").body
        return node


def spelled(node: ast.expr) -> str:
    """An expression of the table as `gemm` has it."""
    return (
        ast.unparse(_Spelled().visit(ast.parse(ast.unparse(node), mode="eval").body))
        .replace("'", '"')
        .replace(" ** ", "**")
    )


@dataclass(frozen=True)
class TableValue:
    """A value of the table: its class, its arguments, and those that have keywords."""

    kind: str
    arguments: tuple[ast.expr, ...]
    options: dict[str, ast.expr]

    @property
    def name(self) -> str:
        """The name that it begins with."""
        found: str = ast.literal_eval(self.arguments[0])
        return found


def value_of(node: ast.expr) -> TableValue:
    """The value that an expression makes."""
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name), ast.unparse(node)
    return TableValue(node.func.id, tuple(node.args), {str(x.arg): x.value for x in node.keywords})


@dataclass(frozen=True)
class TableSource:
    """The source of a table, `CALL = Call(...)`, and the values that it has under its keywords."""

    text: str

    @cached_property
    def call(self) -> TableValue:
        """The value that is the table."""
        (statement,) = ast.parse(self.text).body
        assert isinstance(statement, ast.Assign)
        return value_of(statement.value)

    def all(self, key: str) -> list[TableValue]:
        """The values of the tuple under a keyword, none where there is no tuple."""
        listed = self.call.options.get(key)
        return [value_of(x) for x in listed.elts] if isinstance(listed, ast.Tuple) else []

    @property
    def returned(self) -> str:
        """The statement with which `gemm` ends."""
        return f"return {', '.join(x.name for x in self.all('results'))}"


def kind_of(x: ast.expr) -> str:
    """The class of the value that an expression makes, empty where it makes none."""
    return x.func.id if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) else ""


def entries_of(x: ast.expr) -> Sequence[tuple[str, ast.expr]]:
    """The keys and values of a dictionary."""
    assert isinstance(x, ast.Dict)
    return [(str(ast.literal_eval(key)), value) for key, value in zip(x.keys, x.values) if key is not None]
