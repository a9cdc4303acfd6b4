"""Symbolic integers and conditions over a kernel's variables.

A `Poly` is a polynomial with integer coefficients over atoms: variables, quotients, minima, choices. Its terms are in a
canonical order, so that two ways to write a sum are equal, and `pid // n * n + pid % n` equals `pid`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol


class Term:
    """A term, which is identified by its text."""

    @cached_property
    def text(self) -> str:
        """The term as text; equal terms have equal texts."""
        raise NotImplementedError

    @cached_property
    def inside(self) -> tuple[Term, ...]:
        """The terms that it is made of, each as a whole; not of a sum."""
        held = [x if isinstance(x, tuple) else (x,) for x in vars(self).values()]
        return tuple(x for several in held for x in several if isinstance(x, Term))

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the variables in it, at any depth."""
        return frozenset().union(*(x.variables for x in self.inside))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Variable(Term):
    """An integer that the solver chooses."""

    name: str

    @cached_property
    def text(self) -> str:
        return self.name

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, eq=False)
class Quotient(Term):
    """A quotient rounded towards zero, like integer division in hardware."""

    dividend: Poly
    divisor: Poly

    @cached_property
    def text(self) -> str:
        return f"({self.dividend} // {_bracketed(self.divisor)})"


@dataclass(frozen=True, eq=False)
class Least(Term):
    """The minimum of two sums."""

    first: Poly
    second: Poly

    @cached_property
    def text(self) -> str:
        return f"min({self.first}, {self.second})"


@dataclass(frozen=True, eq=False)
class ConditionalSum(Term):
    """One of two sums, selected by a condition."""

    condition: Condition
    then: Poly
    otherwise: Poly

    @cached_property
    def text(self) -> str:
        return f"({self.then} if {self.condition} else {self.otherwise})"


class DefinedFunction(Protocol):
    """A function of integers that a file defines."""

    @property
    def text(self) -> str:
        """The identity of the function: it differs for functions with different results."""

    def value(self, arguments: Sequence[int]) -> tuple[int, ...]:
        """The returned numbers; raises `Endless` if the function does not terminate, and ZeroDivisionError."""


class Endless(ZeroDivisionError):
    """A loop does not terminate; like a division by zero, it has no value."""


@dataclass(frozen=True, eq=False)
class ReturnedNumber(Term):
    """One of the numbers that a function returns."""

    function: DefinedFunction
    arguments: tuple[Poly, ...]
    place: int

    @cached_property
    def text(self) -> str:
        return f"{self.function.text}({', '.join(map(str, self.arguments))})[{self.place}]"


@dataclass(frozen=True, eq=False)
class Renumbered(Term):
    """A renumbered program id, from which a program computes its tile."""

    number: Poly

    @cached_property
    def text(self) -> str:
        return f"({self.number})"


Atom = Variable | Quotient | Least | ConditionalSum | ReturnedNumber | Renumbered


@dataclass(frozen=True, eq=False)
class Poly(Term):
    """A sum of products of atoms, each with its coefficient, sorted by text."""

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
        """The value of a sum without atoms, otherwise None."""
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


@dataclass(frozen=True, eq=False)
class Zero(Term):
    """A sum is zero."""

    sum: Poly

    @cached_property
    def text(self) -> str:
        return f"{self.sum} == 0"


@dataclass(frozen=True, eq=False)
class Not(Term):
    """A condition does not hold."""

    condition: Condition

    @cached_property
    def text(self) -> str:
        return f"not ({self.condition})"


@dataclass(frozen=True, eq=False)
class Every(Term):
    """All of several conditions hold; without conditions, always."""

    parts: tuple[Condition, ...]

    @cached_property
    def text(self) -> str:
        return " and ".join(f"({part})" for part in self.parts) or "always"


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
    """A number as a sum; a sum is returned unchanged."""
    if isinstance(value, Poly):
        return value
    return Poly((((), value),) if value else ())


def least(a: Poly, b: Poly) -> Poly:
    """The minimum of two sums."""
    difference = (a - b).constant
    if difference is not None:
        return a if difference <= 0 else b
    return of(Least(a, b))


def choice(condition: Condition, then: Poly, otherwise: Poly) -> Poly:
    """`then` if the condition holds, otherwise `otherwise`."""
    return then if then == otherwise else of(ConditionalSum(condition, then, otherwise))


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
    """The same conditions without duplicates, with conjunctions split into their parts."""
    parts: list[Condition] = []
    for condition in conditions:
        parts += condition.parts if isinstance(condition, Every) else (condition,)
    return list(dict.fromkeys(parts))


def every(conditions: Iterable[Condition]) -> Condition:
    """The conjunction of conditions."""
    parts = conjuncts(conditions)
    if NEVER in parts:
        return NEVER
    return parts[0] if len(parts) == 1 else Every(tuple(parts))


def either(conditions: Iterable[Condition]) -> Condition:
    """The disjunction of conditions."""
    return negation(every(negation(condition) for condition in conditions))


def truncated(a: int, b: int) -> int:
    """The quotient rounded towards zero; raises ZeroDivisionError as Python does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _collect(terms: Iterable[tuple[tuple[Atom, ...], int]]) -> Poly:
    total: dict[tuple[Atom, ...], int] = {}
    for atoms, coefficient in terms:
        key = tuple(sorted(atoms, key=str)) if len(atoms) > 1 else atoms
        total[key] = total.get(key, 0) + coefficient
    nonzero = [(atoms, coefficient) for atoms, coefficient in total.items() if coefficient]
    return Poly(
        tuple(sorted(nonzero, key=lambda term: [atom.text for atom in term[0]]) if len(nonzero) > 1 else nonzero)
    )


def _product(atoms: tuple[Atom, ...], coefficient: int) -> str:
    if not atoms:
        return str(coefficient)
    sign = "" if coefficient == 1 else "-" if coefficient == -1 else f"{coefficient} * "
    return sign + " * ".join(map(str, atoms))


def _bracketed(sum: Poly) -> str:
    return f"({sum})" if len(sum.terms) > 1 or " " in sum.text else sum.text
