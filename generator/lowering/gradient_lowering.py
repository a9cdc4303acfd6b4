"""The kernel that runs a contract's chain backwards, as its template reads it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from generator.epilogue import formula
from generator.epilogue.chain import Operand
from generator.epilogue.chain_gradients import StepGradient, gradients
from generator.epilogue.derivative import product
from generator.epilogue.formula import FUNCTIONS, GATE, X
from generator.epilogue.formula_code import to_triton
from generator.epilogue.gated_units import CONCATENATED, PLACES
from generator.epilogue.operations import BOTH, COLUMNS, ELEMENT, HALVES, MATRIX, ROWS, SCALAR
from generator.language.model import Variant
from generator.lowering import approximate_math, docstrings
from generator.lowering.lines import bracketed, paragraph
from generator.lowering.operands import Vector, broadcast
from generator.plan.call import call
from generator.plan.gradients import Gradient

#: The shape of an operand of which each group has its own [N] or [2N]: what a tile has of it differs by rows.
_OF_GROUPS = "GN"
#: The running gradient, and its two parts in front of a gate.
_GRADIENT = "grad"
_HALVES = {GATE: "gate", X: "up"}


@dataclass(frozen=True)
class Read:
    """A tensor of the chain in the kernel: the variable of what is loaded of it, its shape, and its place."""

    name: str
    variable: str
    shape: str
    #: Where the element of a column is, `{}`.
    place: str = "{}"

    @property
    def number(self) -> bool:
        return self.shape == SCALAR

    @property
    def spread(self) -> str:
        """The value as it is broadcast over a tile."""
        return broadcast(self.variable, self.shape)


@dataclass(frozen=True)
class Part:
    """A piece of an operand's gradient: the statements for it, its value, and where its elements belong."""

    lines: tuple[str, ...]
    value: str
    place: str = "{}"


@dataclass(frozen=True)
class OperandGradient:
    """The gradient of an operand, in one part or in two from both halves in front of a gate."""

    name: str
    shape: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Back:
    """One step backwards: an output whose gradient is added, or gradients of operands and then of the value."""

    #: The output, its shape; None for an operation.
    output: tuple[str, str] | None
    #: The running gradients that its gradient is added to, each with the place of its columns.
    sums: tuple[tuple[str, str], ...]
    operands: tuple[OperandGradient, ...]
    lines: tuple[str, ...]


def _addressed(shape: str) -> str:
    """The shape of an output as its gradient is addressed: one with 2N columns is a matrix as well."""
    return MATRIX if shape == BOTH else shape


