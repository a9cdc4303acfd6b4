"""Epilogues: chains of operations, each with its operands under the launcher's names and its settings."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from generator.epilogue import formula, formula_code, gated_units
from generator.epilogue.auxiliary_outputs import TAPS, Tap
from generator.epilogue.formula import Number
from generator.epilogue.operations import COLUMNS, HALVES, MATRIX, OUT, SHAPES, Operation, Settings, written

#: The longest formula that stands in a sentence as it is; a longer one is called by its operation's name.
_LONGEST_INLINE = 40

#: An operation by its name, and what a chain sets for it.
Used = tuple[str, Operation, Settings]


@dataclass(frozen=True)
class Operand:
    """An epilogue operand of one kernel: the launcher's keyword and its shape."""

    name: str
    shape: str


@dataclass(frozen=True)
class Output:
    """A result beside C of one kernel: the launcher's keyword, and the tap that writes it."""

    name: str
    tap: Tap

    @property
    def shape(self) -> str:
        return self.tap.shape


@dataclass(frozen=True)
class Step:
    """One operation as a chain uses it: its operands under the launcher's names (`add`, then `add2`), its settings.

    Operands are the scalars too that are left to the call. Settings are the parameters that differ from their defaults,
    in the order of the operation. The operand of shape OUT is C, and no keyword.
    """

    operation: str
    meaning: Operation
    operands: tuple[tuple[str, Operand], ...]
    settings: Settings = ()
    output: Output | None = None

    @property
    def built_in(self) -> bool:
        """Whether every spec has the operation, with its output called so."""
        return self.meaning.built_in and (not isinstance(self.meaning, Tap) or self.meaning == TAPS[self.operation])

    @property
    def order(self) -> str:
        """The order of a gate's two columns."""
        return str(dict(self.settings).get(gated_units.ORDER, gated_units.CONCATENATED))

    @cached_property
    def tree(self) -> ast.expr:
        return self.meaning.tree(self.settings)

    @cached_property
    def word(self) -> str:
        """As messages have it: `clamp(min=0, max=6)`, `save(hidden)`."""
        if isinstance(self.meaning, Tap) and self.meaning != TAPS[self.operation]:
            return f"{self.operation}({self.meaning.output})"
        set_to = ", ".join(f"{name}={value}" for name, value in self.settings)
        return f"{self.operation}({set_to})" if set_to else self.operation

    @cached_property
    def written(self) -> str:
        """As a kernel's name has it: the operation, then value and name of each setting: `clamp_0_min_6_max`.

        A value begins with a digit and a name with a letter, and no operation has the name of an order, so that no two
        chains are written alike. So does the name of an output that is not the default begin: `save_1hidden`.
        """
        if isinstance(self.meaning, Tap) and self.meaning != TAPS[self.operation]:
            return f"{written(self.operation)}_1{self.meaning.output}"
        set_to = (v if isinstance(v, str) else f"{_digits(v)}_{written(name)}" for name, v in self.settings)
        return "_".join([written(self.operation), *set_to])

    @property
    def inline(self) -> bool:
        """Whether a sentence has the formula itself; with one `x`, so that no chain outgrows its names."""
        once = formula.used(self.tree).count(formula.X) == 1 and not self.meaning.gated
        return bool(self.operands) and once and len(self.meaning.formula) <= _LONGEST_INLINE


def _digits(value: Number) -> str:
    """A number in digits and letters: `0p5` for 0.5, `1em05` for 1e-05, `2neg` for -2."""
    text = repr(abs(value)).replace(".", "p").replace("e-", "em").replace("e+", "e")
    return text + "neg" * (value < 0)


