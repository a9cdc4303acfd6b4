"""The statements of `gemm` up to its launch: the operands as they are admitted, what is chosen, made and passed.

Every statement must be one whose meaning is known here, and every helper that a fact is taken from must read as it is
known: a fact that cannot be read is not assumed, and what needs it is then not proved.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from generator.bounds import configuration_choice, helpers
from generator.bounds.helpers import SIZES
from generator.bounds.patterns import matched, matches
from generator.bounds.plain_arithmetic import condition_of, number_of
from generator.bounds.source import NotUnderstood, Source
from generator.bounds.symbolic_values import Descriptor
from generator.bounds.terms import Condition, Poly, negation, poly, variable
from generator.emit.syntax_digest import undocumented

#: A new matrix of some sizes.
_EMPTY = "torch.empty(({}), dtype=$dtype, device=a.device)"


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
    _rows: dict[str, tuple[ast.expr, bool]] = field(default_factory=dict)
    _descriptors: dict[str, Descriptor] = field(default_factory=dict)
    _refuses: bool = False
    _choice: configuration_choice.Choice | None = None
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
        for statement in undocumented(function):
            if not self._known(statement):
                raise NotUnderstood(statement.lineno, ast.unparse(statement).partition("\n")[0])
        if self._call is None:
            raise NotUnderstood(function.lineno, "gemm launches no kernel")
        configuration_choice.resets(
            self.source, {"counters_ptr"} if self._workspace else {"c_ptr"} if self.zeroed else set()
        )

    def _known(self, statement: ast.stmt) -> bool:
        """Take in a statement, if its meaning is known."""
        if self._call is not None:
            return self._returned(statement) or self._made_whole(statement)
        match statement:
            case ast.Expr(ast.Call(ast.Name("_check"))):
                return self._admit(statement.value)
            case ast.If(test, [ast.Assign([ast.Name("out")], made)], orelse) if matches(test, "out is None"):
                return self._output(made, orelse)
            case ast.If(test, [ast.Raise()], []) if matches(test, "out is None", "_overlapping(out)"):
                return True
            case ast.If(ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]), [ast.Assign()], [_, *_]):
                return self._beside(name, statement)
            case ast.If(test, [ast.Raise()], []) if matches(test, "reason is not None"):
                self._refuses = True
                return True
            case ast.Expr() if matches(statement, "out.zero_()"):
                self.zeroed = True
                return True
            case ast.If(test, [*emptied, ast.Return() as returned], []) if self._returned(returned):
                if not matches(emptied, "\n".join(f"{name}.zero_()" for name in self._vectors)):
                    return False
                self.facts.append(negation(condition_of(test, {name: variable(name) for name in SIZES}, {})))
                return True
            case ast.Assign([ast.Name(target)], bound):
                return self._chosen(statement) or self._bind(target, bound)
            case ast.Assign():
                return self._chosen(statement) or self._unpacked(statement)
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
        if len(extents) > (3 if self.batched else 2) or dimension not in (None, *range(len(extents))):
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
        known = matches(matrix, _EMPTY.format(", ".join((*front, *shape))))
        known = known and out.shape == tuple(map(variable, (*front, "M", "N")))
        return known and out.unit in (None, unit + len(front))

    def _beside(self, name: str, statement: ast.If) -> bool:
        """A tensor beside `out`, made or given: a matrix as `out` is one, or a vector that no kernel reaches."""
        match statement:
            case ast.If(_, [ast.Assign([ast.Name(made)], value)], [ast.Expr(check), *refused]) if made == name:
                if not matches(refused, "", f"_check_apart('{name}', {name})"):
                    return False
                if not self._admit(check) or name not in self.operands:
                    return False
            case _:
                return False
        out, found = self.operands.get("out"), self.operands[name]
        matrix, flipped = self._flip(value)
        if out is not None and found.shape == out.shape:
            self.results.add(name)
            sizes = ("N", "M") if flipped else ("M", "N")
            front = ("B",) if self.batched else ()
            known = matches(matrix, _EMPTY.format(", ".join((*front, *sizes))))
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
        return matches(statement, "return out", "return out, *$beside")

    def _made_whole(self, statement: ast.stmt) -> bool:
        """Whether torch makes a vector of its parts, which the kernel has written by then."""
        made = [
            f"torch.{how}({parts}, -2, out={parts.removesuffix('_parts')})"
            for parts in self._parts
            for how in ("sum", "amax")
        ]
        return matches(statement, *made)

    def _chosen(self, statement: ast.stmt) -> bool:
        """Whether a row is chosen."""
        choice = configuration_choice.chosen(statement)
        self._choice = choice or self._choice
        return choice is not None

    def _unpacked(self, statement: ast.stmt) -> bool:
        """Take in what several names are assigned."""
        batched = matches(statement, "B, M, N, K = _sizes(a, b)")
        if batched or matches(statement, "M, N, K = _sizes(a, b)"):
            self.batched = batched
            self.facts += helpers.sizes(self.source, self.batched)
            return True
        room = matched(statement, "work, counters = $room")
        if room is not None:
            self._workspace = helpers.workspace(self.source, room["room"], deals="_programs" in self.source.functions)
            return True
        # With K = 0 a small matrix of zeros, which has a shape and strides of its own.
        turned = matched(statement, "a_rows, b_rows = ($a, $b) if K else $zeros")
        if turned is not None:
            self._rows = {"a_rows": self._flip(turned["a"]), "b_rows": self._flip(turned["b"])}
        return turned is not None

    def _bind(self, target: str, node: ast.expr) -> bool:
        """Take in what a name is assigned."""
        match target:
            case "reason" if matches(node, "refusal(a, b, **$others)"):
                self._refuses = False
            case "blocks" if matches(node, "row or CONFIGS[0]"):
                pass
            case "furthest":
                self._furthest = node
            case "index":
                self.indexed = helpers.indexed(self.source, node, self.operands, self._furthest)
            case _ if target.endswith("_parts"):
                return self._room(target, node)
            case _ if matches(node, f"_scalar('{target}', {target}, a.device)"):
                helpers.scalar(self.source)
                self._scalars.add(target)
                self.operands[target] = Operand(target, (poly(1),), 0)
            case _:
                return target.endswith("_desc") and self._describe(target, node)
        return True

    def _describe(self, target: str, node: ast.expr) -> bool:
        """`a_desc = _describe(a.T, ...)`: the operand's own shape and strides, if its last dimension has stride 1."""
        found = matched(node, "_describe($matrix, $block)")
        if found is None:
            return False
        helpers.describe(self.source, self.batched)
        matrix, flipped = self._flip(found["matrix"])
        if isinstance(matrix, ast.Name) and matrix.id in self._rows and not flipped:
            matrix, flipped = self._rows[matrix.id]
        if not isinstance(matrix, ast.Name) or matrix.id not in self.operands:
            return False
        name = matrix.id
        dimensions, stride = len(self.operands[name].shape), self.operands[name].unit
        unit = dimensions - (2 if flipped else 1)
        fault = None if stride == unit else f"described with stride 1 along dimension {unit}, admitted with {stride}"
        self._descriptors[target] = Descriptor(name, dimensions, fault)
        return True

    def _flip(self, node: ast.expr) -> tuple[ast.expr, bool]:
        """A matrix, and whether it is turned: `b.T` is b, turned, and `b.mT` is each matrix of a batch."""
        if isinstance(node, ast.Attribute) and node.attr == ("mT" if self.batched else "T"):
            return node.value, True
        return node, False
