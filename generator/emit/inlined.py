"""The host side of a file that stands alone: what it uses of the family's library, in place of the imports.

Kept are definitions by name, and methods of classes by their names, whatever object they are called of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeGuard

from generator import runtime
from generator.lowering.lines import import_of

_FOLDER = Path(runtime.__file__).parent
#: The modules of the library that a kernel's file may use, each behind those that it imports.
_MODULES = (
    *("launchable", "call", "arguments", "choice", "descriptors", "limits", "memory", "occupancy", "scalars", "tuner"),
)


class _Definition:
    """A statement of a module that defines a name: its text, and the names that it uses."""

    def __init__(self, node: ast.stmt, name: str, lines: Sequence[str]) -> None:
        self.node, self.name, self.lines = node, name, lines
        #: The methods of a class, and its fields with a default, by name.
        own = node.body if isinstance(node, ast.ClassDef) else []
        self.methods = [x for x in own if isinstance(x, ast.FunctionDef) and not x.name.startswith("__")]
        fields = [x for x in own if isinstance(x, ast.AnnAssign)]
        self.fields = [ast.unparse(x.target) for x in fields]
        self.optional = {ast.unparse(x.target): x for x in fields if x.value is not None}

    @property
    def constant(self) -> bool:
        return not isinstance(self.node, (ast.FunctionDef, ast.ClassDef))

    def text(self, kept: set[str], unset: set[str]) -> str:
        """The text without the methods that are not kept, the fields `unset`, and what is done if they are set."""
        lines, dropped = {at: self.lines[at] for at in self._span(self.node)}, set[int]()
        for each in self._unused(kept, unset):
            dropped.update(self._span(each, blank=True))
        for each in self._branches(unset):
            # Another branch follows, which becomes the first.
            dropped.update(range(each.lineno - 1, each.orelse[0].lineno - 1))
            lines[each.orelse[0].lineno - 1] = lines[each.orelse[0].lineno - 1].replace("elif", "if", 1)
        return "\n".join(line for at, line in lines.items() if at not in dropped)

    def used(self, kept: set[str], unset: set[str]) -> Iterator[str]:
        """The names that are used in it, of attributes with a dot."""
        branches = [part for x in self._branches(unset) for part in (x.test, *x.body)]
        return names([self.node], frozenset(), [*self._unused(kept, unset), *branches])

    def _unused(self, kept: set[str], unset: set[str]) -> list[ast.stmt]:
        methods = [x for x in self.methods if f".{x.name}" not in kept]
        fields = [x for name, x in self.optional.items() if name in unset and f".{name}" not in kept]
        return [*methods, *fields, *(x for x in ast.walk(self.node) if _is_for(x, unset))]

    def _branches(self, unset: set[str]) -> list[ast.If]:
        found = (x for x in ast.walk(self.node) if isinstance(x, ast.If) and _asks(x.test, unset))
        return [x for x in found if len(x.orelse) == 1 and isinstance(x.orelse[0], ast.If)]

    def _span(self, node: ast.stmt, *, blank: bool = False) -> range:
        """The lines of a statement with its decorators and the comments above, and with an empty line above those."""
        first = min(node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ())), node.lineno) - 1
        while self.lines[first - 1].lstrip().startswith("#"):
            first -= 1
        return range(first - (blank and not self.lines[first - 1]), node.end_lineno or 0)


def _is_for(node: ast.AST, unset: set[str]) -> TypeGuard[ast.stmt]:
    """Whether a statement does something only if a field is set: `if x.field is not None:`, `for each in x.field:`."""
    if isinstance(node, ast.For):
        return getattr(node.iter, "attr", None) in unset or all(_is_for(x, unset) for x in node.body)
    return isinstance(node, ast.If) and not node.orelse and _asks(node.test, unset)


def _asks(test: ast.expr, unset: set[str]) -> bool:
    """Whether a condition holds only if a field is set."""
    tests = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    asked = (x.left if isinstance(x, ast.Compare) and isinstance(x.ops[0], ast.IsNot) else x for x in tests)
    return any(getattr(x, "attr", None) in unset for x in asked)


def names(
    nodes: Iterable[ast.AST], local: frozenset[str] = frozenset(), without: Sequence[ast.AST] = ()
) -> Iterator[str]:
    """The names that code uses but for those that functions bind and statements `without`; of attributes with a dot."""
    for node in nodes:
        if node in without:
            continue
        own = local
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            bound = (x.arg if isinstance(x, ast.arg) else _bound(x) for x in ast.walk(node))
            own = local.union(x for x in bound if x is not None)
        if isinstance(node, ast.Name) and node.id not in own:
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"
        yield from names(ast.iter_child_nodes(node), own, without)


def _bound(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


def _unset(tree: ast.AST, definitions: Iterable[_Definition]) -> set[str]:
    """The fields with a default of the library's classes which no object in a file's text sets."""
    classes = {x.name: x for x in definitions if x.fields}
    found = {name for x in classes.values() for name in x.optional}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
            found -= {x.arg for x in node.keywords if x.arg} | {*classes[node.func.id].fields[: len(node.args)]}
    return found


@cache
def _library() -> tuple[tuple[_Definition, ...], tuple[ast.stmt, ...]]:
    """The definitions of the library's modules, and their imports of others."""
    found: list[_Definition] = []
    imports: list[ast.stmt] = []
    for module in _MODULES:
        text = (_FOLDER / f"{module}.py").read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
                imports.append(node)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.append(_Definition(node, node.name, text.splitlines()))
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                found.append(_Definition(node, ast.unparse(target), text.splitlines()))
    return tuple(found), tuple(imports)


def reached(text: str) -> tuple[list[str], list[str], set[str]]:
    """The constants and the definitions that a text reaches, as source, and all names that both use."""
    definitions, _ = _library()
    tree = ast.parse(text)
    kept, used, unset = set[str](), set(names([tree])), _unset(tree, definitions)
    while used - kept:
        kept |= used
        used |= {name for x in definitions if x.name in kept for name in x.used(kept, unset)}
    found = [x for x in definitions if x.name in kept]
    constants = [x.text(kept, unset) for x in found if x.constant]
    return constants, [x.text(kept, unset) for x in found if not x.constant], kept


def imports(used: set[str], own: Iterable[str]) -> tuple[list[str], list[str]]:
    """The library's imports of what is used, but for those of the file itself: of the standard library, and others."""
    standard: dict[str, list[str]] = {}
    for node in _library()[1]:
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            if (alias.asname or alias.name).partition(".")[0] in used:
                line = f"import {alias.name}" if isinstance(node, ast.Import) else str(getattr(node, "module", ""))
                line += f" as {alias.asname}" * (isinstance(node, ast.Import) and alias.asname is not None)
                listed = standard.setdefault(line, [])
                if isinstance(node, ast.ImportFrom) and alias.name not in listed:
                    listed.append(alias.name)
    lines = [import_of(x, sorted(listed, key=_order)) if listed else x for x, listed in standard.items()]
    lines = sorted((x for x in lines if x not in own), key=lambda x: (x.startswith("from"), x.lower()))
    return [x for x in lines if _is_standard(x)], [x for x in lines if not _is_standard(x)]


def _order(name: str) -> tuple[bool, bool, str]:
    """The place of a name in an import, as linters sort them."""
    return not name.isupper(), name[0].islower(), name


def _is_standard(line: str) -> bool:
    return line.split()[1].partition(".")[0] not in ("torch", "triton")
