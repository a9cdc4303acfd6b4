"""A proof by induction that a function from numbers to tiles, such as a Hilbert curve, is one-to-one on a grid.

Each iteration of the function's loop selects a part of the previous part of the grid, and a number inside it. A part is
a rectangle of `far` tiles from its corner (m, n) in direction (dm, dn) by `wide` tiles in direction (dn, dm). For one
iteration, for any part and number, it is proved that the selected part is smaller and inside the previous one; that the
selected number is inside it; that two numbers that select different parts select disjoint parts, and that two numbers
that select the same part stay different. After the loop, numbers of one part give different tiles, all inside it. By
induction, any two numbers give different tiles of the grid.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations

from generator.bounds import concrete_run
from generator.bounds.expressions import Expressions
from generator.bounds.rewriting import atoms, replaced, replaced_in, sums_of
from generator.bounds.solve import follows
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import LaneIntegers
from generator.bounds.terms import (
    ALWAYS,
    NEVER,
    Atom,
    Condition,
    ConditionalSum,
    Poly,
    Variable,
    at_most,
    below,
    either,
    equal,
    negation,
    of,
    poly,
    variable,
)
from generator.bounds.triton_semantics import operate
from generator.emit.syntax_digest import digest_of, undocumented, written

#: The variables that describe a part: its corner, its lengths, and the direction of the first length.
_CORNER, _LENGTHS, _DIRECTION = ("m", "n"), ("far", "wide"), ("dm", "dn")
_DIRECTIONS = ((0, 1), (1, 0), (0, -1), (-1, 0))
#: Names for the two numbers that a function returns.
_RETURNED = ("returned m", "returned n")
#: A number inside a part, and the replacement that gives a second number.
_NUMBER = variable("number")
_TWIN: Mapping[Atom, Poly] = {Variable("number"): variable("number'")}


@dataclass(frozen=True)
class Curve:
    """A function of a file with statements, one loop, further statements, and two returned numbers."""

    node: ast.FunctionDef

    @cached_property
    def text(self) -> str:
        """The identity of the function: its name, and a digest of its syntax tree."""
        return f"{self.node.name}@{digest_of([written(self.node)])[:8]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @cached_property
    def _parts(self) -> tuple[list[ast.stmt], ast.While, list[ast.stmt], ast.expr]:
        body = undocumented(self.node)
        loops = [index for index, statement in enumerate(body) if isinstance(statement, ast.While)]
        match body[loops[0]] if len(loops) == 1 else None, body[-1]:
            case ast.While(orelse=[]) as loop, ast.Return(ast.Tuple([_, _]) as returned):
                return body[: loops[0]], loop, body[loops[0] + 1 : -1], returned
        raise NotUnderstood(self.node.lineno, f"the function {self.node.name}")

    @property
    def known(self) -> bool:
        """Whether the function has three parameters and one loop."""
        try:
            return len(self.parameters) == 3 and self._parts is not None
        except NotUnderstood:
            return False

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(parameter.arg for parameter in self.node.args.args)

    def start(self, arguments: Sequence[LaneIntegers]) -> list[Expressions]:
        """Each path to the loop."""
        return list(_ways(self._parts[0], Expressions(dict(zip(self.parameters, arguments)))))

    def turns(self, at: Expressions) -> list[Expressions]:
        """Each path through one iteration of the loop."""
        loop = self._parts[1]
        return [way for entered in _taken(at, loop.test, True) for way in _ways(loop.body, entered)]

    def ends(self, at: Expressions) -> list[tuple[Expressions, tuple[LaneIntegers, LaneIntegers]]]:
        """Each path from the end of the loop to the return, with the returned numbers."""
        _, loop, after, returned = self._parts
        ends: list[tuple[Expressions, tuple[LaneIntegers, LaneIntegers]]] = []
        # The returned tuple is treated as an assignment to names.
        names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in _RETURNED]
        last = ast.copy_location(ast.Assign([ast.Tuple(names, ast.Store())], returned), returned)
        for left in _taken(at, loop.test, False):
            for way in _ways([*after, last], left):
                match [way.names[name] for name in _RETURNED]:
                    case [LaneIntegers() as x, LaneIntegers() as y]:
                        ends.append((way, (x, y)))
                    case _:
                        raise NotUnderstood(returned.lineno, ast.unparse(returned))
        return ends

    def value(self, arguments: Sequence[int]) -> tuple[int, ...]:
        """The numbers that the function returns for integers; raises like `concrete_run.returned`."""
        return concrete_run.returned(self.node, arguments)


def _taken(at: Expressions, test: ast.expr, holds: bool) -> Iterator[Expressions]:
    way = at.under(at.truth(test), holds)
    if NEVER not in way.path:
        yield Expressions(way.names, tuple(x for x in way.path if x != ALWAYS), way.decided, way.sites)


def _ways(body: Sequence[ast.stmt], at: Expressions) -> Iterator[Expressions]:
    """Each path through statements, with the values of the names at its end and the conditions that hold on it."""
    if not body:
        yield at
        return
    match body[0]:
        case ast.If(test, then, orelse):
            for branch, holds in ((then, True), (orelse, False)):
                for way in _taken(at, test, holds):
                    yield from _ways([*branch, *body[1:]], way)
            return
        case ast.Assign([ast.Name(name)], value):
            at.names[name] = at.value(value)
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            right = [at.value(value) for value in values]
            for target, each in zip(targets, right):
                if not isinstance(target, ast.Name):
                    raise NotUnderstood(target.lineno, ast.unparse(target))
                at.names[target.id] = each
        case ast.AugAssign(ast.Name(name) as target, operator, value):
            old = at.value(ast.Name(name, ast.Load(), lineno=target.lineno, col_offset=target.col_offset))
            at.names[name] = operate(at.place(target), operator, old, at.value(value))
        case statement:
            raise NotUnderstood(statement.lineno, ast.unparse(statement).partition("\n")[0])
    for way in _apart(at):
        yield from _ways(body[1:], way)


def _apart(at: Expressions) -> Iterator[Expressions]:
    """One path for each combination of choices in the values of names, as if each choice were a branch."""
    numbers = {name: x for name, x in at.names.items() if isinstance(x, LaneIntegers)}
    choices = [x for x in atoms(number.value for number in numbers.values()) if isinstance(x, ConditionalSum)]
    if not choices:
        yield at
        return
    test = choices[0].condition
    for holds, condition in ((True, test), (False, negation(test))):
        by: dict[Atom, Poly] = {x: x.then if holds else x.otherwise for x in choices if x.condition == test}
        taken = {name: replace(x, value=replaced(x.value, by)) for name, x in numbers.items()}
        if negation(condition) not in at.path:
            yield from _apart(Expressions(at.names | taken, (*at.path, condition), at.decided, at.sites))


@dataclass(frozen=True)
class _Part:
    """A part of the grid, and a number inside it."""

    number: Poly
    corner: tuple[Poly, ...]
    lengths: tuple[Poly, ...]
    direction: tuple[int, int]

    @property
    def shape(self) -> tuple[Poly, ...]:
        """The corner and the lengths."""
        return *self.corner, *self.lengths

    @property
    def area(self) -> Poly:
        return self.lengths[0] * self.lengths[1]

    @property
    def spans(self) -> list[tuple[Poly, Poly]]:
        """The first row and the row after the last one; the same for columns."""
        far, wide = self.lengths
        dm, dn = self.direction
        spans = zip(self.corner, (far, wide) if dm else (wide, far), (dm or dn, dn or dm))
        return [(at, at + length) if sign > 0 else (at - length + 1, at + 1) for at, length, sign in spans]

    def holds(self, grid: Sequence[Poly]) -> list[Condition]:
        """The conditions that the part is inside the grid and the number inside the part."""
        far, wide = self.lengths
        bounds = [at_most(1, far), at_most(1, wide), at_most(0, self.number), below(self.number, self.area)]
        for (first, behind), extent in zip(self.spans, grid):
            bounds += [at_most(0, first), at_most(behind, extent)]
        # Products of two unknowns are hard for the solver; this bound is enough for the width of the number.
        return [*bounds, at_most(self.area, 2**31 - 1)]

    def within(self, other: _Part) -> list[Condition]:
        """The conditions that the part is smaller than `other` and inside it."""
        pairs = zip(self.spans, other.spans)
        bounds = [x for (a, b), (c, d) in pairs for x in (at_most(c, a), at_most(b, d))]
        return [*bounds, below(self.lengths[0] + self.lengths[1], other.lengths[0] + other.lengths[1])]

    def apart(self, other: _Part) -> Condition:
        """The condition that no tile is in both parts."""
        pairs = zip(self.spans, other.spans)
        return either([x for (a, b), (c, d) in pairs for x in (at_most(b, c), at_most(d, a))])


@dataclass(frozen=True)
class _Induction:
    """The steps of the proof; each yields messages about claims that it cannot prove."""

    curve: Curve
    program: Poly
    grid: tuple[Poly, ...]
    facts: tuple[Condition, ...]

    def start(self) -> Iterator[str]:
        """The loop starts with the program's number, in a part that is the same for all programs."""
        for way in self.curve.start([LaneIntegers(x, width="32") for x in (self.program, *self.grid)]):
            part = _part(self.curve, way)
            if part.number != self.program or _depends([*part.shape, *way.path], self.program):
                yield "the loop does not start with the program's number"
            known = [*self.facts, *way.path]
            yield from self._not_proved(known, part.holds(self.grid), "before the loop")
            yield from self._too_wide(way, known)

    def turn(self, before: _Part) -> Iterator[str]:
        """One iteration selects a smaller part with a number inside; different paths select disjoint parts."""
        inside = self._inside(before)
        ways = [(way, _part(self.curve, way)) for way in self.curve.turns(_at(self.curve, before, self.grid))]
        for way, after in ways:
            if _depends([*after.shape, after.number - _NUMBER], _NUMBER):
                yield "after an iteration, the part depends on the number"
            yield from self._not_proved(
                [*inside, *way.path], [*after.holds(self.grid), *after.within(before)], "after an iteration"
            )
            yield from self._too_wide(way, [*inside, *way.path])
        for (one, first), (two, second) in combinations(ways, 2):
            both = [*inside, *one.path, *(replaced_in(x, _TWIN) for x in (*inside, *two.path))]
            yield from self._not_proved(both, [first.apart(second)], "after two different iterations")

    def end(self, before: _Part) -> Iterator[str]:
        """After the loop the part is a line; tiles are inside it, and different numbers give different tiles."""
        inside = self._inside(before)
        line = either([at_most(length, 1) for length in before.lengths])
        for way, _ in self.curve.ends(_at(self.curve, before, self.grid)):
            if _depends(way.path, _NUMBER):
                yield "the end of the loop depends on the number"
            yield from self._not_proved([*inside, *way.path], [line], "after the loop")
        far, wide = before.lengths
        for lengths in ((poly(1), wide), (far, poly(1))):
            part = replace(before, lengths=lengths)
            for way, tile in self.curve.ends(_at(self.curve, part, self.grid)):
                known = [*self._inside(part), *way.path]
                places = [(at.value, *span) for at, span in zip(tile, part.spans)]
                bounds = [x for at, first, behind in places for x in (at_most(first, at), below(at, behind))]
                twins = [*(replaced_in(x, _TWIN) for x in known), *(equal(x, replaced(x, _TWIN)) for x, *_ in places)]
                yield from self._not_proved(known, bounds, "after the loop")
                same = equal(_NUMBER, replaced(_NUMBER, _TWIN))
                yield from self._not_proved([*known, *twins], [same], "after the loop")
                yield from self._too_wide(way, known, tile)

    def _inside(self, part: _Part) -> list[Condition]:
        """The conditions that hold for a part and the grid."""
        return [*(fact for fact in self.facts if not _depends([fact], self.program)), *part.holds(self.grid)]

    def _not_proved(self, known: Iterable[Condition], wanted: Iterable[Condition], where: str) -> Iterator[str]:
        """A message for each of the conditions `wanted` that does not follow from `known`."""
        known = list(known)
        # Products of unknowns are hard for the solver, and most proofs do not need them.
        plain = [x for x in known if _linear(x)]
        for each in wanted:
            if _linear(each) and follows(plain, each):
                continue
            if not follows([*known, *_products(plain, [*known, each])], each):
                yield f"{where}, {each} is not known"

    def _too_wide(
        self, way: Expressions, known: Sequence[Condition], results: Iterable[LaneIntegers] = ()
    ) -> Iterator[str]:
        """A message for each number computed on a path that is not known to fit 32 bits."""
        numbers = [x for x in (*way.names.values(), *results) if isinstance(x, LaneIntegers)]
        parts = way.decided.union(*(x.parts for x in numbers))
        for part in sorted(parts, key=lambda part: (part.line, str(part.value))):
            fitting = [at_most(-(2**31), part.value), below(part.value, 2**31)]
            yield from self._not_proved([*known, *part.path], fitting, f"for the 32 bits of line {part.line}")


