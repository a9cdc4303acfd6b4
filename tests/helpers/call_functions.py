"""The functions of a kernel's `CALL` take only the names that they use: a change may use another one."""

from __future__ import annotations

import ast
import builtins


def with_names(text: str) -> str:
    """A kernel's text, whose functions of `CALL` also take what else they use; others' texts as they are."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    lines, own = text.split("\n"), {*dir(builtins), *(x for node in tree.body for x in _bound(node))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.args.kwarg is not None:
            used = [x.id for x in ast.walk(node.body) if isinstance(x, ast.Name)]
            taken = {x.arg for x in node.args.args} | own
            more = "".join(f"{x}, " for x in dict.fromkeys(used) if x not in taken)
            line, at = node.args.kwarg.lineno - 1, node.args.kwarg.col_offset - len("**")
            lines[line] = lines[line][:at] + more + lines[line][at:]
    return "\n".join(lines)


def _bound(node: ast.stmt) -> list[str]:
    """What a statement binds."""
    match node:
        case ast.Import(aliases) | ast.ImportFrom(_, aliases):
            return [alias.asname or alias.name for alias in aliases]
        case ast.FunctionDef(name) | ast.Assign([ast.Name(name)]):
            return [name]
    return []
