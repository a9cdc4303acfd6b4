"""The walk through the kernel: statements, branches, and the loop over K by induction.

A loop is walked once, for an iteration `step` that the solver may choose: a pointer that every iteration moves by the
same distance is where it began, and `step` times that distance. What a loop changes in any other way is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from generator.bounds import sharing, triton_semantics
from generator.bounds.choices import merged
from generator.bounds.expressions import Expressions
from generator.bounds.launcher_facts import COUNTERS, WORK
from generator.bounds.order_proof import Lemma
from generator.bounds.patterns import assigned, dotted, expression, matches
from generator.bounds.sites import Place, Site
from generator.bounds.source import NotUnderstood, Refuted
from generator.bounds.symbolic_values import (
    Block,
    Count,
    Number,
    Opaque,
    Part,
    Pointer,
    Several,
    Truth,
    Value,
    reaches_memory,
)
from generator.bounds.terms import Condition, Poly, Renumbered, at_most, below, of, poly, variable

#: Names that hold a program's place, a tile's or an element's: replaced by symbols where the order of tiles is proved.
COORDINATES = (("pid_m", "pid_n"), ("m", "n"))

#: A name that holds another number of the program than its own, by which it finds its tile.
NUMBER = "tile"

#: Given the names and the two coordinates of a tile, and how many tiles the programs walk (None where each program has
#: a tile of its own): the lemma about them.
Order = Callable[[tuple[str, str], Number, Number, Poly | None], Lemma]

#: Names that hold a program's matrix, and its place among the programs of that matrix.
MATRIX = ("batch", "pid")

#: Given those two: what is then known of the matrix; raises `NotUnderstood`.
Split = Callable[[Number, Number], tuple[Condition, ...]]

#: The programs walk the numbers below the loop's end, and each number has one program that comes to it.
_WALK = tuple(f"{each}(tl.program_id(0), $end, tl.num_programs(0), **$options)" for each in ("range", "tl.range"))


@dataclass
class Walk:
    """What a walk through a kernel found."""

    sites: list[Site] = field(default_factory=list)
    #: What holds of the symbols that replaced the coordinates, and what these were.
    facts: tuple[Condition, ...] = ()
    replaced: dict[str, Poly] = field(default_factory=dict)
    #: The accesses that one program alone of those that share a tile comes to.
    alone: slice | None = None


def walk(
    kernel: ast.FunctionDef,
    arguments: Mapping[str, Value],
    order: Order,
    programs: int,
    depth: int | None = None,
    split: Split | None = None,
) -> Walk:
    """The accesses of a kernel called with these arguments, `programs` to a tile; raises `NotUnderstood`.

    Where programs deal out the steps along K of all tiles, these have `depth` elements each. `split` is there where the
    operands are batches: what is known of a program's matrix.
    """
    missing = [parameter.arg for parameter in kernel.args.args if parameter.arg not in arguments]
    if missing:
        raise NotUnderstood(kernel.lineno, f"the parameter {missing[0]}, which the launcher does not pass")
    walker = _Walker(kernel, Expressions(dict(arguments)), order, programs, depth, split)
    for statement in kernel.body:
        walker.statement(statement)
        walker.cut(statement)
    if walker.split is not None:
        raise NotUnderstood(kernel.lineno, "a batch, and nothing that tells the matrix of a program")
    walker.found.sites = walker.at.sites
    return walker.found


class _Walker:
    def __init__(
        self,
        kernel: ast.FunctionDef,
        at: Expressions,
        order: Order,
        programs: int,
        depth: int | None,
        split: Split | None,
    ) -> None:
        self.kernel, self.at = kernel, at
        self.order: Order | None = order
        self.split = split
        self.found = Walk()
        self.programs, self.depth = programs, depth
        self.loops = 0
        #: What names were assigned last, in this order, as far as nothing else has changed them since.
        self.latest: dict[str, ast.expr] = {}
        #: Whether the walk is in the loop over the tiles that share out their steps.
        self.deals = False
        #: How many accesses lie before the last barrier.
        self.fence = 0
        #: The number of tiles, within the loop over them.
        self.tiles: Poly | None = None
        #: How many accesses lie before the first statement behind which both coordinates of a tile are known.
        self.addressed: int | None = None

    def statement(self, node: ast.stmt) -> None:
        """Go through a statement."""
        self._go(node)
        for name in assigned([node]):
            self.latest.pop(name, None)
        match node:
            case ast.Assign([ast.Name(name)], value):
                self.latest[name] = value

    def _go(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign([ast.Name(name)], value):
                known = sharing.within(name, value, self.latest) if self.deals else None
                self.at.names[name] = known or self.at.value(value)
            case ast.Assign([ast.Tuple(targets)], value):
                self._unpack(node, targets, self.at.value(value))
            case ast.AugAssign(ast.Name(name) as target, operator, value):
                old = self.at.value(ast.Name(target.id, ast.Load(), lineno=node.lineno, col_offset=node.col_offset))
                self.at.names[name] = triton_semantics.operate(self.at.place(node), operator, old, self.at.value(value))
            case ast.Expr(value):
                self.at.value(value)
                if matches(value, "tl.debug_barrier()"):
                    self.fence = len(self.at.sites)
            case ast.If(ast.Compare(count, [ast.NotEq()], [others]), [ast.Return(None)], []):
                self._leave(node, self.at.value(count), self.at.value(others))
            case ast.If(ast.Compare(ast.Name(count), [ast.Eq()], [others]), body, []) if self._counted(count):
                self._last(node, self.at.names[count], self.at.value(others), body)
            case ast.If(test, body, orelse):
                self._branch(self.at.truth(test), body, orelse)
            case ast.For(ast.Name(name), ast.Call(_, [_, end, _]) as steps, body, []) if matches(steps, *_WALK):
                self._tiles(node, name, end, body)
            case ast.For(ast.Name(name), ast.Call() as steps, body, []) if matches(steps, sharing.LOOP):
                self._dealt(node, name, body)
            case ast.For(ast.Name(name), ast.Call() as steps, body, []):
                self._loop(node, name, steps, body)
            case ast.Pass():
                pass
            case _:
                raise NotUnderstood(node.lineno, ast.unparse(node).partition("\n")[0])

    def cut(self, statement: ast.stmt) -> None:
        """Replace the coordinates of the program, once both are known, by symbols that the lemma alone knows of."""
        if self.split is not None:
            self._cut_batch(statement, self.split)
        number = self.at.names.get(NUMBER)
        if self.order is not None and isinstance(number, Number) and not number.shape:
            known = [atom for product, _ in number.value.terms for atom in product if isinstance(atom, Renumbered)]
            if not known and triton_semantics.PID in number.value.variables:
                self.at.names[NUMBER] = replace(number, value=of(Renumbered(number.value)))
        for names in COORDINATES:
            first, second = (self.at.names.get(name) for name in names)
            if self.order is None or not isinstance(first, Number) or not isinstance(second, Number):
                continue
            if first.shape or second.shape:
                continue
            self.addressed = len(self.at.sites) if self.addressed is None else self.addressed
            if not self._final(names, statement):
                continue
            if len(self.at.sites) > self.addressed:
                raise NotUnderstood(statement.lineno, f"{' and '.join(names)}, changed behind an access")
            lemma = self.order(names, first, second, self.tiles)
            self.found.facts += lemma.inside
            self.order = None
            for name, number in zip(names, (first, second)):
                self.found.replaced[name] = number.value
                # The lemma answers for what is computed of the program's number, and mostly for the rest.
                rest = frozenset(
                    x for x in number.parts if not lemma.fits and triton_semantics.PID not in x.value.variables
                )
                self.at.names[name] = Number(variable(name), width="32", parts=rest)

    def _cut_batch(self, statement: ast.stmt, split: Split) -> None:
        """Replace a program's matrix, and its place among the programs of that matrix, which is `pid` from then on."""
        matrix, place = (self.at.names.get(name) for name in MATRIX)
        if not isinstance(matrix, Number) or not isinstance(place, Number) or matrix.shape or place.shape:
            return
        if not self._final(MATRIX, statement):
            return
        self.split = None
        self.found.facts += split(matrix, place)
        # From here on the symbol of the program's number means another one, so that none may be left of the old.
        called = (node for node in ast.walk(self.kernel) if isinstance(node, ast.Attribute))
        if any(node.attr == "program_id" and node.lineno > statement.lineno for node in called):
            raise NotUnderstood(statement.lineno, "the program's number, behind that of its matrix")
        for name, value in self.at.names.items():
            if isinstance(value, Number | Truth) and triton_semantics.PID in _variables(value):
                self.at.names[name] = Opaque(f"{name}, which is of all matrices")
            elif isinstance(value, Block) or (isinstance(value, Pointer) and value.offset != poly(0)):
                raise NotUnderstood(statement.lineno, f"{name}, an address made before the matrix is known")
        for name, symbol in zip(MATRIX, ("batch", triton_semantics.PID)):
            self.at.names[name] = Number(variable(symbol), width="32")

    def _final(self, names: tuple[str, str], statement: ast.stmt) -> bool:
        """Whether nothing behind a statement assigns any of the names."""
        end = statement.end_lineno or 0, statement.end_col_offset or 0
        stored = (node for node in ast.walk(self.kernel) if isinstance(node, ast.Name) and node.id in names)
        return all((node.lineno, node.col_offset) < end for node in stored if isinstance(node.ctx, ast.Store))

    def _unpack(self, node: ast.stmt, targets: list[ast.expr], value: Value) -> None:
        if isinstance(value, Opaque) and not value.memory:
            # Data taken apart is data.
            value = Several((value,) * len(targets))
        if not isinstance(value, Several) or len(value.items) != len(targets):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        for target, item in zip(targets, value.items):
            if not isinstance(target, ast.Name):
                raise NotUnderstood(node.lineno, ast.unparse(node))
            self.at.names[target.id] = item

    def _leave(self, node: ast.If, count: Value, others: Value) -> None:
        """`if before != SPLIT - 1: return`: of the programs that share a tile one goes on, after all the others."""
        if (
            not isinstance(count, Count)
            or not isinstance(others, Number)
            or self.found.alone is not None
            or self.tiles is not None
        ):
            raise NotUnderstood(node.lineno, ast.unparse(node.test))
        self._handed_in(node, count, sharing.place(self.programs), ())
        if others.value.constant != self.programs - 1 or count.otherwise is not None:
            told = f"of {self.programs} programs that share a tile the one that finds {others.value} there goes on"
            raise Refuted(node.lineno, told)
        self.found.alone = slice(len(self.at.sites), None)

    def _counted(self, name: str) -> bool:
        return isinstance(self.at.names.get(name), Count)

    def _last(self, node: ast.If, count: Value, others: Value, body: list[ast.stmt]) -> None:
        """`if before == others:` the last program of a tile, or its only one, whose `before` is `others`."""
        assert isinstance(count, Count)
        if not isinstance(others, Number) or not self.deals or self.found.alone is not None:
            raise NotUnderstood(node.lineno, ast.unparse(node.test))
        shared = at_most(1, variable("others"))
        self._handed_in(node, count, sharing.place_of_two(), (shared,))
        if not (others.value == variable("others") == count.otherwise) or count.under != shared:
            raise Refuted(node.lineno, f"the program that finds {others.value} others counted makes the result")
        first = len(self.at.sites)
        for statement in body:
            self.statement(statement)
        self.found.alone = slice(first, len(self.at.sites))

    def _handed_in(self, node: ast.If, count: Count, place: Poly, path: tuple[Condition, ...]) -> None:
        """Raise unless each program of a tile stores its sum at its own place, and then raises the tile's counter."""
        raised = [site for site in self.at.sites if site.operand == count.operand]
        once = len(raised) == 1 and raised[0].path == path and not self.at.path
        if count.operand != COUNTERS or count.offset != variable(triton_semantics.PID) or not once:
            raise NotUnderstood(node.lineno, "a counter that is not raised once by every program of its tile")
        stored = [site for site in self.at.sites if site.operand == WORK and site.kind == "store"]
        if not count.ordered or any(site in self.at.sites[self.fence :] for site in stored):
            raise Refuted(
                node.lineno, "a sum that is counted before it is stored, without a barrier and a release between"
            )
        for site in stored:
            expected = sharing.sum_at(place, site.shape)
            if not expected.variables <= site.offset.variables:
                raise Refuted(site.line, f"a sum at {site.offset}, which is not a place of its own for every program")
            if len(stored) > 1 or (site.path, site.offset) != (path, expected):
                raise NotUnderstood(site.line, f"a sum at {site.offset}, which is not known to be a place of its own")

    def _branch(self, test: Truth, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        before = self.at
        ends = []
        for statements, holds in ((body, True), (orelse, False)):
            self.at = before.under(test, holds)
            for statement in statements:
                self.statement(statement)
            ends.append(self.at.names)
        unset = Opaque("what one branch leaves unset")
        keys = dict.fromkeys([*ends[0], *ends[1]])
        before.names = {key: merged(test, ends[0].get(key, unset), ends[1].get(key, unset)) for key in keys}
        self.at = before

    def _loop(self, node: ast.For, target: str, steps: ast.Call, body: list[ast.stmt]) -> None:
        start, stop, step = self._range(steps)
        count = variable(f"step{self.loops or ''}")
        self.loops += 1
        reached = start.value + count * step
        inside = (at_most(0, count), below(reached, stop.value))
        before, changed = self.at, assigned(body) | {target}
        names = self._without(changed, node)
        last = Part(stop.value + step, (), False, before.path, node.lineno)
        decided = before.decided | start.parts | stop.parts | {last}
        self.at = Expressions(dict(names), (*before.path, *inside), decided, before.sites)
        moving = {name: self._moving(name, body, before.names.get(name), count) for name in changed}
        parts = start.parts | stop.parts
        self.at.names |= {name: value for name, value in moving.items() if value is not None}
        self.at.names[target] = Number(reached, (), "32", parts)
        for statement in body:
            self.statement(statement)
        before.names = names
        self.at = before

    def _tiles(self, node: ast.For, target: str, end: ast.expr, body: list[ast.stmt]) -> None:
        """A loop over tiles: the number of the tile is then what a program's own is where each has one."""
        assert isinstance(node.iter, ast.Call)
        tiles = self.at.value(end)
        known = isinstance(tiles, Number) and not tiles.shape
        if not known or self.tiles is not None or self.order is None or self.at.path:
            raise NotUnderstood(node.lineno, f"the loop over {ast.unparse(node.iter)}")
        assert isinstance(tiles, Number)
        before, names = self.at, self._without(assigned(body) | {target}, node)
        self.at = Expressions(dict(names), before.path, before.decided, before.sites)
        self.at.names[target] = Number(variable(triton_semantics.PID), width="32")
        self.tiles = tiles.value
        for statement in body:
            self.statement(statement)
            self.cut(statement)
        self.tiles = None
        before.names = names
        self.at = before

    def _dealt(self, node: ast.For, target: str, body: list[ast.stmt]) -> None:
        """A loop over the tiles of which a program has steps."""
        changed, within = assigned(body) | {target}, sharing.names()
        known = self.depth is not None and sharing.dealt(target, self.latest) and not changed & within.keys() - {target}
        known = known and not assigned(self.kernel.body) & sharing.GIVEN
        if not known or self.tiles is not None or self.order is None or self.at.path:
            raise NotUnderstood(node.lineno, f"the loop over {ast.unparse(node.iter)}")
        tiles = self.at.value(expression(sharing.TILES_OF_ALL))
        assert isinstance(tiles, Number) and self.depth is not None
        before, names = self.at, self._without(changed, node)
        self.at = Expressions({**names, **within}, before.path, before.decided, before.sites)
        self.tiles, self.deals = tiles.value, True
        for statement in body:
            self.statement(statement)
            self.cut(statement)
        self.found.facts += sharing.facts(self.depth)
        self.tiles, self.deals = None, False
        before.names = names
        self.at = before

    def _without(self, changed: set[str], loop: ast.For) -> dict[str, Value]:
        """The names as a loop leaves them, and finds them again: nothing is known of what it changes."""
        names = dict(self.at.names)
        for name in changed:
            hidden = name in names and reaches_memory(names[name])
            names[name] = Opaque(f"{name}, which the loop of line {loop.lineno} changes", hidden)
        return names

    def _range(self, steps: ast.Call) -> tuple[Number, Number, int]:
        values = [self.at.value(argument) for argument in steps.args]
        numbers = [value for value in values if isinstance(value, Number) and not value.shape]
        known = dotted(steps.func) in ("range", "tl.range") and 1 <= len(numbers) == len(values) <= 3
        zero, one = triton_semantics.constant(0), triton_semantics.constant(1)
        assert isinstance(zero, Number) and isinstance(one, Number)
        start, stop, step = (zero, *numbers, one)[:3] if len(numbers) == 1 else (*numbers, one, one)[:3]
        stride = step.value.constant
        if not known or stride is None or stride < 1:
            raise NotUnderstood(steps.lineno, f"the loop over {ast.unparse(steps)}")
        return start, stop, stride

    def _moving(self, name: str, body: list[ast.stmt], first: Value | None, count: Poly) -> Value | None:
        """What a name stands for in iteration `count`, if every iteration moves it once and by the same; or None."""
        if sum(name in assigned([statement]) for statement in body) != 1 or first is None:
            return None
        # By now one iteration has passed, and only where there is a second one is the distance of any matter.
        again = Expressions(dict(self.at.names), (*self.at.path, at_most(1, count)), self.at.decided, [])
        for statement in body:
            place = replace(again.place(statement), line=statement.lineno)
            match statement:
                case ast.AugAssign(ast.Name(x), ast.Add(), value) if x == name and isinstance(first, Pointer | Number):
                    by = again.value(value)
                    if isinstance(by, Number) and not by.shape:
                        return _moved(first, by, count, place)
                case ast.Assign([ast.Name(x)], ast.Call(function, [ast.Name(y), value], [])) if x == y == name:
                    by = again.value(value)
                    if dotted(function) == "tl.advance" and isinstance(first, Block) and isinstance(by, Several):
                        return triton_semantics.moved_block(place, first, by, count)
        return None


def _moved(first: Pointer | Number, by: Number, count: Poly, place: Place) -> Value:
    parts = first.parts | by.parts
    if isinstance(first, Pointer):
        return Pointer(first.operand, first.offset + by.value * count, first.shape, parts)
    value = first.value + by.value * count
    part = Part(value, first.shape, first.width == "index", place.path, place.line)
    return Number(value, first.shape, first.width, parts | {part})


def _variables(value: Number | Truth) -> frozenset[str]:
    return (value.value if isinstance(value, Number) else value.condition).variables
