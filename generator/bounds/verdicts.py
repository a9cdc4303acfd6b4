"""The verdict on an access: the solver decides about each fault, and counterexamples are evaluated in plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from generator.bounds import faults
from generator.bounds.evaluate import Walk
from generator.bounds.faults import FaultCondition, NotLinear, Numbers
from generator.bounds.launch_facts import Launcher, LaunchFacts
from generator.bounds.order_proof import Lemma
from generator.bounds.rewriting import holds, replaced, replaced_in, value
from generator.bounds.runtime_theorems import SIZES
from generator.bounds.sites import Site
from generator.bounds.solve import Answer, smallest, together
from generator.bounds.symbolic_values import lanes
from generator.bounds.terms import Atom, Condition, Poly, Variable, at_most, below, conjuncts, equal, poly, variable
from generator.bounds.triton_semantics import PART, PID, TILES

State = Literal["proved", "refuted", "hardware", "not proved"]

#: The detail of an access that is proved because it is executed for no size: such a proof means nothing.
NEVER_REACHED = "never reached"

#: Up to this number, all programs are tried to find that of a counterexample.
_PROGRAMS = 2**12


#: The verdict on an access, and why or for which numbers it fails.
AccessVerdict = tuple[State, str]


@dataclass(frozen=True)
class Judge:
    """Everything known about the accesses of a kernel with one configuration."""

    known: Launcher
    launch: LaunchFacts
    walked: Walk
    lemma: Lemma
    tiles: Mapping[str, int]

    def verdict(self, site: Site) -> AccessVerdict:
        """The verdict on an access."""
        operand, descriptor = self.launch.operands[site.operand], site.descriptor
        if descriptor is not None and descriptor.fault is not None:
            return "not proved", f"{operand.name} is {descriptor.fault}"
        strides = self.known.strides
        try:
            possible = [] if descriptor else list(faults.of_address(site, operand, strides))
            possible += faults.of_widths(site, operand, strides, operand.name in self.known.indexed)
        except NotLinear as error:
            return "not proved", str(error)
        doubts = [verdict for verdict in (self._doubt(site, fault) for fault in possible) if verdict is not None]
        if doubts:
            return min(doubts, key=lambda verdict: verdict[0] != "refuted")
        if descriptor is not None:
            return "hardware", "the descriptor has the operand's own shape and strides"
        if site.idle:
            return "proved", ""
        reached = self._together(self._context(site))
        return "proved", NEVER_REACHED if reached.verdict == "impossible" else ""

    def _doubt(self, site: Site, fault: FaultCondition) -> AccessVerdict | None:
        """None if the fault is proved impossible, otherwise the verdict."""
        context = self._context(site, fault)
        asked = [*context, fault.condition]
        answer = self._together([*_linked(context, fault.condition), fault.condition])
        if answer.verdict == "impossible":
            return None
        for model in self._models(asked):
            numbers = self._worked_out(model, asked)
            if numbers is not None:
                listed = self._listed(numbers)
                if fault.message is None:
                    return "not proved", f"{fault.claim}: not known for {listed}"
                return "refuted", f"{listed}: {fault.message(numbers)}"
        if answer.verdict == "unknown":
            return "not proved", f"{fault.claim}: the solver found no answer within its limit"
        if self.lemma.order.state != "proved":
            return "not proved", f"{fault.claim}: the order of tiles is {self.lemma.order.state}"
        return "not proved", f"{fault.claim}: the solver's counterexample does not hold in plain arithmetic"

    def _together(self, conditions: list[Condition]) -> Answer:
        """Whether the conditions can hold together, one query per program of a tile: one for all is too hard."""
        if PART not in _names(conditions):
            return together(conditions)
        parts: list[dict[Atom, Poly]] = [{Variable(PART): poly(part)} for part in range(self.launch.sharing)]
        answers = [together(replaced_in(condition, by) for condition in conditions) for by in parts]
        return next((answer for answer in answers if answer.verdict != "impossible"), answers[0])

    def _context(self, site: Site, fault: FaultCondition | None = None) -> list[Condition]:
        """The conditions that hold at the access, or at an intermediate result of its address."""
        context = [*self.launch.facts, *self.walked.facts]
        if fault is None or fault.masked:
            context += [*site.path, *lanes(site.shape), site.mask]
        context += fault.path if fault is not None else ()
        names = _names([*context, *([fault.condition] if fault else [])])
        # A tensor has no negative strides.
        context += [at_most(0, variable(stride)) for stride in self.known.strides if stride in names]
        if PID in names:
            # Otherwise this is omitted, since the product of the grid's sides is hard for the solver.
            pid, programs = variable(PID), variable(TILES)
            if TILES not in names:
                programs = prod(self.launch.grid, start=poly(1))
            context += [at_most(0, pid), below(pid, programs), at_most(pid, 2**31 - 1)]
        return conjuncts(context)

    def _models(self, conditions: list[Condition]) -> Iterator[Numbers]:
        """Numbers for which the conditions hold according to the solver; small ones are preferred."""
        asked = [conditions]
        if self.lemma.witness:
            asked.insert(0, [*conditions, *self.lemma.witness])
        for each in asked:
            answer = smallest(each, SIZES)
            if answer.verdict == "possible":
                yield answer.model

    def _worked_out(self, model: Numbers, conditions: Iterable[Condition]) -> Numbers | None:
        """The numbers together with a program that has these coordinates; None unless the conditions hold for them."""
        tiles = prod(self.launch.grid, start=self.launch.batch or poly(1))
        if value(tiles, dict.fromkeys(SIZES, 1) | dict(model)) >= 2**31:
            # No result has so many tiles.
            return None
        if not all(holds(limit, dict.fromkeys(SIZES, 1) | dict(model)) for limit in self.known.limits):
            # The kernel does not accept the sizes.
            return None
        try:
            for pid in self._programs(model):
                at = {**model, PID: pid}
                replacements = {name: value(sum, at) for name, sum in self.walked.replaced.items()}
                if all(model.get(name, number) == number for name, number in replacements.items()):
                    at |= replacements
                    return at if all(holds(condition, at) for condition in conditions) else None
        except (ZeroDivisionError, KeyError):
            # A division by zero, or a coordinate that depends on a variable that is not in the model.
            return None
        return None

    def _programs(self, model: Numbers) -> Iterable[int]:
        """The programs that may have the coordinates of the model."""
        if PID in model:
            return [model[PID]]
        programs = model[TILES] if TILES in model else prod(value(factor, model) for factor in self.launch.grid)
        if programs <= _PROGRAMS:
            return range(programs)
        # With all sizes known, the solver only has to find the program.
        by: dict[Atom, Poly] = {Variable(name): poly(number) for name, number in model.items()}
        sums = {name: replaced(sum, by) for name, sum in self.walked.replaced.items() if name in model}
        same = [equal(sum, model[name]) for name, sum in sums.items()]
        pid = variable(PID)
        answer = together([*same, at_most(0, pid), below(pid, programs)])
        return [answer.model[PID]] if PID in answer.model else []

    def _listed(self, at: Numbers) -> str:
        """The numbers in words: sizes, tile sizes, program, then iteration and lane."""
        hidden = {*SIZES, PID, *self.walked.replaced}
        others = [name for name in sorted(at) if name not in hidden]
        listed = {name: at[name] for name in SIZES if name in at} | dict(self.tiles)
        listed |= {name: at[name] for name in (PID, *others)}
        return ", ".join(f"{name} = {number}" for name, number in listed.items())


def _names(conditions: Iterable[Condition]) -> set[str]:
    return set[str]().union(*(condition.variables for condition in conditions))


def _linked(conditions: list[Condition], goal: Condition) -> list[Condition]:
    """The conditions that share variables with the goal, directly or not: no others can affect the proof."""
    names, linked, size = set(goal.variables), list[Condition](), -1
    while size != len(linked):
        size = len(linked)
        linked = [condition for condition in conditions if condition.variables & names]
        names = names.union(*(condition.variables for condition in linked))
    return linked
