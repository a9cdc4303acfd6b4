"""The names of a file's kernels: each function has that of its file, so that torch and profilers find it by this.

Below the functions, a file names each kernel again by what it does: `gemm_kernel = gemm_fp16_rcr_none__tiled...`. What
launches it is thereby the same text in every file of a contract, and digests leave the functions' own names aside.
"""

from __future__ import annotations

import ast

from generator.lowering.lines import WIDTH

#: What a kernel does, with what its name has behind that of the file.
ROLES = {"gemm_kernel": "", "sum_kernel": "_sum", "decode_kernel": "_decode", "gradient_kernel": ""}


def assignment(role: str, stem: str) -> str:
    """The statement that names the kernel of a file by what it does."""
    name = stem + ROLES[role]
    line = f"{role} = {name}"
    # A formatter leaves a name as it is that is too long in brackets, too.
    return line if len(line) <= WIDTH or len(name) + 4 > WIDTH else f"{role} = (\n    {name}\n)"


def by_role(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Rename the kernels of a file to what they do, and take the assignments of these names out; those renamed."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found: dict[str, ast.FunctionDef] = {}
    assigned: list[ast.stmt] = []
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(role)], ast.Name(name)) if role in ROLES and role not in found:
                named = [each for each in functions if each.name == name and each.lineno < node.lineno]
                if len(named) == 1 and not any(each.name == role for each in functions):
                    found[role] = named[0]
                    assigned.append(node)
    tree.body = [node for node in tree.body if node not in assigned]
    roles = {function.name: role for role, function in found.items()}
    for each in ast.walk(tree) if roles else ():
        if isinstance(each, ast.Name):
            each.id = roles.get(each.id, each.id)
    for role, function in found.items():
        function.name = role
    return found
