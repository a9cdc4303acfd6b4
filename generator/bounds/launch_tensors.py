"""The tensors of a launch: the operands that `plan` admits, and the results and the room that it makes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from generator.bounds import helpers
from generator.bounds.helpers import SIZES
from generator.bounds.patterns import matched, matches
from generator.bounds.plain_arithmetic import number_of
from generator.bounds.source import Source
from generator.bounds.terms import Poly, variable

#: A new matrix of some sizes.
_EMPTY = "torch.empty(({}), dtype=$dtype, device=a.device)"
#: What the first of two kernels stores for the second: partial sums to add, or the B to multiply.
SUMS = "sums"
DENSE = "decoded"
BETWEEN = frozenset({SUMS, DENSE})
#: Room for that B, row-major or column-major, whose rows or columns in memory are padded: they do not overlap.
_PADDED = (
    "torch.empty_strided(($rows, $columns), (triton.cdiv($columns, $step) * $step, 1), dtype=$dtype, device=a.device)",
    "torch.empty_strided(($rows, $columns), (1, triton.cdiv($rows, $step) * $step), dtype=$dtype, device=a.device)",
)
#: The elements of whose number these are multiples: those of 16 bytes.
_STEPS = (4, 8)
#: Types of a byte each.
_BYTES = ("torch.float8_e4m3fn", "(torch.float8_e8m0fnu, torch.uint8)")


@dataclass(frozen=True)
class Operand:
    """A tensor as the launcher admits it: its shape, and the dimension of stride 1 where one is required."""

    name: str
    shape: tuple[Poly, ...]
    unit: int | None

    @property
    def strides(self) -> tuple[str, ...]:
        """The variables that stand for the strides, by dimension: `a.stride(0)`, `a.stride(1)`."""
        return tuple(f"{self.name}.stride({dimension})" for dimension in range(len(self.shape)))


@dataclass
class Tensors:
    """What `plan` says of the tensors of a launch; each method returns whether the meaning of its code is known."""

    source: Source
    operands: dict[str, Operand] = field(default_factory=dict)
    #: The operands that have a byte for each element, which may be passed as bytes.
    bytes: set[str] = field(default_factory=set)
    #: The sizes of the products: of one, of a batch, or of groups.
    sizes: tuple[str, ...] = ()
    #: What the kernel writes for good: the result, the matrices beside it, and the parts of sums and maxima.
    results: set[str] = field(default_factory=lambda: {"out"})
    #: The extents of the room for those parts, which depend on the row.
    parts: dict[str, list[ast.expr]] = field(default_factory=dict)
    vectors: list[str] = field(default_factory=list)
    #: The outputs beside `out`, in their order.
    beside: list[str] = field(default_factory=list)

    @property
    def strides(self) -> tuple[str, ...]:
        """The variables that stand for the strides of all operands."""
        return tuple(stride for operand in self.operands.values() for stride in operand.strides)

    @property
    def extents(self) -> tuple[str, ...]:
        """The extents of the result."""
        return self.sizes[self.sizes == helpers.GROUPS : -1]

    def admit(self, node: ast.expr) -> bool:
        """`_check("a", a, (M, K), ..., unit=1)`: an operand of that shape from here on."""
        match node:
            case ast.Call(
                ast.Name("_check"), [_, ast.Name(name), ast.Tuple(extents), _, _], [ast.keyword("unit", unit)]
            ):
                dimension = ast.literal_eval(unit)
            case ast.Call(ast.Name("_check"), [_, ast.Name(name), ast.Tuple(extents), dtype, _], []):
                dimension = None
                self.bytes |= {name} if matches(dtype, *_BYTES) else set()
            case _:
                return False
        if len(extents) > (2 if self.sizes == helpers.ONE else 3) or dimension not in (None, *range(len(extents))):
            return False
        helpers.check(self.source, dimension)
        names = {size: variable(size) for size in SIZES}
        self.operands[name] = Operand(name, tuple(number_of(extent, names, {}) for extent in extents), dimension)
        return True

    def output(self, made: ast.expr, given: list[ast.stmt]) -> bool:
        """`out`, made or given: both must be of one shape, with stride 1 along one dimension."""
        match given:
            case [ast.Expr(check), *refused] if self.admit(check):
                out = self.operands.get("out")
            case _:
                return False
        if out is None or any(not isinstance(x, ast.If) or not isinstance(x.body[0], ast.Raise) for x in refused):
            return False
        matrix, flipped = self.flip(made)
        *front, rows, columns = self.extents
        shape, unit = ((columns, rows), 0) if flipped else ((rows, columns), 1)
        known = matches(matrix, _EMPTY.format(", ".join((*front, *shape))))
        known = known and out.shape == tuple(map(variable, self.extents))
        return known and out.unit in (None, unit + len(front))

    def output_beside(self, name: str, statement: ast.If) -> bool:
        """A tensor beside `out`, made or given: a matrix as `out` is one, or a vector that no kernel reaches."""
        match statement:
            case ast.If(_, [ast.Assign([ast.Name(made)], value)], [ast.Expr(check), *refused]) if made == name:
                if not matches(refused, "", f"_check_apart('{name}', {name})"):
                    return False
                if not self.admit(check) or name not in self.operands:
                    return False
            case _:
                return False
        self.beside.append(name)
        out, found = self.operands.get("out"), self.operands[name]
        matrix, flipped = self.flip(value)
        # One that is written before a gate has two columns for each of `out`.
        twice = out is not None and found.shape == (*out.shape[:-1], out.shape[-1] * 2)
        if out is not None and (twice or found.shape == out.shape):
            self.results.add(name)
            *front, rows, columns = self.extents
            columns = f"2 * {columns}" if twice else columns
            sizes = (columns, rows) if flipped else (rows, columns)
            known = matches(matrix, _EMPTY.format(", ".join((*front, *sizes))))
            return known and found.unit in (None, len(front) + (0 if flipped else 1))
        # The launcher alone fills it.
        del self.operands[name]
        self.vectors.append(name)
        return True

    def room(self, name: str, node: ast.expr) -> bool:
        """Room for what another kernel reads, or for the parts that tiles leave of sums and maxima."""
        if name == DENSE:
            return self._room_for_dense(node)
        found = matched(node, _EMPTY.format("*$extents,"))
        if found is None:
            return False
        extents = found["extents"]
        shape = tuple(variable(f"{name}.shape[{at}]") for at in range(len(extents)))
        self.operands[name] = Operand(name, shape, len(extents) - 1)
        self.parts[name] = extents
        self.results.add(name)
        return True

    def _room_for_dense(self, node: ast.expr) -> bool:
        """Room for the B that is multiplied, which has stride 1 along one dimension."""
        found = matched(node, *_PADDED)
        if found is None or not isinstance(step := found["step"], ast.Constant) or step.value not in _STEPS:
            return False
        self.parts[DENSE] = [found["rows"], found["columns"]]
        shape = tuple(variable(f"{DENSE}.shape[{at}]") for at in range(2))
        self.operands[DENSE] = Operand(DENSE, shape, 1 if matches(node, _PADDED[0]) else 0)
        self.results.add(DENSE)
        return True

    def flip(self, node: ast.expr) -> tuple[ast.expr, bool]:
        """A matrix, and whether it is turned: `b.T` is b, turned, and `b.mT` is each matrix of several."""
        if not isinstance(node, ast.Attribute):
            return node, False
        three = {name for name, operand in self.operands.items() if len(operand.shape) == 3}
        several = isinstance(node.value, ast.Name) and node.value.id in three
        # A new result, which is no operand yet, is one for each matrix where there are several.
        several = several or (isinstance(node.value, ast.Call) and len(self.extents) == 3)
        return (node.value, True) if node.attr == ("mT" if several else "T") else (node, False)
