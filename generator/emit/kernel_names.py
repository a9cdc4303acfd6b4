"""The names of a file's kernels: each function has that of its file, so that torch and profilers find it by this.

Calls launch them by these names. Digests, and whoever reads a file, call each by what it does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: What a kernel does, with what its name has behind that of the file.
ROLES = {"gemm_kernel": "", "sum_kernel": "_sum", "decode_kernel": "_decode", "gradient_kernel": ""}


def by_role(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Rename the kernels that a file launches to what they do; those renamed."""
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    launched = [x for x in _launched(tree) if len(functions.get(x, ())) == 1]
    gradient = any("=(Gradient(" in ast.unparse(x) for x in tree.body if isinstance(x, ast.Assign))
    whole = "gradient_kernel" if gradient else "gemm_kernel"
    roles: dict[str, str] = {}
    for name in launched:
        # A kernel beside the one that multiplies has its name, and an end.
        ends = [(x, end) for x, end in ROLES.items() if end and name.endswith(end) and name[: -len(end)] in functions]
        role, end = ends[0] if ends else (whole, "")
        for own, its in ((name.removesuffix(end), whole), (name, role)):
            if its not in functions:
                roles.setdefault(own, its)
    for each in ast.walk(tree) if roles else ():
        if isinstance(each, ast.Name):
            each.id = roles.get(each.id, each.id)
    by_word = {role: functions[name][0] for name, role in roles.items()}
    for role, function in by_word.items():
        function.name = role
    return by_word


def _launched(tree: ast.Module) -> Iterator[str]:
    """The names that a file launches: `Launch(kernel, ...)`, or `kernel[grid](...)` where it stands alone."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("Launch"), [ast.Name(name), *_]) | ast.Call(ast.Subscript(ast.Name(name))):
                yield name
