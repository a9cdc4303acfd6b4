"""A rendered kernel run in plain Python, on strides so long that every address shows its indices.

It shares nothing with the proof: the kernel's own text runs, on whole numbers, with a `tl` of a few lines that computes
no products and writes down which element each unmasked lane touches.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from generator.emit.kernel_names import by_role

#: Indices are read off as digits to this base: no index of these tests is a hundredth as large.
BASE = 10**6
#: Each operand's strides are multiples of a prime of its own, so that another operand's stride is none of its.
PRIMES = (2, 3, 5, 7, 11, 13)


@dataclass(frozen=True)
class Touched:
    """An element that a lane loads or stores, by its indices; `stray` is what no stride of the operand accounts for."""

    line: int
    operand: str
    index: tuple[int, ...]
    stray: int


@dataclass(eq=False)
class Operand:
    name: str
    shape: tuple[int, ...]
    unit: int | None
    prime: int
    #: The position of each dimension's digit.
    digits: list[int] = field(init=False)

    def __post_init__(self) -> None:
        others = iter((1, 2))
        self.digits = [0 if dimension == self.unit else next(others) for dimension in range(len(self.shape))]

    def stride(self, dimension: int) -> int:
        digit = self.digits[dimension]
        return BASE**digit * self.prime if digit else 1

    def outside(self, line: int, offsets: Any) -> list[Touched]:
        """Those of the offsets that are no element's."""
        rest, digits, stray = offsets, [], np.zeros_like(offsets)
        for place in range(3):
            digit = (rest + BASE // 2) % BASE - BASE // 2
            rest = (rest - digit) // BASE
            digits.append(digit // self.prime if place else digit)
            stray += abs(digit) if place not in self.digits else digit % self.prime if place else 0
        stray += abs(rest)
        index = [digits[place] for place in self.digits]
        wrong = stray != 0
        for found, extent in zip(index, self.shape):
            wrong |= (found < 0) | (found >= extent)
        return [
            Touched(line, self.name, tuple(int(found[at]) for found in index), int(stray[at]))
            for at in np.flatnonzero(wrong)
        ]


class Data:
    """What is loaded and computed: whatever is done with it, more of the same."""

    def _same(self, *_: Any, **__: Any) -> Data:
        return self

    __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = _same
    __lt__ = __gt__ = __call__ = _same
    T = property(_same)


class Address:
    """Offsets into an operand."""

    def __init__(self, operand: Operand, offset: Any = 0) -> None:
        self.operand, self.offset = operand, offset

    def __add__(self, by: Any) -> Address:
        return Address(self.operand, self.offset + by)


class Window:
    """A block pointer."""

    def __init__(self, base: Address, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> None:
        self.base, self.shape, self.strides = base, shape, strides
        self.offsets, self.block = offsets, block_shape

    def advance(self, by: Any) -> Window:
        moved = tuple(a + b for a, b in zip(self.offsets, by))
        return Window(self.base, self.shape, self.strides, moved, self.block, None)

    def lanes(self, checked: Iterable[int]) -> tuple[Address, Any]:
        index = np.meshgrid(*(o + np.arange(n) for o, n in zip(self.offsets, self.block)), indexing="ij")
        mask = np.full(self.block, True)
        for dimension in checked:
            mask &= (index[dimension] >= 0) & (index[dimension] < self.shape[dimension])
        offset = sum((i * s for i, s in zip(index, self.strides)), start=np.zeros(self.block, np.int64))
        return self.base + offset, mask


class Language:
    """`tl`, as far as addresses and masks go; whatever else is called gives data."""

    int1 = int32 = int64 = float32 = None
    PropagateNan = SimpleNamespace(ALL=None)

    def __init__(self) -> None:
        self.pid = 0
        self.touched: dict[tuple[int, Operand], list[Any]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **_: arguments[0] if name == "cast" else Data()

    def program_id(self, axis: int) -> int:
        return self.pid

    def cdiv(self, a: int, b: int) -> int:
        return -(-a // b)

    def arange(self, start: int, end: int) -> Any:
        return np.arange(start, end)

    def full(self, shape: Any, value: Any, dtype: Any) -> Any:
        return np.full(shape, value) if shape else Data()

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        if any(isinstance(given, Data) for given in (condition, x, y)):
            return Data()
        return np.where(condition, x, y)[()]

    def swizzle2d(self, i: int, j: int, size_i: int, size_j: int, size_g: int) -> tuple[int, int]:
        band, within = divmod(i * size_j + j, size_g * size_j)
        height = min(size_i - band * size_g, size_g)
        return band * size_g + within % height, within // height

    def make_block_ptr(self, base: Address, **shapes: Any) -> Window:
        return Window(base, **shapes)

    def advance(self, window: Window, by: Any) -> Window:
        return window.advance(by)

    def load(self, pointer: Any, mask: Any = True, boundary_check: Any = (), **_: Any) -> Any:
        return self._touch(sys._getframe(1).f_lineno, pointer, mask, boundary_check)

    def store(self, pointer: Any, value: Any, mask: Any = True, boundary_check: Any = ()) -> None:
        self._touch(sys._getframe(1).f_lineno, pointer, mask, boundary_check)

    def _touch(self, line: int, pointer: Any, mask: Any, checked: Any) -> Any:
        if isinstance(pointer, Window):
            pointer, mask = pointer.lanes(checked)
        offsets, lanes = np.broadcast_arrays(np.asarray(pointer.offset), np.asarray(mask))
        self.touched[line, pointer.operand].append(np.unique(offsets[lanes]))
        return Data()


class _Plain(ast.NodeTransformer):
    """Leaves out what plain numbers have not: annotations, decorators, conversions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = []
        for parameter in node.args.args:
            parameter.annotation = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "to" else node


def called(tree: ast.Module) -> Any:
    """The `CALL` of a file, made by the runtime itself, but for what its functions ask of tensors."""
    space: dict[str, Any] = {"cost": None, "gemm_kernel": None, "needs_of": lambda _: {}}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            if node.module == "_shared_memory":
                continue
            node = ast.ImportFrom(f"generator.runtime.{str(node.module).partition('.')[2]}", node.names, 0)
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)):
            exec(compile(ast.fix_missing_locations(ast.Module([node], [])), "table", "exec"), space)
    space |= dict.fromkeys(("index_type", "approximate", "on_device"), lambda *_: False)
    return space["CALL"]


class Replay:
    """A file's kernel with a row of CONFIGS and sizes."""

    def __init__(self, text: str, row: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        tree = ast.parse(text)
        by_role(tree)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.language, self.operands = Language(), dict[str, Operand]()
        call, numbers = called(tree), {**sizes, **row}
        for each in (*call.operands, *call.results):
            shape = tuple(eval(word, {}, dict(numbers)) for word in each.shape.split())
            self.operands[each.name] = Operand(each.name, shape, each.unit, PRIMES[len(self.operands)])
        (launch,) = call.launches
        known = {**numbers, **{name: x if x.shape else Data() for name, x in self.operands.items()}}
        (self.programs,) = launch.grid(**known)
        parameters = [parameter.arg for parameter in functions["gemm_kernel"].args.args]
        self.arguments = {**row, **launch.arguments(**known)}
        for decorator in functions["gemm_kernel"].decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "triton.heuristics":
                rules = self._evaluated(decorator.args[0], {})
                self.arguments |= {name: rule(self.arguments) for name, rule in rules.items()}
        self.arguments = {name: self._passed(self.arguments[name]) for name in parameters}
        module = ast.Module([_Plain().visit(functions["gemm_kernel"])], [])
        space: dict[str, Any] = {"tl": self.language, "_tanh": Data()}
        exec(compile(ast.fix_missing_locations(module), "kernel", "exec"), space)
        self.kernel = space["gemm_kernel"]

    def _evaluated(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        return eval(compile(ast.Expression(node), "heuristic", "eval"), dict(names))

    def _passed(self, value: Any) -> Any:
        return Address(value) if isinstance(value, Operand) else value

    def outside(self, programs: Iterable[int] | None = None) -> list[Touched]:
        """The elements outside their operands that some programs touch, all of them by default."""
        for pid in range(self.programs) if programs is None else programs:
            self.language.pid = pid
            self.kernel(**self.arguments)
        found = [
            each
            for (line, operand), offsets in self.language.touched.items()
            for each in operand.outside(line, np.unique(np.concatenate(offsets)))
        ]
        return sorted(found, key=lambda each: (each.line, each.operand, each.index))

    def stored(self) -> int:
        """How many elements of `out` have been touched."""
        offsets = [each for (_, operand), each in self.language.touched.items() if operand.name == "out"]
        return len(np.unique(np.concatenate([part for each in offsets for part in each])))