@dataclass(frozen=True)
class GradientView:
    """What `templates/gradient.py.j2` is given."""

    v: Variant
    gradient: Gradient

    @cached_property
    def steps(self) -> tuple[StepGradient, ...]:
        """The steps' derivatives, in the order of the chain."""
        return gradients(self.v.chain)[::-1]

    @property
    def batched(self) -> bool:
        return self.v.products.several and not self.grouped

    @property
    def grouped(self) -> bool:
        """Whether rows are in groups, so that the last rows may be in none."""
        return bool(self.v.products.divided)

    def of_groups(self, shape: str) -> bool:
        """Whether each group has an operand of this shape of its own, in whose gradient its rows are added up."""
        return self.grouped and shape in (COLUMNS, HALVES)

    def made(self, shape: str) -> str:
        """The shape in which the kernel makes the gradient of an operand of this shape."""
        return MATRIX if self.of_groups(shape) else shape

    @property
    def by_group(self) -> bool:
        """Whether operands are there of which each group has its own."""
        return any(self.of_groups(operand.shape) for operand in self.operands)

    @property
    def reads_group(self) -> bool:
        """Whether the kernel reads any of them."""
        return any(read.shape == _OF_GROUPS for read in self.reads)

    @property
    def gated(self) -> bool:
        return call(self.v).gated

    @property
    def places(self) -> Mapping[str, str]:
        """The columns of the gate's and the other value of a gate, for a column `{}` of the result."""
        return PLACES[self.v.epilogue.order or CONCATENATED]

    @property
    def formula(self) -> str:
        text = f"The gradients of {docstrings.formula(self.v)} by the sum A @ B, and by what the chain reads."
        return paragraph(text)

    @cached_property
    def results(self) -> tuple[tuple[str, str], ...]:
        """The results whose gradients come in, with their shapes; a maximum has none."""
        beside = [(o.name, _addressed(o.shape)) for o in self.v.epilogue.outputs if o.writer.differentiable]
        return (("out", MATRIX), *beside)

    @cached_property
    def reads_sum(self) -> bool:
        return self.gradient.sum is not None

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What the chain reads: tensors first, then numbers."""
        found = self.v.epilogue.operands
        return (*(o for o in found if o.shape != SCALAR), *(o for o in found if o.shape == SCALAR))

    @cached_property
    def _deepest(self) -> int:
        """How many steps are computed again: those in front of the last whose derivatives read a value."""
        names = {operand.name for operand in self.operands}
        at = [n for n, step in enumerate(self.steps) if step.reads_value(names)]
        return at[-1] if at else 0

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """What is loaded of the chain's operands, each part once."""
        used: dict[str, Read] = {}
        for at, step in enumerate(self.steps):
            trees = [*step.values.values(), *(tree for _, tree in step.operands.values())]
            trees += [step.step.tree] if at < self._deepest else []
            names = {name for tree in trees for name in formula.used(tree)}
            for local, (operand, _) in step.operands.items():
                if local in names:
                    used |= {read.variable: read for read in self._read(operand)}
        return tuple(used.values())

    @cached_property
    def sums(self) -> tuple[tuple[str, str], ...]:
        """The variables of the sum, each with the place of its columns; one, or a gate's two."""
        if not self.gated:
            return (("x0", "{}"),)
        return tuple((f"{_HALVES[value]}0", self.places[value]) for value in (GATE, X))

    @cached_property
    def forward(self) -> tuple[str, ...]:
        """The statements that compute the chain again, as far as its derivatives read it."""
        lines: list[str] = []
        for at, step in enumerate(self.steps[: self._deepest]):
            if step.step.output is not None:
                continue
            for target, values, half in self._values(at):
                names = {**values, **self._names(step, half)}
                lines += to_triton(step.step.tree, names, target=target)
        return tuple(lines)

    @cached_property
    def backward(self) -> tuple[Back, ...]:
        """The steps backwards."""
        found = []
        for at, step in reversed(list(enumerate(self.steps))):
            if step.step.output is not None:
                if step.step.output.name not in self.gradient.constant:
                    sums = self.last if step.step.output.gated else ((_GRADIENT, "{}"),)
                    found.append(Back((step.step.output.name, _addressed(step.step.output.shape)), sums, (), ()))
                continue
            halves = list(self._values(at))
            operands = [
                OperandGradient(operand.name, self.made(operand.shape), tuple(self._parts(step, tree, operand, halves)))
                for operand, tree in step.operands.values()
            ]
            found.append(Back(None, (), tuple(operands), tuple(self._chained(step, halves))))
        return tuple(found)

    @cached_property
    def last(self) -> tuple[tuple[str, str], ...]:
        """The variables of the sum's gradient, each with the place of its columns."""
        if not self.gated:
            return ((_GRADIENT, "{}"),)
        return tuple((f"{_GRADIENT}_{_HALVES[value]}", self.places[value]) for value in (GATE, X))

    @cached_property
    def helpers(self) -> tuple[str, ...]:
        """The macros of math.j2 that the statements call."""
        trees = [step.step.tree for step in self.steps[: self._deepest]]
        for step in self.steps:
            trees += [*step.values.values(), *(tree for _, tree in step.operands.values())]
        return tuple(sorted({h for tree in trees for h in approximate_math.helpers(tree, FUNCTIONS)}))

    @property
    def incoming(self) -> tuple[tuple[str, str], ...]:
        """The tensors that come in beside the operands, with their shapes: gradients, and the sum."""
        return (*((f"grad_{name}", shape) for name, shape in self.results), *[("sum", MATRIX)] * self.reads_sum)

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(operand.name for operand in self.operands if operand.shape == SCALAR)

    @property
    def vectors(self) -> tuple[str, ...]:
        """The gradients of sums that come in, which the kernel reads with stride 1."""
        return tuple(f"grad_{name}" for name, shape in self.results if shape != MATRIX)

    @property
    def outgoing(self) -> tuple[tuple[str, str], ...]:
        """The gradients that go out, with their shapes."""
        return (("sum", MATRIX), *((operand.name, self.made(operand.shape)) for operand in self.operands))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's pointers, and numbers that may be pointers."""
        read = [f"{name}_ptr" for name, _ in self.incoming]
        read += [f"{o.name}_or_ptr" if o.shape == SCALAR else f"{o.name}_ptr" for o in self.operands]
        read += ["offsets_ptr", "G"] * self.grouped + ["group_ptr"] * self.reads_group
        return (*read, *(f"d_{name}_ptr" for name, _ in self.outgoing))

    @property
    def passed(self) -> tuple[str, ...]:
        """What the launch passes for them."""
        read = [f"{o.name}_or_ptr" if o.shape == SCALAR else o.name for o in self.operands]
        names = [
            *(name for name, _ in self.incoming),
            *read,
            *["offsets", "len(offsets)"] * self.grouped,
            *["group"] * self.reads_group,
        ]
        return (*names, *(f'found.get("{name}")' for name, _ in self.outgoing))

    @property
    def strides_passed(self) -> tuple[str, ...]:
        """What the launch passes for the strides of matrices."""
        own = [f"{o.name}.stride(0)" for o in self.operands if self.of_groups(o.shape)]
        return (*(f"*_strides({value})" for _, value in self.strided), *own)

    @property
    def strided(self) -> tuple[tuple[str, str], ...]:
        """The matrices: their names in the kernel, and what the launch passes for them."""
        named = [(name, name) for name, shape in self.incoming if shape == MATRIX]
        named += [(o.name, o.name) for o in self.operands if o.shape == MATRIX]
        named += [(f"d_{name}", f'found.get("{name}")') for name, shape in self.outgoing if shape == MATRIX]
        return tuple(named)

    @property
    def strides(self) -> tuple[str, ...]:
        """The kernel's parameters for the strides of matrices."""
        dimensions = ("b", "m", "n") if self.batched else ("m", "n")
        own = [f"stride_{o.name}_g" for o in self.operands if self.of_groups(o.shape)]
        return (*(f"stride_{name}_{dimension}" for name, _ in self.strided for dimension in dimensions), *own)

    @property
    def flags(self) -> tuple[str, ...]:
        """The constants that say whether a number lies on the device."""
        return tuple(Vector(name, SCALAR).flag for name in self.numbers)

    def load(self, target: str, name: str, shape: str, place: str = "{}", depth: int = 4, by: str = "=") -> str:
        """The statement that loads what a tile has of a tensor, in fp32."""
        offsets = place.format("offs_n")
        if shape == MATRIX:
            return bracketed(f"{target} {by} _load(", self._tile(name, place), ")", depth)
        if shape == _OF_GROUPS:
            where = [f"{name}_ptr", "group", offsets, f"stride_{name}_g", "1", "inside"]
            return bracketed(f"{target} {by} _load(", where, ")", depth)
        offsets, mask = {ROWS: ("offs_m", "in_m")}.get(shape, (offsets, "in_n"))
        if shape == ELEMENT:
            return f"{target} {by} tl.load({name}_ptr).to(tl.float32)"
        batched = self.batched and name.startswith("grad_")
        pointer = f"{name}_ptr + batch * {shape} + {offsets}" if batched else f"{name}_ptr + {offsets}"
        loaded = f"tl.load({pointer}, mask={mask}, other=0.0).to(tl.float32)"
        return f"{target} {by} {broadcast(loaded, shape) if by == '+=' else loaded}"

    def store(self, name: str, value: str, place: str = "{}") -> str:
        """The statement that stores a tile of a matrix."""
        pointer, *where = self._tile(name, place)
        if self.grouped:
            value, where = f"tl.where(inside, {value}, 0.0)", [*where[:-1], "whole"]
        return bracketed("_store(", [pointer, value, *where], ")", 8)

    def _tile(self, name: str, place: str) -> list[str]:
        """A tile of a matrix, as the arguments of `_load` and `_store` say where it is."""
        matrix = f"{name}_ptr + batch * stride_{name}_b" if self.batched else f"{name}_ptr"
        return [matrix, "offs_m", place.format("offs_n"), f"stride_{name}_m", f"stride_{name}_n", "inside"]

    def number(self, name: str) -> str:
        """The statement that gives a number its value."""
        return Vector(name, SCALAR).number(4)

    @property
    def head(self) -> str:
        """The head of the function that launches the kernel."""
        names = [*(name for name, _ in self.incoming), *(operand.name for operand in self.operands)]
        names += [*["offsets"] * self.grouped, "needed", "dtype"]
        return bracketed("def gradient(", ["*", *names], "):")

    def _read(self, operand: Operand) -> tuple[Read, ...]:
        shape = _OF_GROUPS if self.of_groups(operand.shape) else operand.shape
        if operand.shape != HALVES:
            return (Read(operand.name, operand.name, shape),)
        return tuple(Read(operand.name, f"{operand.name}_{h}", shape, self.places[v]) for v, h in _HALVES.items())

    def _names(self, step: StepGradient, half: str) -> Mapping[str, str]:
        """The step's own names of its operands, as the kernel has them for a half."""
        found = {}
        for local, (operand, _) in step.operands.items():
            reads = self._read(operand)
            found[local] = reads[0 if half in ("", "gate") else -1].spread
        return found

    def _values(self, at: int) -> tuple[tuple[str, Mapping[str, str], str], ...]:
        """Of step `at`: the variable after it, its values before it, and the half; two in front of a gate."""
        step = self.steps[at].step
        gate = self.v.epilogue.gate
        place = next((n for n, s in enumerate(self.steps) if s.step is gate), None) if gate else None
        # An output leaves the value as it is.
        number = sum(s.step.output is None for s in self.steps[:at])
        if place is None or at > place:
            return ((f"x{number + 1}", {X: f"x{number}"}, ""),)
        if step is gate:
            return ((f"x{number + 1}", {GATE: f"gate{number}", X: f"up{number}"}, ""),)
        return tuple((f"{half}{number + 1}", {X: f"{half}{number}"}, half) for half in _HALVES.values())

    def _gradient(self, half: str) -> str:
        return f"{_GRADIENT}_{half}" if half else _GRADIENT

    def _parts(
        self, step: StepGradient, tree: ast.expr, operand: Operand, halves: list[tuple[str, Mapping[str, str], str]]
    ) -> list[Part]:
        found = []
        for _, values, half in halves:
            target = f"grad_{operand.name}"
            names = {**values, **self._names(step, half), _GRADIENT: self._gradient(half)}
            lines = to_triton(product(ast.Name(_GRADIENT), tree), names, target=target)
            if lines == (f"{target} = {self._gradient(half)}",):
                lines, target = (), self._gradient(half)
            place = self.places[GATE if half == "gate" else X] if operand.shape == HALVES else "{}"
            found.append(Part(lines, target, place))
        return found

    def _chained(self, step: StepGradient, halves: list[tuple[str, Mapping[str, str], str]]) -> list[str]:
        lines: list[str] = []
        for _, values, half in halves:
            names = {**values, **self._names(step, half), _GRADIENT: self._gradient(half)}
            for value, tree in step.values.items():
                target = f"{_GRADIENT}_{_HALVES[value]}" if len(step.values) > 1 else self._gradient(half)
                made = to_triton(product(ast.Name(_GRADIENT), tree), names, target=target)
                lines += () if made == (f"{target} = {target}",) else made
        return lines
