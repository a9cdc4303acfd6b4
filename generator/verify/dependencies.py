"""What of the harness the results of a level depend on: the modules that it imports, by meaning, and their data."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import generator
from generator.emit.syntax_digest import digest_of, written

_ROOT = Path(generator.__file__).parent

#: Where a level begins; what these import, inside functions too, and what that imports, a result may depend on.
ENTRIES = {
    "static": "generator.verify.static_checks",
    "bounds": "generator.verify.bounds_job",
    "interpret": "generator.verify.worker",
    "compile": "generator.verify.compile",
    "gpu": "generator.verify.worker",
}
#: What starts the workers, and what spells kept results. What these import is not followed: it leads to every level.
ALONE = ("generator.verify.worker_pool", "generator.verify.result_cache")


@dataclass(frozen=True)
class Module:
    """A module of the package: its digest, by meaning, with that of the data files it names, and what it imports."""

    digest: str
    imports: frozenset[str]


@cache
def harness_digest(level: str) -> str:
    """The digest of every module that results of a level depend on: of another harness nothing is known."""
    found = hashlib.sha256()
    for name in sorted({*modules(ENTRIES[level]), *ALONE}):
        found.update(f"{name} {module(name).digest}\n".encode())
    return found.hexdigest()


def modules(entry: str) -> set[str]:
    """A module of the package and all of the package that it imports, directly or not."""
    found: set[str] = set()
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += module(name).imports
    return found


@cache
def module(name: str) -> Module:
    """What is known of a module by its file; raises `KeyError` where the package has none of that name."""
    file = _file(name)
    if file is None:
        raise KeyError(name)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    data = sorted({path for node in ast.walk(tree) if (path := _data(node, file.parent))})
    digest = digest_of([written(tree), *(hashlib.sha256(path.read_bytes()).hexdigest() for path in data)])
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    imported = {found for node in ast.walk(tree) for found in _imported(node, package)}
    return Module(digest, frozenset({found for one in imported for found in _with_packages(one)} - {name}))


def _file(name: str) -> Path | None:
    """The file of a module of the package, None where there is none: the name is another package's, or no module's."""
    first, *rest = name.split(".")
    path = _ROOT.joinpath(*rest)
    files = (path / "__init__.py", path.parent / f"{path.name}.py")
    return next((file for file in files if file.is_file()), None) if first == generator.__name__ else None


def _data(node: ast.AST, folder: Path) -> Path | None:
    """The file that a string names, where it is one that lies beside the module and is no module."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 64):
        return None
    name = node.value
    plain = name.isprintable() and Path(name).name == name and Path(name).suffix not in ("", ".py")
    return folder / name if plain and (folder / name).is_file() else None


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """The names that an import statement may mean modules by."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    """A module of the package, where the name is one, and the packages above it, whose code runs before."""
    if _file(name) is not None:
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
