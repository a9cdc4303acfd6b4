"""The library in a family's folder, `_runtime`, which must be the one that the theorems are about: `generator/runtime`.

Both are compared as syntax trees, whole, because a rendered module has two comments at its head.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from generator import runtime
from generator.emit.syntax_digest import written
from generator.files.reading import read_bytes

_LIBRARY = Path(runtime.__file__).parent


def differing(folder: Path, modules: Iterable[str]) -> str | None:
    """Which of the modules, or of those that they import, a folder does not have as `generator/runtime` does; or None.

    A module that a function imports on demand counts, too. Raises FileError for a file that is too large to be one.
    """
    waiting, reached = ["__init__", *modules], dict[str, None]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = None
            waiting += _imported(name)
    return next((name for name in reached if not _same(name, folder / f"{name}.py")), None)


@cache
def _tree(name: str) -> ast.Module | None:
    path = _LIBRARY / f"{name}.py"
    return ast.parse(path.read_bytes()) if name.isidentifier() and path.is_file() else None


@cache
def _imported(name: str) -> frozenset[str]:
    nodes = [node for node in ast.walk(_tree(name) or ast.Module([], [])) if isinstance(node, ast.ImportFrom)]
    return frozenset(node.module for node in nodes if node.level == 1 and node.module)


@lru_cache(maxsize=1024)
def _means_the_same(name: str, data: bytes) -> bool:
    tree = _tree(name)
    try:
        return tree is not None and written(ast.parse(data)) == written(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _same(name: str, path: Path) -> bool:
    try:
        return _means_the_same(name, read_bytes(path))
    except FileNotFoundError:
        return False
