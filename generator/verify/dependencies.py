"""The modules and data files of the package that the results of a level depend on, as one digest."""

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

#: The first module of each level. Results depend on it and on all that it imports, directly or not, functions included.
ENTRIES = {
    "static": "generator.verify.static_checks",
    "bounds": "generator.verify.bounds_job",
    "interpret": "generator.verify.worker",
    "compile": "generator.verify.compile",
    "gpu": "generator.verify.worker",
}
#: The modules that start workers and store results. Their imports are not followed, since these lead to every level.
ALONE = ("generator.verify.worker_pool", "generator.verify.result_cache")


@dataclass(frozen=True)
class Module:
    """A module of the package: the digest of its syntax tree and of the data files it names, and its imports."""

    digest: str
    imports: frozenset[str]


@cache
def harness_digest(level: str) -> str:
    """The digest of every module that results of a level depend on; results of another digest are not reused."""
    found = hashlib.sha256()
    for name in sorted({*modules(ENTRIES[level]), *ALONE}):
        found.update(f"{name} {module(name).digest}\n".encode())
    return found.hexdigest()


def modules(entry: str) -> set[str]:
    """The module `entry` and all modules of the package that it imports, directly or not."""
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
    """The digest and imports of a module; raises `KeyError` if the package has no module of that name."""
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
    """The file of a module of the package; None if the name is not a module of the package."""
    first, *rest = name.split(".")
    path = _ROOT.joinpath(*rest)
    files = (path / "__init__.py", path.parent / f"{path.name}.py")
    return next((file for file in files if file.is_file()), None) if first == generator.__name__ else None


def _data(node: ast.AST, folder: Path) -> Path | None:
    """The data file that a string constant names: a file in the module's folder that is not Python; else None."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 64):
        return None
    name = node.value
    plain = name.isprintable() and Path(name).name == name and Path(name).suffix not in ("", ".py")
    return folder / name if plain and (folder / name).is_file() else None


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """The names in an import statement that may be modules."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    """The module `name` and the packages that contain it, whose code runs first; nothing if it is another package's."""
    if _file(name) is not None:
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
