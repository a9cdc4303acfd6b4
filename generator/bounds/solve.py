"""The interface to the solver z3: sorted conditions, cached answers, a fixed seed and a limit on work but not time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import z3

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
    negation,
    of,
    variable,
)

#: The limit in z3's unit of work (rlimit): several times what the hardest proof needs.
EFFORT = 2_000_000


@dataclass(frozen=True)
class Answer:
    """Whether conditions can hold together, and values of their variables for which they do."""

    verdict: Literal["impossible", "possible", "unknown"]
    values: tuple[tuple[str, int], ...] = ()

    @property
    def model(self) -> Mapping[str, int]:
        """The values by variable."""
        return dict(self.values)


def together(conditions: Iterable[Condition]) -> Answer:
    """Whether the conditions can hold together."""
    return _answer(tuple(sorted(set(conditions), key=str)))


def smallest(conditions: Iterable[Condition], names: Iterable[str]) -> Answer:
    """Values for which the conditions hold, with the smallest nonnegative value of each of `names` in turn."""
    asked = list(conditions)
    best = together(asked)
    for name in names:
        if best.verdict != "possible" or name not in best.model:
            continue
        # Most values are small, so that the search starts at 0 and doubles its steps: 0, 1, 3, 7, ...
        low, high, reach = 0, best.model[name], 0
        while low < high:
            middle = min(low + reach, (low + high) // 2)
            answer = together([*asked, at_most(variable(name), middle)])
            if answer.verdict == "possible":
                best, high, reach = answer, answer.model[name], 0
            else:
                low, reach = middle + 1, 2 * reach + 1
        asked.append(at_most(variable(name), high))
    return best


def follows(facts: Iterable[Condition], wanted: Condition) -> bool:
    """Whether a condition is proved to hold wherever the others do."""
    return together([*facts, negation(wanted)]).verdict == "impossible"


@cache
def _answer(conditions: tuple[Condition, ...]) -> Answer:
    encoder = _Encoder()
    for condition in conditions:
        encoder.solver.add(encoder.condition(condition))
    verdict = encoder.solver.check()
    if verdict == z3.unsat:
        return Answer("impossible")
    if verdict != z3.sat:
        return Answer("unknown")
    model = encoder.solver.model()
    model_values = {name: model.eval(number, model_completion=True).as_long() for name, number in encoder.named.items()}
    return Answer("possible", tuple(sorted(model_values.items())))


class _Encoder:
    """Encodes conditions for z3 in a new context, so that no answer depends on earlier questions."""

    def __init__(self) -> None:
        self.context = z3.Context()
        # SimpleSolver: for small questions the preprocessing of other solvers takes longer than the answer.
        self.solver = z3.SimpleSolver(ctx=self.context)
        self.solver.set("random_seed", 0)
        self.solver.set("rlimit", EFFORT)
        self.named: dict[str, Any] = {}
        self._atoms: dict[Atom, Any] = {}

    def condition(self, condition: Condition) -> Any:
        if isinstance(condition, AtMostZero):
            return self.number(condition.sum) <= 0
        if isinstance(condition, Zero):
            return self.number(condition.sum) == 0
        if isinstance(condition, Not):
            return z3.Not(self.condition(condition.condition), ctx=self.context)
        parts = [self.condition(part) for part in condition.parts]
        return z3.And(*parts) if parts else z3.BoolVal(True, ctx=self.context)

    def number(self, sum: Poly) -> Any:
        total = z3.IntVal(0, ctx=self.context)
        for atoms, coefficient in sum.terms:
            product = z3.IntVal(coefficient, ctx=self.context)
            for atom in atoms:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _atom(self, atom: Atom) -> Any:
        if atom not in self._atoms:
            self._atoms[atom] = self._encoded(atom)
        return self._atoms[atom]

    def _encoded(self, atom: Atom) -> Any:
        if isinstance(atom, Variable):
            self.named[atom.name] = z3.Int(atom.name, ctx=self.context)
            return self.named[atom.name]
        if isinstance(atom, Least):
            first, second = self.number(atom.first), self.number(atom.second)
            return z3.If(first <= second, first, second)
        if isinstance(atom, ConditionalSum):
            return z3.If(self.condition(atom.condition), self.number(atom.then), self.number(atom.otherwise))
        if isinstance(atom, ReturnedNumber):
            # An arbitrary integer: the function is not encoded.
            return z3.Int(f"{len(self._atoms)}: {atom}", ctx=self.context)
        if isinstance(atom, Renumbered):
            return self.number(atom.number)
        return self._quotient(atom)

    def _quotient(self, atom: Quotient) -> Any:
        """The quotient if the dividend is not negative and the divisor positive; otherwise an arbitrary integer."""
        name = f"{len(self._atoms)}: {atom}"
        quotient = z3.Int(name, ctx=self.context)
        # Multiplied as terms, so that a product with a divisor that is a sum is expanded.
        self._atoms[atom] = quotient
        multiple = self.number(atom.divisor * of(atom))
        dividend, divisor = self.number(atom.dividend), self.number(atom.divisor)
        # The name is unique to this quotient, since nested quotients have different remainders.
        remainder = z3.Int(f"{name}: remainder", ctx=self.context)
        defined = z3.And(divisor >= 1, dividend >= 0)
        rounded = z3.And(multiple + remainder == dividend, remainder >= 0, remainder < divisor)
        self.solver.add(z3.Implies(defined, rounded))
        return quotient
