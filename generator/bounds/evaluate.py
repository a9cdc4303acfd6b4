"""Symbolic execution of the kernel: statements, branches, and the loop over K by induction.

A loop body is executed once, for an iteration `step` that the solver may choose (`induction`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from generator.bounds import folded, groups, induction, sharing, triton_semantics
from generator.bounds.choices import merged
from generator.bounds.expressions import Expressions
from generator.bounds.launch_facts import COUNTERS, WORK
from generator.bounds.order_proof import Lemma
from generator.bounds.patterns import assigned, expression, matches
from generator.bounds.rewriting import replaced
from generator.bounds.sites import Site
from generator.bounds.source import NotUnderstood, Refuted
from generator.bounds.symbolic_values import (
    BlockPointer,
    CounterValue,
    IntermediateResult,
    LaneConditions,
    LaneIntegers,
    Opaque,
    Pointer,
    Several,
    Value,
    is_data,
)
from generator.bounds.terms import Atom, Condition, Poly, Renumbered, Variable, at_most, below, of, poly, variable

#: Names of the coordinates of a program's tile or element; symbols replace them once the order of tiles is proved.
COORDINATES = (folded.TILE, ("m", "n"), ("pid_k", "pid_n"))

#: The name of a renumbered program id, from which a program computes its tile.
NUMBER = "tile"

#: A function that returns the lemma for the names and coordinates of a tile, and for the number of tiles over which
#: programs loop (None if each program has one tile).
Order = Callable[[tuple[str, str], LaneIntegers, LaneIntegers, Poly | None], Lemma]

#: Names of a program's matrix, and of its number among the programs of that matrix.
MATRIX, GROUP = ("batch", "pid"), ("group", "pid")

#: A function that returns the conditions on the matrix, given those two; raises `NotUnderstood`.
Split = Callable[[LaneIntegers, LaneIntegers], tuple[Condition, ...]]

#: A function that raises `NotUnderstood` unless the last assignments of names find a program's group, where those
#: without one have ended or not.
Grouped = Callable[[Mapping[str, ast.expr], bool], None]

#: The same of a group's part of K.
PartOfK = Callable[[Mapping[str, ast.expr]], None]

#: The loop of a persistent kernel over tiles: each number below its end belongs to exactly one program.
_WALK = tuple(f"{each}(tl.program_id(0), $end, tl.num_programs(0), **$options)" for each in ("range", "tl.range"))


@dataclass
class Walk:
    """The result of the symbolic execution of a kernel."""

    sites: list[Site] = field(default_factory=list)
    #: The conditions on the symbols that replaced the coordinates, and the coordinates themselves.
    facts: tuple[Condition, ...] = ()
    replaced: dict[str, Poly] = field(default_factory=dict)
    #: The accesses that only one of the programs that share a tile executes.
    alone: slice | None = None


def walk(
    kernel: ast.FunctionDef,
    arguments: Mapping[str, Value],
    order: Order,
    depth: int | None = None,
    split: Split | None = None,
    grouped: tuple[Grouped, Poly] | None = None,
    part_of_k: PartOfK | None = None,
    sides: Sequence[Poly] = (),
) -> Walk:
    """The accesses of a kernel called with `arguments`, which has one for each parameter; raises `NotUnderstood`.

    `depth` is the number of elements of a step along K if programs divide the steps of all tiles (stream-K). `split`
    is given if the operands are batches, and `grouped` with the number of a group's tiles if they have groups of rows;
    `part_of_k` is given if they have groups along K. `sides` are those of the rectangle to which the triangle of a
    symmetric result is folded, of which `order` returns a lemma first.
    """
    at, by_name, matrix = Expressions(dict(arguments)), dict(zip(folded.SIDES, sides)), GROUP if part_of_k else MATRIX
    coordinates = (folded.PLACE,) if sides else COORDINATES
    walker = _Walker(kernel, at, order, depth, split, grouped, part_of_k, by_name, coordinates, matrix)
    walker.run(kernel.body)
    if walker.split is not None:
        raise NotUnderstood(kernel.lineno, "a batch without an assignment of a program's matrix")
    if walker.grouped is not None or walker.part_of_k is not None:
        raise NotUnderstood(kernel.lineno, "groups without an assignment of a program's group")
    walker.walk.sites = walker.at.sites
    return walker.walk


@dataclass
class _Walker:
    """The state of the execution, from the arguments of `walk` on."""

    kernel: ast.FunctionDef
    at: Expressions
    order: Order | None
    depth: int | None
    split: Split | None
    grouped: tuple[Grouped, Poly] | None
    part_of_k: PartOfK | None
    #: The sides of the rectangle of a symmetric result, by the names for them; its place comes before its tile.
    sides: Mapping[str, Poly]
    coordinates: Sequence[tuple[str, str]]
    matrix: tuple[str, str]
    #: Whether the programs without a group have ended.
    ended: bool = False
    walk: Walk = field(default_factory=Walk)
    loops: int = 0
    #: The last assignment of each name, in the order of assignment, while no other statement changes the name.
    latest: dict[str, ast.expr] = field(default_factory=dict)
    #: Whether execution is inside the loop over tiles whose steps several programs divide.
    deals: bool = False
    #: The number of accesses before the last barrier.
    fence: int = 0
    #: The number of tiles, inside the loop over them.
    tiles: Poly | None = None
    #: The number of accesses before the first statement after which both coordinates of a tile are known.
    addressed: int | None = None

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Execute statements in which the tile of a program may be computed."""
        for statement in body:
            self.statement(statement)
            self._cut(statement)

    def statement(self, node: ast.stmt) -> None:
        """Execute a statement."""
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
            case ast.If() if self.grouped is not None and not self.at.path and groups.surplus(node):
                self.ended = True
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

    def _cut(self, statement: ast.stmt) -> None:
        """Once both coordinates of the program are known, replace them with symbols that only the lemma describes."""
        if self.split is not None:
            self._cut_batch(statement, self.split)
        if self.grouped is not None and groups.LAST in assigned([statement]):
            self.grouped[0](self.latest, self.ended)
            self.grouped = None
            self.walk.facts += groups.facts()
            self._renamed(statement, groups.names())
        if self.part_of_k is not None and self.split is None and groups.LAST_OF_K in assigned([statement]):
            self.part_of_k(self.latest)
            self.part_of_k = None
            self.walk.facts += groups.facts_of_part()
            self.at.names |= groups.names_of_part()
        number = self.at.names.get(NUMBER)
        if self.order is not None and isinstance(number, LaneIntegers) and not number.shape:
            known = [atom for product, _ in number.value.terms for atom in product if isinstance(atom, Renumbered)]
            if not known and triton_semantics.PID in number.value.variables:
                self.at.names[NUMBER] = replace(number, value=of(Renumbered(number.value)))
        for name, side in self.sides.items():
            value = self.at.names.get(name)
            if isinstance(value, LaneIntegers) and value.value == side and not value.shape:
                # The lemma knows the sides by their names alone.
                self.at.names[name] = replace(value, value=variable(name), width="32")
        for names in self.coordinates:
            first, second = (self.at.names.get(name) for name in names)
            if self.order is None or not isinstance(first, LaneIntegers) or not isinstance(second, LaneIntegers):
                continue
            if first.shape or second.shape:
                continue
            self.addressed = len(self.at.sites) if self.addressed is None else self.addressed
            if not self._final(names, statement):
                continue
            if len(self.at.sites) > self.addressed:
                raise NotUnderstood(statement.lineno, f"{' and '.join(names)}, changed after an access")
            lemma = self.order(names, first, second, self.tiles)
            self.walk.facts += lemma.inside
            if names == folded.PLACE:
                self.coordinates = (folded.TILE,)
            else:
                self.order = None
            for name, number in zip(names, (first, second)):
                self.walk.replaced[name] = replaced(number.value, self._of_place())
                # The lemma proves the widths of results that depend on the program's number, and mostly of the others.
                pid = triton_semantics.PID
                rest = frozenset(x for x in number.parts if not lemma.fits and pid not in x.value.variables)
                self.at.names[name] = LaneIntegers(variable(name), width="32", parts=rest)

    def _of_place(self) -> dict[Atom, Poly]:
        """The sides of the rectangle of a symmetric result, and a program's place in it, in other terms."""
        sides: dict[Atom, Poly] = {Variable(name): side for name, side in self.sides.items()}
        places = {name: number for name, number in self.walk.replaced.items() if name in folded.PLACE}
        return {**sides, **{Variable(name): number for name, number in places.items()}}

    def _cut_batch(self, statement: ast.stmt, split: Split) -> None:
        """Replace a program's matrix and its number in that matrix with symbols; the latter is `pid` from then on."""
        matrix, slot = (self.at.names.get(name) for name in self.matrix)
        if not isinstance(matrix, LaneIntegers) or not isinstance(slot, LaneIntegers) or matrix.shape or slot.shape:
            return
        if not self._final(self.matrix, statement):
            return
        self.split = None
        self.walk.facts += split(matrix, slot)
        symbols = {self.matrix[0]: self.matrix[0], self.matrix[1]: triton_semantics.PID}
        self._renamed(statement, {name: LaneIntegers(variable(x), width="32") for name, x in symbols.items()})

    def _renamed(self, statement: ast.stmt, names: Mapping[str, Value]) -> None:
        """Give names their values behind a statement, from which on PID is a program's number in its matrix."""
        # No value with its old meaning may remain. The number of a part of K, along the second axis, keeps its meaning.
        behind = [node for node in ast.walk(self.kernel) if getattr(node, "lineno", 0) > statement.lineno]
        named = [node for node in behind if isinstance(node, ast.Attribute) and node.attr == "program_id"]
        parts = [node for node in behind if matches(node, triton_semantics.SECOND_AXIS)]
        if len(named) > len(parts):
            raise NotUnderstood(statement.lineno, "the program id, used after the matrix is computed from it")
        for name, value in self.at.names.items():
            if isinstance(value, LaneIntegers | LaneConditions) and triton_semantics.PID in _variables(value):
                self.at.names[name] = Opaque(f"{name}, which depends on the program id of the whole batch")
            elif isinstance(value, BlockPointer) or (isinstance(value, Pointer) and value.offset != poly(0)):
                raise NotUnderstood(statement.lineno, f"{name}, an address computed before the matrix is known")
        self.at.names |= names

    def _final(self, names: tuple[str, str], statement: ast.stmt) -> bool:
        """Whether no code after a statement assigns any of the names."""
        end = statement.end_lineno or 0, statement.end_col_offset or 0
        stored = (node for node in ast.walk(self.kernel) if isinstance(node, ast.Name) and node.id in names)
        return all((node.lineno, node.col_offset) < end for node in stored if isinstance(node.ctx, ast.Store))

    def _unpack(self, node: ast.stmt, targets: list[ast.expr], value: Value) -> None:
        if is_data(value):
            # The items of data are data.
            value = Several((value,) * len(targets))
        if not isinstance(value, Several) or len(value.items) != len(targets):
            raise NotUnderstood(node.lineno, ast.unparse(node))
        for target, item in zip(targets, value.items):
            if not isinstance(target, ast.Name):
                raise NotUnderstood(node.lineno, ast.unparse(node))
            self.at.names[target.id] = item

    def _counted(self, name: str) -> bool:
        return isinstance(self.at.names.get(name), CounterValue)

    def _last(self, node: ast.If, count: Value, others: Value, body: list[ast.stmt]) -> None:
        """`if before == others:` only the last program of a tile, or its only one, executes the body."""
        assert isinstance(count, CounterValue)
        if not isinstance(others, LaneIntegers) or not self.deals or self.walk.alone is not None:
            raise NotUnderstood(node.lineno, ast.unparse(node.test))
        shared = at_most(1, variable("others"))
        self._check_partial_sums(node, count, (shared,))
        if not (others.value == variable("others") == count.otherwise) or count.under != shared:
            raise Refuted(node.lineno, f"the program that reads {others.value} in the counter computes the result")
        first = len(self.at.sites)
        for statement in body:
            self.statement(statement)
        self.walk.alone = slice(first, len(self.at.sites))

    def _check_partial_sums(self, node: ast.If, count: CounterValue, path: tuple[Condition, ...]) -> None:
        """Raise unless each program of a tile stores its sum at its own place, then increments the tile's counter."""
        incremented = [site for site in self.at.sites if site.operand == count.operand]
        once = len(incremented) == 1 and incremented[0].path == path and not self.at.path
        if count.operand != COUNTERS or count.offset != variable(triton_semantics.PID) or not once:
            raise NotUnderstood(node.lineno, "a counter that not every program of its tile increments exactly once")
        stored = [site for site in self.at.sites if site.operand == WORK and site.kind == "store"]
        if not count.ordered or any(site in self.at.sites[self.fence :] for site in stored):
            reason = "the counter is incremented without a barrier and a release after the partial sum's store"
            raise Refuted(node.lineno, reason)
        for site in stored:
            expected = sharing.sum_at(site.shape)
            if not expected.variables <= site.offset.variables:
                raise Refuted(site.line, f"a partial sum at {site.offset}, a place that several programs use")
            if len(stored) > 1 or (site.path, site.offset) != (path, expected):
                raise NotUnderstood(site.line, f"a partial sum at {site.offset}, which other programs may use, too")

    def _branch(self, test: LaneConditions, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        before = self.at
        ends = []
        for statements, holds in ((body, True), (orelse, False)):
            self.at = before.under(test, holds)
            for statement in statements:
                self.statement(statement)
            ends.append(self.at.names)
        unset = Opaque("a name that one branch does not assign")
        keys = dict.fromkeys([*ends[0], *ends[1]])
        before.names = {key: merged(test, ends[0].get(key, unset), ends[1].get(key, unset)) for key in keys}
        self.at = before

    def _loop(self, node: ast.For, target: str, steps: ast.Call, body: list[ast.stmt]) -> None:
        start, stop, step = induction.steps_of(self.at, steps)
        count = variable(f"step{self.loops or ''}")
        self.loops += 1
        reached = start.value + count * step
        inside = (at_most(0, count), below(reached, stop.value))
        before, changed = self.at, assigned(body) | {target}
        names = induction.outside(self.at, changed, node)
        last = IntermediateResult(stop.value + step, (), False, before.path, node.lineno)
        decided = before.decided | start.parts | stop.parts | {last}
        self.at = Expressions(dict(names), (*before.path, *inside), decided, before.sites)
        moving = {name: induction.moving(self.at, name, body, before.names.get(name), count) for name in changed}
        parts = start.parts | stop.parts
        self.at.names |= {name: value for name, value in moving.items() if value is not None}
        self.at.names[target] = LaneIntegers(reached, (), "32", parts)
        entered = len(self.at.sites)
        for statement in body:
            self.statement(statement)
        first, end = start.value.constant, stop.value.constant
        if first is not None and end is not None and first >= end:
            self.at.sites[entered:] = [replace(site, idle=True) for site in self.at.sites[entered:]]
        before.names = names
        self.at = before

    def _tiles(self, node: ast.For, target: str, end: ast.expr, body: list[ast.stmt]) -> None:
        """The loop of a persistent kernel over tiles: inside it, the tile's number replaces the program id."""
        assert isinstance(node.iter, ast.Call)
        tiles = self.at.value(end)
        if self.grouped is not None and groups.walked(end):
            tiles = LaneIntegers(self.grouped[1])
        known = isinstance(tiles, LaneIntegers) and not tiles.shape
        if not known or self.tiles is not None or self.order is None or self.at.path:
            raise NotUnderstood(node.lineno, f"the loop over {ast.unparse(node.iter)}")
        assert isinstance(tiles, LaneIntegers)
        names = induction.outside(self.at, assigned(body) | {target}, node)
        self._walked(names, {target: LaneIntegers(variable(triton_semantics.PID), width="32")}, tiles.value, body)

    def _dealt(self, node: ast.For, target: str, body: list[ast.stmt]) -> None:
        """The loop of a stream-K kernel over the tiles of which a program computes steps."""
        changed, within = assigned(body) | {target}, sharing.names()
        known = self.depth is not None and sharing.dealt(target, self.latest) and not changed & within.keys() - {target}
        known = known and not assigned(self.kernel.body) & sharing.GIVEN
        if not known or self.tiles is not None or self.order is None or self.at.path:
            raise NotUnderstood(node.lineno, f"the loop over {ast.unparse(node.iter)}")
        tiles = self.at.value(expression(sharing.TILES_OF_ALL))
        assert isinstance(tiles, LaneIntegers) and self.depth is not None
        self.deals = True
        self._walked(induction.outside(self.at, changed, node), within, tiles.value, body)
        self.deals = False
        self.walk.facts += sharing.facts(self.depth)

    def _walked(
        self, names: Mapping[str, Value], own: Mapping[str, Value], tiles: Poly, body: Sequence[ast.stmt]
    ) -> None:
        """Execute the body of a loop over tiles: `names` keep their values behind it, and it has some of its `own`."""
        before = self.at
        self.at = Expressions({**names, **own}, before.path, before.decided, before.sites)
        self.tiles = tiles
        self.run(body)
        self.tiles = None
        before.names = dict(names)
        self.at = before


def _variables(value: LaneIntegers | LaneConditions) -> frozenset[str]:
    return (value.value if isinstance(value, LaneIntegers) else value.condition).variables
