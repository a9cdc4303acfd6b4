"""Operations on terms: their values for given variables, and the replacement of atoms by other terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from generator.bounds.terms import (
    AtMostZero,
    Atom,
    Condition,
    ConditionalSum,
    Least,
    Not,
    Poly,
    Quotient,
    Renumbered,
    ReturnedNumber,
    Variable,
    Zero,
    at_most,
    choice,
    equal,
    every,
    least,
    negation,
    of,
    poly,
    truncated,
)


def value(sum: Poly, at: Mapping[str, int]) -> int:
    """The value of a sum for the variables `at`; raises ZeroDivisionError if it divides by zero."""
    total = 0
    for atoms, coefficient in sum.terms:
        for atom in atoms:
            coefficient *= _atom_value(atom, at)
        total += coefficient
    return total


def holds(condition: Condition, at: Mapping[str, int]) -> bool:
    """Whether a condition holds for the variables `at`."""
    if isinstance(condition, AtMostZero):
        return value(condition.sum, at) <= 0
    if isinstance(condition, Zero):
        return value(condition.sum, at) == 0
    if isinstance(condition, Not):
        return not holds(condition.condition, at)
    return all(holds(part, at) for part in condition.parts)


def replaced(sum: Poly, by: Mapping[Atom, Poly]) -> Poly:
    """A sum with atoms replaced, at any depth; replacements are not replaced again."""
    if not by:
        return sum
    total = poly(0)
    for atoms, coefficient in sum.terms:
        product = poly(coefficient)
        for atom in atoms:
            product = product * (by[atom] if atom in by else _rebuilt(atom, by))
        total = total + product
    return total


def replaced_in(condition: Condition, by: Mapping[Atom, Poly]) -> Condition:
    """A condition with atoms replaced, at any depth."""
    if isinstance(condition, AtMostZero):
        return at_most(replaced(condition.sum, by), 0)
    if isinstance(condition, Zero):
        return equal(replaced(condition.sum, by), 0)
    if isinstance(condition, Not):
        return negation(replaced_in(condition.condition, by))
    return every(replaced_in(part, by) for part in condition.parts)


def quotients(sums: Iterable[Poly]) -> list[Quotient]:
    """The quotients in sums, at any depth, each after those inside it."""
    return [atom for atom in atoms(sums) if isinstance(atom, Quotient)]


def atoms(sums: Iterable[Poly]) -> list[Atom]:
    """The atoms of sums, at any depth, each after those inside it."""
    unique: dict[Atom, None] = {}

    def visit(sum: Poly) -> None:
        for product, _ in sum.terms:
            for atom in product:
                for inner in _inner(atom):
                    visit(inner)
                unique.setdefault(atom)

    for sum in sums:
        visit(sum)
    return list(unique)


def divisors(term: Poly | Condition, path: tuple[Condition, ...] = ()) -> Iterator[tuple[Poly, tuple[Condition, ...]]]:
    """The divisors in a term, at any depth, each with its conditions: a choice computes only one side."""
    if not isinstance(term, Poly):
        for sum in sums_of(term):
            yield from divisors(sum, path)
        return
    for product, _ in term.terms:
        for atom in product:
            if isinstance(atom, Quotient):
                yield atom.divisor, path
            if isinstance(atom, ConditionalSum):
                yield from divisors(atom.condition, path)
                yield from divisors(atom.then, (*path, atom.condition))
                yield from divisors(atom.otherwise, (*path, negation(atom.condition)))
            else:
                for inner in _inner(atom):
                    yield from divisors(inner, path)


def sums_of(condition: Condition) -> Iterator[Poly]:
    """The sums in a condition."""
    for part in condition.inside:
        if isinstance(part, Poly):
            yield part
        elif isinstance(part, Condition):
            yield from sums_of(part)


def _inner(atom: Atom) -> Iterator[Poly]:
    """The sums inside an atom, except those of its condition."""
    return (x for x in atom.inside if isinstance(x, Poly))


def _rebuilt(atom: Atom, by: Mapping[Atom, Poly]) -> Poly:
    if isinstance(atom, Quotient):
        return replaced(atom.dividend, by) // replaced(atom.divisor, by)
    if isinstance(atom, Least):
        return least(replaced(atom.first, by), replaced(atom.second, by))
    if isinstance(atom, ConditionalSum):
        then, otherwise = replaced(atom.then, by), replaced(atom.otherwise, by)
        return choice(replaced_in(atom.condition, by), then, otherwise)
    if isinstance(atom, ReturnedNumber):
        return of(ReturnedNumber(atom.function, tuple(replaced(x, by) for x in atom.arguments), atom.place))
    if isinstance(atom, Renumbered):
        return of(Renumbered(replaced(atom.number, by)))
    return of(atom)


def _atom_value(atom: Atom, at: Mapping[str, int]) -> int:
    if isinstance(atom, Variable):
        return at[atom.name]
    if isinstance(atom, Quotient):
        return truncated(value(atom.dividend, at), value(atom.divisor, at))
    if isinstance(atom, Least):
        return min(value(atom.first, at), value(atom.second, at))
    if isinstance(atom, ReturnedNumber):
        return atom.function.value([value(argument, at) for argument in atom.arguments])[atom.place]
    if isinstance(atom, Renumbered):
        return value(atom.number, at)
    return value(atom.then if holds(atom.condition, at) else atom.otherwise, at)
