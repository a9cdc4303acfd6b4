"""Digests of the parts of a kernel's file: the part that Triton's compiler depends on, and the part that it does not.

A digest is of syntax trees (`generator.emit.syntax_digest`), so comments and docstrings do not count.

Compiled code depends on the functions under `triton.jit` with their decorators; on the tables of configurations, whose
values are compile-time constants; and on the launches, because the expressions of their arguments, and the assignments
to the names in these, determine the types and constants that are passed. A launch is either `kernel[grid](...)`, or a
function returns its kernel and its arguments under these names. Compiled code also depends on every statement of the
module that defines a name used in any of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from generator.emit.syntax_digest import digest_of, undocumented, written

#: The names of the tables of configurations.
_TABLES = frozenset({"CONFIGS", "TOO_LARGE"})
#: The function that chooses a configuration.
_CHOICE = "_select"
#: Functions whose results do not change compiled code: a configuration of the table, all of which are compiled, or
#: sizes, of which Triton specialises on a class only (1, a multiple of 16, any other).
_UNSEEN = frozenset({_CHOICE, "_row", "_sizes"})


@dataclass(frozen=True)
class Parts:
    """The digests of the parts of a kernel's file."""

    #: What compiled code depends on.
    device: str
    #: Every other statement of the module: the launcher, the choice of a configuration, the checks.
    host: str
    #: What the time of a configuration depends on: everything but the tables and the choice.
    timed: str


@lru_cache(maxsize=1024)
def parts(text: str) -> Parts:
    """The digests of a file's text; raises SyntaxError or ValueError if it is not Python that `written` can write."""
    body = [_Statement(node) for node in undocumented(ast.parse(text))]
    device, launches = _device(body)
    seen = [*(body[place].text for place in sorted(device)), *map(written, launches)]
    host = [statement.text for place, statement in enumerate(body) if place not in device]
    timed = [s.text for s in body if not s.is_table and _CHOICE not in s.binds]
    return Parts(digest_of(seen), digest_of(host), digest_of(timed))


def of_file(path: Path) -> Parts:
    """The digests of a file; raises OSError if it cannot be read, and what `parts` raises."""
    return parts(path.read_text(encoding="utf-8"))


class _Statement:
    """A statement of a module: its text, the names that it uses, and the names of the module that it binds."""

    def __init__(self, node: ast.stmt) -> None:
        self.nodes: list[ast.AST] = []
        self.text = written(node, self.nodes)
        self.names = _names(self.nodes)
        self.binds = _bound(node) or _stored(self.nodes)
        self.is_table = isinstance(node, (ast.Assign, ast.AnnAssign)) and not self.binds.isdisjoint(_TABLES)
        #: Whether it defines a function that Triton compiles.
        self.is_jitted = any(
            getattr(part, "attr", getattr(part, "id", None)) == "jit"
            for decorator in getattr(node, "decorator_list", ())
            for part in ast.walk(decorator)
        )


def _device(body: Sequence[_Statement]) -> tuple[set[int], list[ast.AST]]:
    """What compiled code depends on: the indices of whole statements, and the nodes of launches in other statements."""
    places: dict[str, list[int]] = {}
    for place, statement in enumerate(body):
        for name in statement.binds:
            places.setdefault(name, []).append(place)
    launching = [(statement, _launches(statement.nodes)) for statement in body if not statement.is_jitted]
    launches = [node for _, found in launching for node in found]
    # Of a function that plans a launch the compiler sees the launch alone.
    planning = {name for statement, _ in launching if _planned(statement.nodes) for name in statement.binds}
    waiting = [place for place, statement in enumerate(body) if statement.is_table or statement.is_jitted]
    for node in launches:
        waiting += [place for name in _names(ast.walk(node)) - _UNSEEN - planning for place in places.get(name, ())]
    found: set[int] = set()
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += [other for name in body[place].names for other in places.get(name, ())]
    return found, launches


def _launches(nodes: Sequence[ast.AST]) -> list[ast.AST]:
    """The kernel and the arguments of each launch among the nodes, and the assignments that they depend on.

    These are the assignments to names in the arguments, then those to names in these assignments, and so on.
    """
    seen = _planned(nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            seen += [node.func.value, *node.args, *node.keywords]
    remaining = list(_assignments(nodes)) if seen else []
    names = {name for node in seen for name in _names(ast.walk(node))}
    while fresh := [entry for entry in remaining if not names.isdisjoint(entry[0])]:
        remaining = [entry for entry in remaining if entry not in fresh]
        assigned = [node for _, values in fresh for node in values]
        seen += assigned
        names |= {name for node in assigned for name in _names(ast.walk(node))}
    return seen


def _planned(nodes: Sequence[ast.AST]) -> list[ast.AST]:
    """The kernel and the arguments of each planned launch among the nodes."""
    found: list[ast.AST] = []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SimpleNamespace":
            found += [keyword for keyword in node.keywords if keyword.arg in ("kernel", "arguments")]
    return found


def _assignments(nodes: Sequence[ast.AST]) -> Iterator[tuple[set[str], list[ast.AST]]]:
    """The names that are bound among the nodes, with the nodes that determine their values."""
    for node in nodes[1:]:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.withitem)):
            yield _stored(ast.walk(node)), [node]
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield _stored(ast.walk(node.target)), [node.target, node.iter]
        elif names := _bound(node):
            yield names, [node]


def _bound(node: ast.AST) -> set[str]:
    """The names that a definition or an import binds; none for any other node."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return set()


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}
