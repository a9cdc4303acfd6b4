"""A kernel's file in parts, by meaning: what Triton's compiler sees of it, and what runs on the host alone.

A part is the digest of its syntax trees, as `generator.syntax` writes them, so that a comment or a docstring belongs to
none.

The compiler sees the functions under `triton.jit` with all their decorators, the tables of configurations, whose rows
are constants of a compilation, and the launches: which types and constants a launch passes follows from the expressions
in its arguments and from what is assigned to their names. A launch stands as `kernel[grid](...)`, or is planned: a
function returns the kernel and the arguments, by these names. The compiler sees whatever of the module any of these
names, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from generator.syntax import digest_of, undocumented, written

#: Names that hold the configurations of a kernel.
_TABLES = frozenset({"CONFIGS", "TOO_LARGE"})
#: The function that chooses one of them.
_CHOICE = "_select"
#: Functions whose results the compiler does not see: each returns a configuration of the table, all of which are
#: compiled, or sizes, which Triton specialises on by classes alone.
_UNSEEN = frozenset({_CHOICE, "_row", "_sizes"})


@dataclass(frozen=True)
class Parts:
    """The digests of a kernel's file."""

    #: What Triton's compiler sees.
    device: str
    #: The launcher, the choice of a configuration, the checks: every other statement of the module.
    host: str
    #: What the times of a configuration follow from: all but the tables and the choice.
    timed: str


@lru_cache(maxsize=1024)
def parts(text: str) -> Parts:
    """The digests of the file whose text this is; raises SyntaxError or ValueError where it is no Python known here."""
    body = [_Statement(node) for node in undocumented(ast.parse(text))]
    device, launches = _device(body)
    seen = [*(body[place].text for place in sorted(device)), *map(written, launches)]
    host = [statement.text for place, statement in enumerate(body) if place not in device]
    timed = [s.text for s in body if not s.is_table and _CHOICE not in s.binds]
    return Parts(digest_of(seen), digest_of(host), digest_of(timed))


def of_file(path: Path) -> Parts:
    """The digests of a file; raises OSError where there is none, and what `parts` raises."""
    return parts(path.read_text(encoding="utf-8"))


class _Statement:
    """A statement of a module, as text, with the names in it and those of the module that it binds."""

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
    """The places of the statements that the compiler sees, and what it sees of launches in the others."""
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
    """Of each launch among the nodes the kernel and the arguments, then what is assigned to their names.

    What is assigned to names in that follows, and so on.
    """
    seen = _planned(nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            seen += [node.func.value, *node.args, *node.keywords]
    left = list(_assignments(nodes)) if seen else []
    names = {name for node in seen for name in _names(ast.walk(node))}
    while fresh := [entry for entry in left if not names.isdisjoint(entry[0])]:
        left = [entry for entry in left if entry not in fresh]
        given = [node for _, values in fresh for node in values]
        seen += given
        names |= {name for node in given for name in _names(ast.walk(node))}
    return seen


def _planned(nodes: Sequence[ast.AST]) -> list[ast.AST]:
    """The kernel and the arguments of each planned launch among the nodes."""
    found: list[ast.AST] = []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SimpleNamespace":
            found += [keyword for keyword in node.keywords if keyword.arg in ("kernel", "arguments")]
    return found


def _assignments(nodes: Sequence[ast.AST]) -> Iterator[tuple[set[str], list[ast.AST]]]:
    """Names that are bound among the nodes, with what says to which value."""
    for node in nodes[1:]:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.withitem)):
            yield _stored(ast.walk(node)), [node]
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield _stored(ast.walk(node.target)), [node.target, node.iter]
        elif names := _bound(node):
            yield names, [node]


def _bound(node: ast.AST) -> set[str]:
    """The names that a definition or an import binds; none for anything else."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return set()


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}
