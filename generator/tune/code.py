"""What the times of a kernel's rows follow from."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

#: Names that hold the rows of a table, and what of them no device holds: each row is measured by itself.
_TABLE = ("CONFIGS", "TOO_LARGE")
#: The function that chooses one of them.
_CHOICE = "_select"


def code_digest(path: Path) -> str:
    """The digest of the code in a kernel's file: without its docstring and comments, its table and what chooses of it.

    Other words, a row more or less and another choice leave what was measured of a row as it is. Raises OSError where
    there is no file, SyntaxError where it is no Python.
    """
    return _digest(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1024)
def _digest(text: str) -> str:
    words: set[int] = set()
    for node in ast.parse(text).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        table = isinstance(node, ast.Assign) and any(ast.unparse(target) in _TABLE for target in node.targets)
        choice = isinstance(node, ast.FunctionDef) and node.name == _CHOICE
        if docstring or table or choice:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            words.update(range(first, (node.end_lineno or node.lineno) + 1))
    lines = (line for number, line in enumerate(text.splitlines(), 1) if number not in words)
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()
