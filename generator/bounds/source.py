"""A rendered file, read as text and never imported: its kernel, its table of tiles, its functions, its accesses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: The kernel's name in every rendered file.
KERNEL = "gemm_kernel"
#: What a method or a function is called that touches memory, as far as it does not begin with `atomic`.
_LOADS = frozenset({"load", "gather"})
_STORES = frozenset({"store", "scatter"})

#: What `tl` must be, and names that mean what Python says.
_LANGUAGE = "import triton.language as tl"
_BUILT_IN = frozenset({"min", "range", "max", "tl"})

Kind = Literal["load", "store"]


class NotUnderstood(Exception):
    """A construct that the proof has no meaning for: whatever depends on it is not proved."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        super().__init__(f"not understood: line {line}: {what}")


class Refuted(NotUnderstood):
    """A construct that is understood, and wrong."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(line, what)
        self.args = (f"line {line}: {what}",)


@dataclass(frozen=True)
class Call:
    """A place in the kernel that touches memory, as the text alone shows it."""

    line: int
    column: int
    kind: Kind
    address: str


@dataclass(frozen=True)
class Source:
    """A rendered file: the kernel, the rows of CONFIGS, and the functions by name."""

    kernel: ast.FunctionDef
    rows: tuple[Mapping[str, int], ...]
    functions: Mapping[str, ast.FunctionDef]
    calls: tuple[Call, ...]

    def function(self, name: str) -> ast.FunctionDef:
        """A function of the file; raises `NotUnderstood` where there is none of the name."""
        if name not in self.functions:
            raise NotUnderstood(1, f"no function {name}")
        return self.functions[name]


def read(path: Path) -> Source:
    """The source in a file; raises `NotUnderstood` where there is no kernel to prove anything of."""
    tree = ast.parse(path.read_bytes())
    functions: dict[str, ast.FunctionDef] = {}
    constants: dict[str, ast.Assign] = {}
    for node in statements(tree.body):
        match node:
            case ast.Import() | ast.ImportFrom():
                pass
            case ast.FunctionDef(name) if name not in {*functions, *_BUILT_IN} and (name == KERNEL or _plain(node)):
                functions[name] = node
            case ast.Assign([ast.Name(name)], value) if name not in constants and _constant(value):
                constants[name] = node
            case _:
                raise NotUnderstood(node.lineno, ast.unparse(node).partition("\n")[0])
    if _LANGUAGE not in map(ast.unparse, tree.body):
        raise NotUnderstood(1, f"no `{_LANGUAGE}`")
    if KERNEL not in functions:
        raise NotUnderstood(1, f"no function {KERNEL}")
    if "CONFIGS" not in constants:
        raise NotUnderstood(1, "no table CONFIGS")
    return Source(functions[KERNEL], _rows(constants["CONFIGS"]), functions, tuple(_calls(functions[KERNEL])))


def _plain(function: ast.FunctionDef) -> bool:
    """Whether nothing stands around a function that could make it another one."""
    decorators = map(ast.unparse, function.decorator_list)
    return all(text == "triton.jit" or text.startswith("functools.lru_cache(") for text in decorators)


def _constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _rows(node: ast.Assign) -> tuple[Mapping[str, int], ...]:
    rows = ast.literal_eval(node.value)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise NotUnderstood(node.lineno, "CONFIGS is no list of rows")
    return tuple(rows)


def _calls(kernel: ast.FunctionDef) -> Iterator[Call]:
    for node in ast.walk(kernel):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name in _LOADS or name in _STORES or name.startswith("atomic"):
            # A method's object is what it reads, `a_desc.load(...)`; a function's is its first argument.
            named = ast.unparse(node.func.value)
            address = named if named != "tl" else ast.unparse(node.args[0]) if node.args else "?"
            yield Call(node.lineno, node.col_offset, "load" if name in _LOADS else "store", address)


def statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a function but for its docstring."""
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if documented else body


def texts(body: list[ast.stmt]) -> list[str]:
    """The statements of a function as text: what is compared where a helper must read word for word."""
    return [ast.unparse(statement) for statement in statements(body)]


def refusals(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """The conditions under which statements surely raise, by their text: those of `if`s before any return."""
    found = {}
    for statement in body:
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            break
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise):
            found[ast.unparse(statement.test)] = statement.test
    return found
