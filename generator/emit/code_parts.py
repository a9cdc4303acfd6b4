"""Digests of what is proved and timed of a kernel's file: its kernels, its configurations, and its call.

A digest is of syntax trees (`generator.emit.syntax_digest`), so comments and docstrings do not count. Neither do the
texts of messages, the names of kernels, the choice of a configuration, and imports of the family's `_runtime`: what
this does with the table of a call has tests of its own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from generator.emit.kernel_names import ROLES, by_role
from generator.emit.syntax_digest import digest_of, undocumented, written

#: The names of the tables of configurations, and of the call.
_TABLES = frozenset({"CONFIGS", "TOO_LARGE"})
_CALL = "CALL"
#: What chooses a configuration, all of which are of the table: a function, and of the call what names it.
_COST, _CHOICE = "cost", "choose"
#: Of the call what the kernels do not depend on: which calls are refused.
_CONDITIONS = frozenset({"refuse", "fits", "too_large"})
#: What a device holds, which follows from the kernels.
_NEEDS = "needs"


@dataclass(frozen=True)
class Parts:
    """The digests of the parts of a kernel's file."""

    #: What compiled code depends on: the kernels, the configurations, and what a call launches.
    device: str
    #: Every other statement, and of the call which calls and configurations are refused.
    host: str
    #: What the time of a configuration depends on: the kernels, and what a call launches.
    timed: str


@lru_cache(maxsize=4096)
def parts(text: str) -> Parts:
    """The digests of a file's text; raises SyntaxError or ValueError if it is not Python that `written` can write."""
    tree = ast.parse(text)
    for role, function in by_role(tree).items():
        function.decorator_list = [_as_recorded(role, each) for each in function.decorator_list]
    body = [_Statement(node) for node in undocumented(tree)]
    compiled = _compiled(body)
    launched: list[str] = []
    host: list[ast.AST] = []
    for index, statement in enumerate(body):
        call = getattr(statement.node, "value", None)
        if _CALL in statement.binds and isinstance(call, ast.Call):
            conditions = [x for x in call.keywords if x.arg in _CONDITIONS]
            launched += [written(x) for x in call.keywords if x.arg not in {_CHOICE, _NEEDS, *_CONDITIONS}]
            host += [*call.args, *conditions]
        elif index not in compiled and _COST not in statement.binds and not getattr(statement.node, "level", 0):
            host.append(statement.node)
    messageless = [written(_WithoutMessages().visit(copy.deepcopy(node))) for node in host]
    device = [(statement, statement.text) for index, statement in enumerate(body) if index in compiled]
    timed = [text for statement, text in device if not statement.is_table]
    return Parts(
        digest_of([*(text for _, text in device), *launched]), digest_of(messageless), digest_of([*timed, *launched])
    )


def of_file(path: Path) -> Parts:
    """The digests of a file; raises OSError if it cannot be read, and what `parts` raises."""
    return parts(path.read_text(encoding="utf-8"))


def _as_recorded(role: str, decorator: ast.expr) -> ast.expr:
    """A decorator of a kernel as records have it: they are of kernels whose names for profilers were made by `repr`."""
    if ast.unparse(decorator) != "triton.jit":
        return decorator
    end = f" + {ROLES[role]!r}" if ROLES[role] else ""
    return ast.parse(f"triton.jit(repr=lambda _: __name__.rpartition('.')[2]{end})", mode="eval").body


class _Statement:
    """A statement of a module: its text, the names that it uses, and the names of the module that it binds."""

    def __init__(self, node: ast.stmt) -> None:
        nodes: list[ast.AST] = []
        self.node, self.text = node, written(node, nodes)
        self.names = {part.id for part in nodes if isinstance(part, ast.Name)}
        stored = {part.id for part in nodes if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        self.binds = _bound(node) or stored
        self.is_table = isinstance(node, (ast.Assign, ast.AnnAssign)) and not self.binds.isdisjoint(_TABLES)
        #: Whether it defines a function that Triton compiles.
        self.is_jitted = any(
            getattr(part, "attr", getattr(part, "id", None)) == "jit"
            for decorator in getattr(node, "decorator_list", ())
            for part in ast.walk(decorator)
        )


def _compiled(body: Sequence[_Statement]) -> set[int]:
    """The indices of statements that compiled code depends on: kernels, tables, and what defines a name in these."""
    places: dict[str, list[int]] = {}
    for index, statement in enumerate(body):
        for name in statement.binds:
            places.setdefault(name, []).append(index)
    waiting = [index for index, statement in enumerate(body) if statement.is_table or statement.is_jitted]
    compiled: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index not in compiled:
            compiled.add(index)
            waiting += [other for name in body[index].names for other in places.get(name, ())]
    return compiled


class _WithoutMessages(ast.NodeTransformer):
    """Takes the texts of messages out of statements: strings that are no names."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        message = isinstance(node.value, str) and not node.value.isidentifier()
        return ast.copy_location(ast.Constant(""), node) if message else node


def _bound(node: ast.AST) -> set[str]:
    """The names that a definition or an import binds; none for any other node, and none of the family's library.

    A kernel has names of its own for sizes that the library has, too.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.ImportFrom) and node.level:
        return set()
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return set()
