"""The kernel that runs a contract's chain backwards, as its template reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from generator.epilogue import formula
from generator.epilogue.chain import EpilogueOperand
from generator.epilogue.chain_gradients import StepGradient, gradients
from generator.epilogue.derivative import product
from generator.epilogue.formula import FUNCTIONS, GATE, X
from generator.epilogue.formula_code import to_triton
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX
from generator.lowering import approximate_math, docstrings
from generator.lowering.edges import Dimensions, Edges
from generator.lowering.epilogue_lowering import StepView
from generator.lowering.gradient_tensors import GradientTensors
from generator.lowering.lines import INDENT, paragraph
from generator.lowering.operands import Matrix, Vector, broadcast
from generator.lowering.outputs import OutputView

#: The running gradient, and the names of both halves in front of a gate.
_GRADIENT = "grad"
_HALVES = {GATE: "gate", X: "up"}


@dataclass(frozen=True)
class Stage:
    """Statements of the kernel, which run where the condition `given` holds, if there is one."""

    steps: tuple[StepView, ...]
    edges: Edges
    given: str = ""


class _Values(NamedTuple):
    """The variable after a step of the chain, the step's values before it, and the half in front of a gate or ""."""

    target: str
    before: Mapping[str, str]
    half: str

    @property
    def running(self) -> str:
        """The running gradient of the half."""
        return f"{_GRADIENT}_{self.half}" if self.half else _GRADIENT


def _edges(rows: str) -> Edges:
    """The edges of a tile of whose rows those in the mask `rows` count."""
    return Edges(Dimensions("always", "always", "never"), Dimensions(rows, "in_n", ""), needs_m=True, needs_n=True)


