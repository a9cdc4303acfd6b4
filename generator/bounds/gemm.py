"""The statements of `gemm` up to its launch: the operands as they are admitted, what is chosen, made and passed.

Every statement must be one whose meaning is known here, and every helper that a fact is taken from must read as it is
known: a fact that cannot be read is not assumed, and what needs it is then not proved.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from generator.bounds import helpers, rows
from generator.bounds.arithmetic import condition_of, number_of
from generator.bounds.helpers import SIZES
from generator.bounds.source import NotUnderstood, Source, statements
from generator.bounds.terms import Condition, Poly, negation, poly, variable
from generator.bounds.values import Descriptor


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
class Gemm:
    """What `gemm` does before it launches."""

    source: Source
    operands: dict[str, Operand] = field(default_factory=dict)
    #: The operands whose extent decides between INDEX of 32 and of 64 bits.
    indexed: frozenset[str] = frozenset()
    facts: list[Condition] = field(default_factory=list)
    #: Whether the matrices are those of a batch.
    batched: bool = False
    _scalars: set[str] = field(default_factory=set)
    _rows: dict[str, tuple[str, bool]] = field(default_factory=dict)
    _descriptors: dict[str, Descriptor] = field(default_factory=dict)
    _refuses: bool = False
    _choice: str = ""
    #: The columns of a partial sum for each of the result's, where room is made for the sums of every tile, and a
    #: counter at zero for each; 0 where it is not.
    _workspace: int = 0
    #: Whether the result is zero when the kernel starts.
    zeroed: bool = False
    #: What the kernel writes for good: the result, the matrices beside it, and the parts of sums and maxima.
    results: set[str] = field(default_factory=lambda: {"out"})
    #: The extents of the room for those parts, which depend on the row.
    _parts: dict[str, list[ast.expr]] = field(default_factory=dict)
    _vectors: list[str] = field(default_factory=list)
    _furthest: ast.expr | None = None
    _call: ast.Call | None = None

    @property
    def strides(self) -> tuple[str, ...]:
        """The variables that stand for the strides of all operands."""
        return tuple(stride for operand in self.operands.values() for stride in operand.strides)

    @property
    def call(self) -> ast.Call:
        """The call that launches the kernel."""
        assert self._call is not None
        return self._call

    def read(self) -> None:
        """Take in the statements of `gemm`, each of which must be known."""
        function = self.source.function("gemm")
        for statement in statements(function.body):
            if not self._known(statement):
                raise NotUnderstood(statement.lineno, ast.unparse(statement).partition("\n")[0])
        if self._call is None:
            raise NotUnderstood(function.lineno, "gemm launches no kernel")
        rows.resets(self.source, {"counters_ptr"} if self._workspace else {"c_ptr"} if self.zeroed else set())

    def _known(self, statement: ast.stmt) -> bool:
        """Take in a statement, if its meaning is known."""
        if self._call is not None:
            return self._returned(statement) or self._made_whole(statement)
        match statement:
            case ast.Expr(ast.Call(ast.Name("_check"))):
                return self._admit(statement.value)
            case ast.If(test, [ast.Assign([ast.Name("out")], made)], orelse) if ast.unparse(test) == "out is None":
                return self._output(made, orelse)
            case ast.If(test, [ast.Raise()], []) if ast.unparse(test) in ("out is None", "_overlapping(out)"):
                return True
            case ast.If(ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]), [ast.Assign()], [_, *_]):
                return self._beside(name, statement)
            case ast.If(test, [ast.Raise()], []) if ast.unparse(test) == "reason is not None":
                self._refuses = True
                return True
            case ast.Expr(made) if ast.unparse(made) == "out.zero_()":
                self.zeroed = True
                return True
            case ast.If(test, [*emptied, ast.Return() as returned], []) if self._returned(returned):
                if [ast.unparse(made) for made in emptied] != [f"{name}.zero_()" for name in self._vectors]:
                    return False
                self.facts.append(negation(condition_of(test, {name: variable(name) for name in SIZES}, {})))
                return True
            case ast.Assign([target], bound):
                return self._bind(ast.unparse(target), bound)
            case ast.With(_, [ast.Expr(ast.Call(ast.Subscript(ast.Name("gemm_kernel" | "kernel"))) as call)]):
                self._call = call
                return True
        return False

    def _admit(self, node: ast.expr) -> bool:
        """`_check("a", a, (M, K), ..., unit=1)`: an operand of that shape from here on."""
        match node:
            case ast.Call(
                ast.Name("_check"), [_, ast.Name(name), ast.Tuple(extents), _, _], [ast.keyword("unit", unit)]
            ):
                dimension = ast.literal_eval(unit)
            case ast.Call(ast.Name("_check"), [_, ast.Name(name), ast.Tuple(extents), _, _], []):
                dimension = None
            case _:
                return False
        if len(extents) > (3 if self.batched else 2):
            return False
        helpers.check(self.source, dimension)
        names = {size: variable(size) for size in SIZES}
        self.operands[name] = Operand(name, tuple(number_of(extent, names, {}) for extent in extents), dimension)
        return True

    def _output(self, made: ast.expr, given: list[ast.stmt]) -> bool:
        """`out`, made or given: both must be of one shape, with stride 1 along one dimension."""
        match given:
            case [ast.Expr(check), *refused] if self._admit(check):
                out = self.operands.get("out")
            case _:
                return False
        if out is None or any(not isinstance(x, ast.If) or not isinstance(x.body[0], ast.Raise) for x in refused):
            return False
        matrix, flipped = self._flip(made)
        front = ("B",) if self.batched else ()
        shape, unit = (("N", "M"), 0) if flipped else (("M", "N"), 1)
        known = matrix.startswith(f"torch.empty(({', '.join((*front, *shape))}), ")
        known = known and out.shape == tuple(map(variable, (*front, "M", "N")))
        return known and out.unit in (None, unit + len(front))

    def _beside(self, name: str, statement: ast.If) -> bool:
        """A tensor beside `out`, made or given: a matrix as `out` is one, or a vector that no kernel reaches."""
        match statement:
            case ast.If(_, [ast.Assign([ast.Name(made)], value)], [ast.Expr(check), *refused]) if made == name:
                apart = [ast.unparse(x) for x in refused] in ([], [f"_check_apart('{name}', {name})"])
                if not apart or not self._admit(check) or name not in self.operands:
                    return False
            case _:
                return False
        out, found = self.operands.get("out"), self.operands[name]
        matrix, flipped = self._flip(value)
        if out is not None and found.shape == out.shape:
            self.results.add(name)
            sizes = ("N", "M") if flipped else ("M", "N")
            front = ("B",) if self.batched else ()
            known = matrix.startswith(f"torch.empty(({', '.join((*front, *sizes))}), ")
            return known and found.unit in (None, len(front) + (0 if flipped else 1))
        # The launcher alone fills it.
        del self.operands[name]
        self._vectors.append(name)
        return True

    def _room(self, name: str, node: ast.expr) -> bool:
        """Room for the parts that tiles leave of sums and maxima."""
        match node:
            case ast.Call(ast.Attribute(ast.Name("torch"), "empty"), [ast.Tuple(extents)], [_, _]):
                shape = tuple(variable(f"{name}.shape[{at}]") for at in range(len(extents)))
                self.operands[name] = Operand(name, shape, len(extents) - 1)
                self._parts[name] = extents
                self.results.add(name)
                return True
        return False

    def _returned(self, statement: ast.stmt) -> bool:
        """Whether `out` is returned, in front of what is beside it."""
        text = ast.unparse(statement)
        return text == "return out" or (text.startswith("return (out, ") and isinstance(statement, ast.Return))

    def _made_whole(self, statement: ast.stmt) -> bool:
        """Whether torch makes a vector of its parts, which the kernel has written by then."""
        made = [
            f"torch.{how}({parts}, -2, out={parts.removesuffix('_parts')})"
            for parts in self._parts
            for how in ("sum", "amax")
        ]
        return ast.unparse(statement) in made

    def _bind(self, target: str, node: ast.expr) -> bool:
        """Take in what a name is assigned."""
        text = ast.unparse(node)
        match target:
            case "(M, N, K)" | "(B, M, N, K)" if text == "_sizes(a, b)":
                self.batched = target.startswith("(B")
                self.facts += helpers.sizes(self.source, self.batched)
            case "reason" if text.startswith("refusal(a, b, "):
                self._refuses = False
            case "row" | "(kernel, row)" if text in rows.CHOICES:
                self._choice = text
            case "blocks" if text == "row or CONFIGS[0]":
                pass
            case "furthest":
                self._furthest = node
            case "index":
                self.indexed = helpers.indexed(self.source, node, self.operands, self._furthest)
            case _ if target.endswith("_parts"):
                return self._room(target, node)
            case "(a_rows, b_rows)":
                return self._turn(node)
            case "(work, counters)":
                self._workspace = helpers.workspace(self.source, node, deals="_programs" in self.source.functions)
            case _ if text == f"_scalar('{target}', {target}, a.device)":
                helpers.scalar(self.source)
                self._scalars.add(target)
                self.operands[target] = Operand(target, (poly(1),), 0)
            case _:
                return target.endswith("_desc") and self._describe(target, node)
        return True

    def _turn(self, node: ast.expr) -> bool:
        """`(a, b.T) if K else ...`: with K = 0 a small matrix of zeros, which has a shape and strides of its own."""
        match node:
            case ast.IfExp(ast.Name("K"), ast.Tuple([a, b]), _):
                self._rows = {"a_rows": self._flip(a), "b_rows": self._flip(b)}
                return True
        return False

    def _describe(self, target: str, node: ast.expr) -> bool:
        """`a_desc = _describe(a.T, ...)`: the operand's own shape and strides, if its last dimension has stride 1."""
        match node:
            case ast.Call(ast.Name("_describe"), [matrix, _], []):
                name, flipped = self._rows.get(ast.unparse(matrix), self._flip(matrix))
            case _:
                return False
        helpers.describe(self.source, self.batched)
        if name not in self.operands:
            return False
        dimensions, found = len(self.operands[name].shape), self.operands[name].unit
        unit = dimensions - (2 if flipped else 1)
        fault = None if found == unit else f"described with stride 1 along dimension {unit}, admitted with {found}"
        self._descriptors[target] = Descriptor(name, dimensions, fault)
        return True

    def _flip(self, node: ast.expr) -> tuple[str, bool]:
        """A matrix, and whether it is turned: `b.T` is b, turned, and `b.mT` is each matrix of a batch."""
        if isinstance(node, ast.Attribute) and node.attr == ("mT" if self.batched else "T"):
            return ast.unparse(node.value), True
        return ast.unparse(node), False
