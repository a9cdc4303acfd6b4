"""A rendered file, read as text and never imported: its kernel, its table of tiles, its functions, its accesses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from generator.bounds.patterns import assigned, matches
from generator.emit.syntax_digest import undocumented

#: The name in every rendered file of the kernel that is launched with a configuration, and of those that are launched
#: before it or behind it, where two make a result.
KERNEL = "gemm_kernel"
DECODES = "decode_kernel"
ADDS = "sum_kernel"
#: What a method or a function is called that touches memory, as far as it does not begin with `atomic`.
_LOADS = frozenset({"load", "gather"})
_STORES = frozenset({"store", "scatter"})

#: What `tl` must be.
_LANGUAGE = "import triton.language as tl"
_IMPORTS = (
    _LANGUAGE,
    "import functools",
    "from types import SimpleNamespace",
    "import torch",
    "import triton",
    "from triton.tools.tensor_descriptor import TensorDescriptor",
)
#: Names that mean what those imports say, or what Python says: nothing else in a file may be called so.
_KNOWN = frozenset(
    {"SimpleNamespace", "TensorDescriptor", "__name__", "functools", "tl", "torch", "triton", "*"}
    | {"all", "any", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min", "range", "sum", "zip"}
)
#: What makes a function a kernel, which profilers then see under the file's name.
JITS = tuple(
    f"triton.jit(repr=lambda _: __name__.rpartition('.')[2]{end})" for end in ("", " + '_sum'", " + '_decode'")
)
#: What may stand around a function, and leaves it the same one.
_DECORATORS = ("triton.jit", *JITS, "functools.lru_cache(maxsize=$size)")

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

    @property
    def launches(self) -> tuple[str, ...]:
        """The kernels that a call launches, in this order."""
        return tuple(name for name in (DECODES, KERNEL, ADDS) if name in self.functions)

    @property
    def launched_second(self) -> bool:
        """Whether the kernel is the second of two."""
        return self.kernel.name in self.launches[1:]

    @property
    def configured(self) -> bool:
        """Whether the kernel is launched with a configuration."""
        return self.kernel.name == KERNEL

    def of(self, name: str) -> Source:
        """The same file with another of its kernels."""
        kernel = self.functions[name]
        return replace(self, kernel=kernel, calls=tuple(_calls(kernel)))

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
    taken = set(_KNOWN)
    for node in undocumented(tree):
        names: set[str] = set()
        match node:
            case ast.Import() | ast.ImportFrom() if matches(node, *_IMPORTS):
                pass
            case ast.Import() | ast.ImportFrom():
                names = {alias.asname or alias.name for alias in node.names}
            case ast.FunctionDef(name) if name in (KERNEL, DECODES, ADDS) or _plain(node):
                names, functions[name] = {name}, node
            case ast.Assign([ast.Name(name)], value) if _constant(value):
                names, constants[name] = {name}, node
            case _:
                raise NotUnderstood(node.lineno, ast.unparse(node).partition("\n")[0])
        if names & taken:
            raise NotUnderstood(node.lineno, f"another {', '.join(sorted(names & taken))}")
        taken |= names
    if not any(matches(node, _LANGUAGE) for node in tree.body):
        raise NotUnderstood(1, f"no `{_LANGUAGE}`")
    if KERNEL not in functions:
        raise NotUnderstood(1, f"no function {KERNEL}")
    if "CONFIGS" not in constants:
        raise NotUnderstood(1, "no table CONFIGS")
    return Source(functions[KERNEL], _rows(constants["CONFIGS"]), functions, tuple(_calls(functions[KERNEL])))


def _plain(function: ast.FunctionDef) -> bool:
    """Whether nothing stands around a function that could make it another one."""
    return all(matches(decorator, *_DECORATORS) for decorator in function.decorator_list)


def _constant(value: ast.expr) -> bool:
    """Whether a value is the same wherever it is computed: literals, and a tuple of torch's types."""
    if isinstance(value, ast.Tuple) and all(matches(item, f"torch.{ast.unparse(item)[6:]}") for item in value.elts):
        return True
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
            named = node.args[:1] if matches(node.func.value, "tl") else [node.func.value]
            address = ast.unparse(named[0]) if named else "?"
            yield Call(node.lineno, node.col_offset, "load" if name in _LOADS else "store", address)


def refusals(body: list[ast.stmt], names: Iterable[str]) -> list[ast.expr]:
    """The conditions under which statements surely raise: those of `if`s before any return, and before what gives one
    of the names that they are about another meaning."""
    found: list[ast.expr] = []
    for statement in body:
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)) or assigned([statement]) & set(names):
            break
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise):
            found.append(statement.test)
    return found