def why_not(curve: Curve, program: Poly, grid: Sequence[Poly], facts: Iterable[Condition]) -> str:
    """Why it is not proved that all programs have different tiles of the grid; empty if it is proved.

    `facts` are conditions on the program's number and the grid's sides. Raises `NotUnderstood`.
    """
    steps = _Induction(curve, program, tuple(grid), tuple(facts))
    corner, lengths = (tuple(map(variable, names)) for names in (_CORNER, _LENGTHS))
    parts = [_Part(_NUMBER, corner, lengths, direction) for direction in _DIRECTIONS]
    faults = chain(steps.start(), *(chain(steps.turn(part), steps.end(part)) for part in parts))
    return next(faults, "")


def _at(curve: Curve, part: _Part, grid: Sequence[Poly]) -> Expressions:
    """The state at the start of an iteration with `part`."""
    sums = dict(zip((*_CORNER, *_LENGTHS), (*part.corner, *part.lengths)))
    sums |= dict(zip(curve.parameters, (part.number, *grid)))
    names = {name: LaneIntegers(sum, width="32") for name, sum in sums.items()}
    return Expressions({**names, **{name: LaneIntegers(poly(x)) for name, x in zip(_DIRECTION, part.direction)}})


def _part(curve: Curve, at: Expressions) -> _Part:
    """The part at the start of an iteration; raises `NotUnderstood`."""
    values = [at.names.get(name) for name in (curve.parameters[0], *_CORNER, *_LENGTHS, *_DIRECTION)]
    sums = [x.value for x in values if isinstance(x, LaneIntegers)]
    if len(sums) == len(values):
        number, m, n, far, wide, dm, dn = sums
        direction = dm.constant, dn.constant
        for known in _DIRECTIONS:
            if direction == known:
                return _Part(number, (m, n), (far, wide), known)
    raise NotUnderstood(curve.node.lineno, f"{curve.node.name}, whose loop does not select parts of a grid")