@dataclass(frozen=True)
class GradientView(GradientTensors):
    """What `templates/gradient.py.j2` is given."""

    @property
    def problem_template(self) -> str:
        """The macros by which a program finds its matrix: tiles of rows in groups are those of one matrix."""
        return f"problem/{'none' if self.grouped else self.v.batch}.j2"

    @property
    def formula(self) -> str:
        text = f"The gradients of {docstrings.formula(self.v)} by the sum A @ B, and by what the chain reads."
        return paragraph(text)

    @cached_property
    def steps(self) -> tuple[StepGradient, ...]:
        """The steps' derivatives, in the order of the chain."""
        return gradients(self.v.chain)[::-1]

    @cached_property
    def helpers(self) -> tuple[str, ...]:
        """The macros of math.j2 that the statements call."""
        trees = [tree for at in range(len(self.steps)) for tree in self._trees(at)]
        return tuple(sorted({h for tree in trees for h in approximate_math.helpers(tree, FUNCTIONS)}))

    @property
    def read(self) -> Edges:
        """The edges of what is loaded."""
        return _edges("own" if self.grouped else "in_m")

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The statements: the steps backwards, from the gradient of the result to that of the sum."""
        given = "grad_out_ptr is not None" if self.marked else ""
        stages = [self._statements((self.incoming("grad_out", MATRIX, loaded=_GRADIENT),), (), given)]
        if given:
            # Steps behind the last result that the loss uses have no part in it, as with torch: 0 * inf would be NaN.
            stages.insert(0, self._statements((), (f"{_GRADIENT} = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)",)))
        for at, step in reversed(list(enumerate(self.steps))):
            output = step.step.output
            if output is not None:
                if output.name not in self.gradient.constant:
                    stages.append(self._added(output.name, output.shape, gated=output.gated))
                    given = f"{given} or {stages[-1].given}"
                continue
            halves = self._values(at)
            stages += [self._made(operand, step, tree, halves, given) for operand, tree in step.operands.values()]
            lines = tuple(line for values in halves for line in self._chained(step, values))
            if given and len(step.values) > 1:
                both = tuple(f"{_GRADIENT}_{_HALVES[x]} = {_GRADIENT}" for x in step.values)
                stages.append(self._statements((), both))
            chained = self._statements((), lines, given)
            if stages[-1].given == given:
                chained = replace(chained, steps=(*stages.pop().steps, *chained.steps))
            stages.append(chained)
        sums = (
            self._stored(self.outgoing_sum(form), MATRIX, running) for running, form in self._running(self.call.gated)
        )
        stages.append(Stage(tuple(sums), _edges("in_m"), "d_sum_ptr is not None"))
        return tuple(each for each in stages if each.steps)

    @cached_property
    def forward(self) -> Stage:
        """What loads what the chain reads, and computes it again as far as its derivatives read it."""
        loaded: dict[str, Matrix | Vector] = {}
        if self.reads_sum:
            halves = [(f"{_HALVES[x]}0", self.places[x]) for x in (GATE, X)] if self.call.gated else [("x0", "{}")]
            loaded = {name: self.incoming("sum", MATRIX, form, name) for name, form in halves}
        lines: list[str] = []
        for at, step in enumerate(self.steps):
            names = {name for tree in self._trees(at) for name in formula.used(tree)}
            for local, (operand, _) in step.operands.items():
                if local in names:
                    loaded |= {x.loaded or x.name: x for x in self._loaded(operand)}
            if at < self._deepest and step.step.output is None:
                for values in self._values(at):
                    lines += to_triton(step.step.tree, self._names(step, values), target=values.target)
        return self._statements(tuple(loaded.values()), tuple(lines))

    @cached_property
    def _deepest(self) -> int:
        """How many steps are computed again: those in front of the last whose derivatives read a value."""
        names = {operand.name for operand, _ in self.operands}
        at = [n for n, step in enumerate(self.steps) if step.reads_value(names)]
        return at[-1] if at else 0

    def _trees(self, at: int) -> Iterator[ast.expr]:
        """The formulas of step `at` that the kernel computes."""
        step = self.steps[at]
        yield from (*step.values.values(), *(tree for _, tree in step.operands.values()))
        if at < self._deepest:
            yield step.step.tree

    def _statements(self, loaded: tuple[Matrix | Vector, ...], lines: tuple[str, ...], given: str = "") -> Stage:
        depth = INDENT * (2 if given else 1)
        return Stage((StepView(loaded, lines, (), depth),) if loaded or lines else (), self.read, given)

    def _running(self, gated: bool) -> Iterator[tuple[str, str]]:
        """The running gradient, or both in front of a gate, each with the place of its columns."""
        if not gated:
            yield _GRADIENT, "{}"
            return
        yield from ((f"{_GRADIENT}_{_HALVES[x]}", self.places[x]) for x in (GATE, X))

    def _added(self, output: str, shape: str, *, gated: bool) -> Stage:
        """The statements that add the gradient of an output to the running one."""
        name = f"grad_{output}"
        added = (
            StepView((self.incoming(name, shape, form),), (f"{running} += {broadcast(name, shape)}",), (), 2 * INDENT)
            for running, form in self._running(gated)
        )
        return Stage(tuple(added), self.read, f"{name}_ptr is not None")

    def _made(
        self,
        operand: EpilogueOperand,
        step: StepGradient,
        tree: ast.expr,
        halves: tuple[_Values, ...],
        given: str,
    ) -> Stage:
        """The statements that store the gradient of an operand; in front of a gate both halves are read for it."""
        shape = MATRIX if self.of_groups(operand) else COLUMNS if operand.shape == HALVES else operand.shape
        stored: list[StepView] = []
        lines: tuple[str, ...] = ()
        parts: list[str] = []
        for values in halves:
            target = f"grad_{operand.name}" + (f"_{values.half}" if values.half else "")
            lines_of_value = to_triton(product(ast.Name(_GRADIENT), tree), self._names(step, values), target=target)
            if lines_of_value == (f"{target} = {values.running}",):
                lines_of_value, target = (), values.running
            elif given:
                chained = (f"{' ' * INDENT}{line}" for line in lines_of_value)
                lines_of_value = (f"{target} = {values.running}", f"if {given}:", *chained)
            lines, parts = (*lines, *lines_of_value), [*parts, target]
            if operand.shape == HALVES:
                form = self.places[GATE if values.half == "gate" else X]
                stored.append(self._stored(self.outgoing(operand, form), shape, target, lines))
                lines, parts = (), []
        if parts:
            stored.append(self._stored(self.outgoing(operand), shape, " + ".join(parts), lines))
        return Stage(tuple(stored), _edges("in_m"), f"d_{operand.name}_ptr is not None")

    def _stored(self, matrix: Matrix, shape: str, value: str, lines: tuple[str, ...] = ()) -> StepView:
        """The step that stores a gradient, or the tile's part of one that is a sum."""
        # Rows in no group have no gradient.
        masked = f"tl.where(own[:, None], {value}, 0.0)" if self.grouped else value
        if not masked.isidentifier():
            value = f"grad_{matrix.name.removeprefix('d_')}"
            lines = (*lines, f"{value} = {masked}")
        output = OutputView(matrix.name, shape, "" if shape == MATRIX else "sum", matrix, value)
        return StepView((), lines, (), 2 * INDENT, output)

    def _loaded(self, operand: EpilogueOperand) -> tuple[Matrix | Vector, ...]:
        """What is loaded of an operand: of one in front of a gate the columns of each half."""
        if operand.shape != HALVES:
            return (self.operand(operand),)
        return tuple(self.operand(operand, self.places[x], f"{operand.name}_{half}") for x, half in _HALVES.items())

    def _names(self, step: StepGradient, values: _Values) -> Mapping[str, str]:
        """The names in a step's formulas, as the kernel has them."""
        names = {**values.before, _GRADIENT: values.running}
        for local, (operand, _) in step.operands.items():
            name = f"{operand.name}_{values.half or 'up'}" if operand.shape == HALVES else operand.name
            names[local] = name if self.of_groups(operand) else broadcast(name, operand.shape)
        return names

    def _values(self, at: int) -> tuple[_Values, ...]:
        """The values of step `at`; of one in front of a gate, those of both halves."""
        step = self.steps[at].step
        gate = self.v.epilogue.gate
        index = next((n for n, s in enumerate(self.steps) if s.step is gate), None) if gate else None
        # An output leaves the value as it is.
        number = sum(s.step.output is None for s in self.steps[:at])
        if index is None or at > index:
            return (_Values(f"x{number + 1}", {X: f"x{number}"}, ""),)
        if step is gate:
            return (_Values(f"x{number + 1}", {GATE: f"gate{number}", X: f"up{number}"}, ""),)
        return tuple(_Values(f"{half}{number + 1}", {X: f"{half}{number}"}, half) for half in _HALVES.values())

    def _chained(self, step: StepGradient, values: _Values) -> Iterator[str]:
        """The statements that take the running gradient, or one half of it, back through a step."""
        for value, tree in step.values.items():
            target = f"{_GRADIENT}_{_HALVES[value]}" if len(step.values) > 1 else values.running
            lines_of_value = to_triton(product(ast.Name(_GRADIENT), tree), self._names(step, values), target=target)
            yield from () if lines_of_value == (f"{target} = {target}",) else lines_of_value
