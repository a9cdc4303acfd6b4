"""A rendered file, read as text and never imported: its kernels, its tables, its functions, its accesses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from generator.bounds.patterns import dotted, matches
from generator.emit.call_value import NotUnderstood as NotUnderstood
from generator.emit.kernel_names import by_role
from generator.emit.syntax_digest import undocumented

#: What the kernel of a rendered file is named that is launched with a configuration, and those that are launched before
#: it or behind it, where two make a result (`generator.emit.kernel_names`).
KERNEL = "gemm_kernel"
DECODES = "decode_kernel"
ADDS = "sum_kernel"
KERNELS = (DECODES, KERNEL, ADDS)
#: What a method or a function is called that touches memory, as far as it does not begin with `atomic`.
_LOADS = frozenset({"load", "gather"})
_STORES = frozenset({"store", "scatter"})

#: What `tl` must be.
_LANGUAGE = "import triton.language as tl"
_IMPORTS = (_LANGUAGE, "import torch", "import triton", "from torch import Tensor")
#: Names that mean what those imports say, or what Python says: nothing else in a file may be called so.
_KNOWN = frozenset({"Tensor", "tl", "torch", "triton", "*", "max", "min", "range", "sum"})
#: What makes a function a kernel, and leaves it the same function.
JIT = "triton.jit"
#: How a kernel's parameters are annotated whose values the compiler is told.
CONSTEXPR = "tl.constexpr"
#: What a function that is no kernel may call besides CALL: it must not change a table that the others read.
_CALLED = frozenset({"CALL", "max", "min", "triton.cdiv"})

Kind = Literal["load", "store"]


class Refuted(NotUnderstood):
    """A construct that is understood, and wrong."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(line, what)
        self.args = (f"line {line}: {what}",)


@dataclass(frozen=True)
class MemoryAccess:
    """A place in the kernel that touches memory, as the text alone shows it."""

    line: int
    column: int
    kind: Kind
    address: str


@dataclass(frozen=True)
class Source:
    """A rendered file: a kernel of it, the rows of CONFIGS, what its text says by name, and the expression of CALL."""

    kernel: ast.FunctionDef
    rows: tuple[Mapping[str, int], ...]
    functions: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, Any]
    #: The module of the family's library from which each name is imported.
    library: Mapping[str, str]
    call: ast.expr
    calls: tuple[MemoryAccess, ...]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of the file."""
        return tuple(name for name in KERNELS if name in self.functions)

    def of(self, name: str) -> Source:
        """The same file with another of its kernels."""
        kernel = self.functions[name]
        return replace(self, kernel=kernel, calls=tuple(_calls(kernel)))

    def function(self, name: str) -> ast.FunctionDef:
        """A function of the file; raises `NotUnderstood` where the file has no such function."""
        if name not in self.functions:
            raise NotUnderstood(1, f"no function {name}")
        return self.functions[name]


def read(path: Path) -> Source:
    """The source in a file; raises `NotUnderstood` where there is no kernel to prove anything of."""
    tree = ast.parse(path.read_bytes())
    by_role(tree)
    functions: dict[str, ast.FunctionDef] = {}
    constants: dict[str, Any] = {}
    library: dict[str, str] = {}
    call: ast.expr | None = None
    taken = set(_KNOWN)
    for node in undocumented(tree):
        names: set[str] = set()
        match node:
            case ast.Import() | ast.ImportFrom() if matches(node, *_IMPORTS):
                pass
            case ast.ImportFrom(module, aliases, 1) if module and module.startswith("_runtime."):
                names = {alias.asname or alias.name for alias in aliases}
                library |= {alias.name: module.partition(".")[2] for alias in aliases if alias.asname is None}
            case ast.Import() | ast.ImportFrom():
                names = {alias.asname or alias.name for alias in node.names}
            case ast.FunctionDef(name) if name in KERNELS or _plain(node):
                names, functions[name] = {name}, node
            case ast.Assign([ast.Name("CALL")], value):
                names, call = {"CALL"}, value
            case ast.Assign([ast.Name(name)], value) if _is_literal(value):
                names, constants[name] = {name}, ast.literal_eval(value)
            case _:
                raise NotUnderstood(node.lineno, ast.unparse(node).partition("\n")[0])
        if names & taken:
            raise NotUnderstood(node.lineno, f"another {', '.join(sorted(names & taken))}")
        taken |= names
    if not any(matches(node, _LANGUAGE) for node in tree.body):
        raise NotUnderstood(1, f"no `{_LANGUAGE}`")
    if KERNEL not in functions:
        raise NotUnderstood(1, f"no function {KERNEL}")
    if call is None:
        raise NotUnderstood(1, "no table CALL")
    kernel, rows = functions[KERNEL], _rows(constants.get("CONFIGS"))
    return Source(kernel, rows, functions, constants, library, call, tuple(_calls(kernel)))


def _plain(function: ast.FunctionDef) -> bool:
    """Whether nothing around a function could make it another one, and it changes nothing that is global."""
    if function.decorator_list:
        return all(matches(decorator, JIT) for decorator in function.decorator_list)
    nodes = [*ast.walk(function)]
    stores = (node for node in nodes if isinstance(getattr(node, "ctx", ast.Load()), ast.Store | ast.Del))
    called = {dotted(node.func) for node in nodes if isinstance(node, ast.Call)}
    scopes = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
    strange = any(isinstance(node, scopes) for node in nodes)
    return called <= _CALLED and all(isinstance(node, ast.Name | ast.Tuple) for node in stores) and not strange


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _rows(rows: object) -> tuple[Mapping[str, int], ...]:
    known = isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
    if not known or not all(type(number) is int for row in rows for number in row.values()):  # type: ignore[attr-defined]
        raise NotUnderstood(1, "no table CONFIGS of rows of numbers")
    return tuple(rows)  # type: ignore[arg-type]


def _calls(kernel: ast.FunctionDef) -> Iterator[MemoryAccess]:
    for node in ast.walk(kernel):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name in _LOADS or name in _STORES or name.startswith("atomic"):
            # A method's object is what it reads, `a_desc.load(...)`; a function's is its first argument.
            named = node.args[:1] if matches(node.func.value, "tl") else [node.func.value]
            address = ast.unparse(named[0]) if named else "?"
            yield MemoryAccess(node.lineno, node.col_offset, "load" if name in _LOADS else "store", address)
