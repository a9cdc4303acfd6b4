"""Whole numbers and conditions over a kernel's variables: values that compare, evaluate and substitute.

A `Poly` is a polynomial with whole coefficients over atoms: variables, quotients, least values, choices. It is kept in
one canonical order, so that two ways of writing one sum are equal, and `pid // n * n + pid % n` is `pid` again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol


class Term:
    """What is identified by its text."""

    @cached_property
    def text(self) -> str:
        """It in words, the same for whatever is equal."""
        raise NotImplementedError

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the variables in it, at any depth."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Variable(Term):
    """A whole number that the solver chooses."""

    name: str

    @cached_property
    def text(self) -> str:
        return self.name

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, eq=False)
class Quotient(Term):
    """A quotient rounded towards zero, as the machine divides."""

    dividend: Poly
    divisor: Poly

    @cached_property
    def text(self) -> str:
        return f"({self.dividend} // {_bracketed(self.divisor)})"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.dividend.variables | self.divisor.variables


@dataclass(frozen=True, eq=False)
class Least(Term):
    """The smaller of two."""

    first: Poly
    second: Poly

    @cached_property
    def text(self) -> str:
        return f"min({self.first}, {self.second})"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.first.variables | self.second.variables


@dataclass(frozen=True, eq=False)
class Choice(Term):
    """One of two, by a condition."""

    condition: Condition
    then: Poly
    otherwise: Poly

    @cached_property
    def text(self) -> str:
        return f"({self.then} if {self.condition} else {self.otherwise})"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.condition.variables | self.then.variables | self.otherwise.variables


class Function(Protocol):
    """A function of whole numbers that a file defines."""

    @property
    def text(self) -> str:
        """What it is known by: of two functions that do not compute the same, not the same."""

    def value(self, arguments: Sequence[int]) -> tuple[int, ...]:
        """What it returns; raises `Endless` where it comes to no end, and ZeroDivisionError as Python does."""


class Endless(ZeroDivisionError):
    """A loop that comes to no end has no value, as a division by zero has none."""


@dataclass(frozen=True, eq=False)
class Result(Term):
    """One of the numbers that a function returns."""

    function: Function
    arguments: tuple[Poly, ...]
    place: int

    @cached_property
    def text(self) -> str:
        return f"{self.function.text}({', '.join(map(str, self.arguments))})[{self.place}]"

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset().union(*(argument.variables for argument in self.arguments))


@dataclass(frozen=True, eq=False)
class Renumbered(Term):
    """Another number of a program, by which it finds its tile: the sum that it stands for."""

    number: Poly

    @cached_property
    def text(self) -> str:
        return f"({self.number})"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.number.variables


Atom = Variable | Quotient | Least | Choice | Result | Renumbered


@dataclass(frozen=True, eq=False)
class Poly(Term):
    """A sum of products of atoms, each with its coefficient, in the order of their text."""

    terms: tuple[tuple[tuple[Atom, ...], int], ...]

    @cached_property
    def text(self) -> str:
        words = [_product(atoms, coefficient) for atoms, coefficient in self.terms]
        return " + ".join(words).replace("+ -", "- ") or "0"

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset().union(*(atom.variables for atoms, _ in self.terms for atom in atoms))

    @property
    def constant(self) -> int | None:
        """Its value where it has no atoms, otherwise None."""
        if any(atoms for atoms, _ in self.terms):
            return None
        return sum(coefficient for _, coefficient in self.terms)

    def __add__(self, other: Poly | int) -> Poly:
        return _collect([*self.terms, *poly(other).terms])

    def __sub__(self, other: Poly | int) -> Poly:
        return self + poly(other) * -1

    def __mul__(self, other: Poly | int) -> Poly:
        return _collect([((*xs, *ys), a * b) for xs, a in self.terms for ys, b in poly(other).terms])

    def __floordiv__(self, other: Poly | int) -> Poly:
        over = poly(other)
        a, b = self.constant, over.constant
        if b == 1:
            return self
        if a is not None and b:
            return poly(truncated(a, b))
        return of(Quotient(self, over))

    def __mod__(self, other: Poly | int) -> Poly:
        return self - self // other * other


@dataclass(frozen=True, eq=False)
class AtMostZero(Term):
    """A sum is at most zero."""

    sum: Poly

    @cached_property
    def text(self) -> str:
        return f"{self.sum} <= 0"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.sum.variables


@dataclass(frozen=True, eq=False)
class Zero(Term):
    """A sum is zero."""

    sum: Poly

    @cached_property
    def text(self) -> str:
        return f"{self.sum} == 0"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.sum.variables


@dataclass(frozen=True, eq=False)
class Not(Term):
    """A condition does not hold."""

    condition: Condition

    @cached_property
    def text(self) -> str:
        return f"not ({self.condition})"

    @cached_property
    def variables(self) -> frozenset[str]:
        return self.condition.variables


@dataclass(frozen=True, eq=False)
class Every(Term):
    """All of several conditions hold; of none, always."""

    parts: tuple[Condition, ...]

    @cached_property
    def text(self) -> str:
        return " and ".join(f"({part})" for part in self.parts) or "always"

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset().union(*(part.variables for part in self.parts))


Condition = AtMostZero | Zero | Not | Every

ALWAYS = Every(())
NEVER = Not(ALWAYS)


def of(atom: Atom) -> Poly:
    """An atom as a sum."""
    return Poly((((atom,), 1),))


def variable(name: str) -> Poly:
    """A variable as a sum."""
    return of(Variable(name))


def poly(value: Poly | int) -> Poly:
    """A number as a sum; a sum as it is."""
    if isinstance(value, Poly):
        return value
    return Poly((((), value),) if value else ())


def least(a: Poly, b: Poly) -> Poly:
    """The smaller of two."""
    difference = (a - b).constant
    if difference is not None:
        return a if difference <= 0 else b
    return of(Least(a, b))


def choice(condition: Condition, then: Poly, otherwise: Poly) -> Poly:
    """One of two sums, by a condition."""
    return then if then == otherwise else of(Choice(condition, then, otherwise))


def below(a: Poly | int, b: Poly | int) -> Condition:
    """a < b."""
    return at_most(poly(a) + 1, b)


def at_most(a: Poly | int, b: Poly | int) -> Condition:
    """a <= b."""
    difference = poly(a) - b
    value = difference.constant
    return AtMostZero(difference) if value is None else (ALWAYS if value <= 0 else NEVER)


def equal(a: Poly | int, b: Poly | int) -> Condition:
    """a == b."""
    difference = poly(a) - b
    value = difference.constant
    return Zero(difference) if value is None else (ALWAYS if value == 0 else NEVER)


def negation(condition: Condition) -> Condition:
    """The opposite of a condition."""
    return condition.condition if isinstance(condition, Not) else Not(condition)


def conjuncts(conditions: Iterable[Condition]) -> list[Condition]:
    """The same conditions, none of them one of several, and none twice."""
    parts: list[Condition] = []
    for condition in conditions:
        parts += condition.parts if isinstance(condition, Every) else (condition,)
    return list(dict.fromkeys(parts))


def every(conditions: Iterable[Condition]) -> Condition:
    """All of several conditions."""
    parts = conjuncts(conditions)
    if NEVER in parts:
        return NEVER
    return parts[0] if len(parts) == 1 else Every(tuple(parts))


def either(conditions: Iterable[Condition]) -> Condition:
    """At least one of several conditions."""
    return negation(every(negation(condition) for condition in conditions))


def truncated(a: int, b: int) -> int:
    """The quotient rounded towards zero; raises ZeroDivisionError as Python does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _collect(terms: Iterable[tuple[tuple[Atom, ...], int]]) -> Poly:
    total: dict[tuple[Atom, ...], int] = {}
    for atoms, coefficient in terms:
        key = tuple(sorted(atoms, key=str)) if len(atoms) > 1 else atoms
        total[key] = total.get(key, 0) + coefficient
    kept = [(atoms, coefficient) for atoms, coefficient in total.items() if coefficient]
    return Poly(tuple(sorted(kept, key=lambda term: [atom.text for atom in term[0]]) if len(kept) > 1 else kept))


def _product(atoms: tuple[Atom, ...], coefficient: int) -> str:
    if not atoms:
        return str(coefficient)
    sign = "" if coefficient == 1 else "-" if coefficient == -1 else f"{coefficient} * "
    return sign + " * ".join(map(str, atoms))


def _bracketed(sum: Poly) -> str:
    return f"({sum})" if len(sum.terms) > 1 or " " in sum.text else sum.text