@dataclass(frozen=True)
class Epilogue:
    """A chain of operations applied left to right to the accumulator; empty for `none`."""

    steps: tuple[Step, ...] = ()

    @cached_property
    def word(self) -> str:
        """As a spec writes it: `none`, or the operations joined by `+`."""
        return "+".join(step.word for step in self.steps) or "none"

    @cached_property
    def written(self) -> str:
        """As a kernel's name has it."""
        return "_".join(step.written for step in self.steps) or "none"

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The keywords of the launcher that the chain reads."""
        return tuple(operand for step in self.steps for _, operand in step.operands if operand.shape != OUT)

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The results beside C, in the order of the chain."""
        return tuple(step.output for step in self.steps if step.output is not None)

    @cached_property
    def reads_out(self) -> bool:
        """Whether C is read before it is written."""
        return any(operand.shape == OUT for step in self.steps for _, operand in step.operands)

    def rounded(self, held: str, to: str) -> Epilogue:
        """The chain with its running value, first of the type `held`, rounded to `to` before each operation and tap."""
        rounding = Step(to, Operation(f"{to}({formula.X})"), ())
        steps: list[Step] = []
        for step in self.steps:
            if held != to and (held, to) != ("fp16", "fp32"):
                steps.append(rounding)
                held = to
            steps.append(step)
            # A tap leaves the value as it is.
            held = held if step.output is not None else "fp32"
        return Epilogue(tuple(steps))

    @cached_property
    def text(self) -> str:
        """The whole as a formula: `relu(A @ B + bias)`."""
        return self._text(len(self.steps))

    @cached_property
    def told(self) -> tuple[str, ...]:
        """What each output is: `preact is A @ B + bias`."""
        taps = [(at, step.output) for at, step in enumerate(self.steps) if step.output is not None]
        return tuple(f"{output.name} is {output.tap.meaning.format(self._text(at))}" for at, output in taps)

    def _text(self, steps: int) -> str:
        """The first `steps` of the chain as a formula."""
        tree = ast.parse("A @ B", mode="eval").body
        for step in self.steps[:steps]:
            if step.output is not None:
                continue
            names: dict[str, ast.expr] = {
                local: ast.Name("C" if operand.shape == OUT else operand.name) for local, operand in step.operands
            }
            if step.inline:
                tree = formula_code.to_text(step.tree, {formula.X: tree, **names})
            else:
                tree = formula_code.called(step.operation, [tree, *names.values()], dict(step.settings))
        return ast.unparse(tree)

    @cached_property
    def meanings(self) -> Mapping[str, str]:
        """What the operations of a spec's own that `text` calls by name are, as formulas over `x`."""
        own = [step for step in self.steps if not step.inline and step.output is None and not step.meaning.built_in]
        return {step.word: ast.unparse(step.tree) for step in own if not step.meaning.gated}

    @cached_property
    def gate(self) -> Step | None:
        """The step that makes one column of two."""
        return next((step for step in self.steps if step.meaning.gated), None)

    @cached_property
    def order(self) -> str | None:
        """The order of the two columns that b has for each of the result; None where it has one."""
        return None if self.gate is None else self.gate.order

    @property
    def columns_of_b(self) -> int:
        """How many columns b has for each of the result."""
        return 1 if self.gate is None else 2

    @property
    def data(self) -> list[Any]:
        """The chain as JSON holds it: the name of an operation that every spec has, else all of it."""
        return [
            step.operation
            if step.built_in and not step.settings
            else {"operation": step.operation, "output": step.meaning.output}
            if isinstance(step.meaning, Tap)
            else {
                "operation": step.operation,
                "formula": step.meaning.formula,
                "operands": dict(step.meaning.operands),
                "scalars": plain_scalars(step.meaning),
                "settings": dict(step.settings),
            }
            for step in self.steps
        ]

    @classmethod
    def chain(cls, operations: Sequence[Used]) -> Epilogue:
        """The chain of named operations with their settings, a second use of an operand or output numbered."""
        # An output that is called as an operand is a mistake of the chain, not another use of it.
        operands_taken: dict[str, int] = {}
        outputs_taken: dict[str, int] = {}
        steps = []

        def keyword(name: str, taken: dict[str, int]) -> str:
            taken[name] = taken.get(name, 0) + 1
            return name if taken[name] == 1 else f"{name}{taken[name]}"

        for at, (name, meaning, settings) in enumerate(operations):
            shapes = shapes_of(meaning, settings, gated=any(later.gated for _, later, _ in operations[at + 1 :]))
            operands = []
            for local, shape in shapes.items():
                operands.append((local, Operand(local if shape == OUT else keyword(local, operands_taken), shape)))
            output = Output(keyword(meaning.output, outputs_taken), meaning) if isinstance(meaning, Tap) else None
            steps.append(Step(name, meaning, tuple(operands), settings, output))
        return cls(tuple(steps))


def why_no_chain(operations: Sequence[Operation]) -> str | None:
    """Why operations make no chain, as what it has that it cannot have, or None."""
    gated = [operation.gated for operation in operations]
    if sum(gated) > 1:
        return "a second gate, and b has two columns for each of the result, which one gate takes"
    before = operations[: gated.index(True)] if any(gated) else ()
    if any(MATRIX in operation.operands.values() for operation in before):
        return "a matrix before the gate, where the product has 2N columns; put it behind the gate"
    read = any(OUT in operation.operands.values() for operation in before)
    if read or any(isinstance(operation, Tap) for operation in before):
        what = "C" if read else "an output"
        return f"{what} in front of the gate: what stands there has two columns for each of C; put it behind the gate"
    return None


def shapes_of(operation: Operation, settings: Settings, *, gated: bool) -> dict[str, str]:
    """The operands of an operation with these settings, each with its shape; `gated` where a gate follows it."""
    shapes = {name: shape for name, shape in operation.arguments.items() if name not in dict(settings)}
    return {name: HALVES if gated and shape == COLUMNS else shape for name, shape in shapes.items()}


def plain_scalars(operation: Operation) -> dict[str, Number | str | None]:
    """The scalars of an operation as JSON holds them, which has no infinity."""
    return {n: v if v is None or abs(v) <= formula.LARGEST else repr(v) for n, v in operation.scalars.items()}


def operation_of(entry: Mapping[str, Any]) -> Operation:
    """The operation that JSON tells of; raise ValueError, `FormulaError` among them, where it tells of none."""
    infinite = {repr(value): value for value in (math.inf, -math.inf)}
    scalars = {n: infinite[v] if isinstance(v, str) else v for n, v in entry.get("scalars", {}).items()}
    operands = {name: str(shape) for name, shape in entry["operands"].items()}
    strange = [v for v in scalars.values() if type(v) not in (int, float, type(None))]
    strange += [shape for shape in operands.values() if shape not in (*SHAPES.values(), OUT)]
    if strange:
        raise ValueError(f"{strange[0]!r} is neither a shape nor a number")
    operation = Operation(str(entry["formula"]), operands, scalars)
    operation.check()
    return operation


def settings_of(entry: Mapping[str, Any], operation: Operation) -> Settings:
    """The settings of an operation that JSON tells of; raise ValueError where they make no formula."""
    found = dict(entry)
    settings = tuple((name, found.pop(name)) for name in operation.scalars if name in found)
    numbers = all(type(value) in (int, float) for _, value in settings)
    if operation.gated and found.get(gated_units.ORDER) == gated_units.INTERLEAVED:
        settings += ((gated_units.ORDER, found.pop(gated_units.ORDER)),)
    if found or not numbers:
        raise ValueError(f"settings of {operation.formula!r} are numbers of its scalars, found {dict(entry)}")
    operation.tree(settings)
    return settings