def _products(facts: Sequence[Condition], among: Iterable[Condition]) -> list[Condition]:
    """Conditions that products of nonnegative terms are nonnegative, for products that occur in `among`.

    They allow the solver to treat each product as an independent unknown.
    """
    monomials = {atoms for condition in among for sum in sums_of(condition) for atoms, _ in sum.terms if len(atoms) > 1}
    factors = sorted({atom for atoms in monomials for atom in atoms}, key=str)
    names = {name for atom in factors for name in atom.variables}
    near = [fact for fact in facts if fact.variables <= names]
    lengths = [variable(name) for name in _LENGTHS]
    monomials |= {atoms for length in lengths for factor in factors for atoms, _ in (length * of(factor)).terms}
    signed = [of(atom) - 1 for atom in factors]
    signed += [length - of(atom) * times - 1 for atom in factors for length in lengths for times in (2, 1)]
    signed = [x for x in dict.fromkeys(signed) if x.constant is None and follows(near, at_most(0, x))]
    products = [x * y for x, y in combinations(signed, 2)]
    return [at_most(0, x) for x in products if all(len(atoms) < 2 or atoms in monomials for atoms, _ in x.terms)]


def _depends(on: Iterable[Poly | Condition], number: Poly) -> bool:
    """Whether any of the terms depends on `number`."""
    return any(number.variables & x.variables for x in on)


def _linear(condition: Condition) -> bool:
    """Whether a condition has no products of unknowns, except inside quotients."""
    return all(len(atoms) < 2 for sum in sums_of(condition) for atoms, _ in sum.terms)
