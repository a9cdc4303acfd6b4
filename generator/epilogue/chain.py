"""Epilogues: chains of operations, each with its operands under the launcher's names and its settings."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from generator.epilogue import formula, formula_code, gated_units
from generator.epilogue.auxiliary_outputs import ACCUMULATE, AUXILIARY, AuxiliaryOutput
from generator.epilogue.formula import Number
from generator.epilogue.gradient_operation import PREACT, GradientOperation
from generator.epilogue.operations import (
    BOTH,
    COLUMNS,
    ELEMENT,
    HALVES,
    MATRIX,
    OUT,
    SCALAR,
    SHAPES,
    EpilogueOperation,
    Settings,
    written,
)
from generator.epilogue.quantisation import OUT_SCALE, Quantisation

#: Formulas up to this length are written out in sentences; a longer one is replaced by its operation's name.
_LONGEST_INLINE = 40

#: An operation: its name, its meaning, and the settings that a chain gives it.
Used = tuple[str, EpilogueOperation, Settings]


@dataclass(frozen=True)
class EpilogueOperand:
    """An epilogue operand of one kernel: the launcher's keyword and its shape."""

    name: str
    shape: str


@dataclass(frozen=True)
class Output:
    """An auxiliary output of one kernel: the launcher's keyword, and the operation that writes it."""

    name: str
    writer: AuxiliaryOutput
    #: Whether it is written before a gated linear unit, where the product has two columns for each of C.
    gated: bool = False

    @property
    def shape(self) -> str:
        return BOTH if self.gated else self.writer.shape

    @property
    def reduced(self) -> bool:
        """Whether it is a vector of sums or maxima over rows or columns; otherwise it is a matrix."""
        return bool(self.writer.reduction)


@dataclass(frozen=True)
class Step:
    """One operation of a chain: its operands under the launcher's keywords (`add`, then `add2`), and its settings.

    Operands include the scalars that each call gives. Settings are the parameters that differ from their defaults, in
    the operation's order. The operand of shape OUT is C, which is not a keyword.
    """

    operation: str
    meaning: EpilogueOperation
    operands: tuple[tuple[str, EpilogueOperand], ...]
    settings: Settings = ()
    output: Output | None = None

    @property
    def built_in(self) -> bool:
        """Whether every spec has the operation under this name, with this name of its output."""
        return self.meaning.built_in and (
            not isinstance(self.meaning, AuxiliaryOutput) or self.meaning == AUXILIARY[self.operation]
        )

    @property
    def order(self) -> str:
        """The order of the two columns of a gated linear unit."""
        return str(dict(self.settings).get(gated_units.ORDER, gated_units.CONCATENATED))

    @cached_property
    def tree(self) -> ast.expr:
        return self.meaning.tree(self.settings)

    @cached_property
    def called(self) -> frozenset[str]:
        """The functions that its formula calls."""
        return frozenset(formula.called(self.tree))

    @cached_property
    def word(self) -> str:
        """The operation in messages: `clamp(min=0, max=6)`, `save(hidden)`."""
        if isinstance(self.meaning, AuxiliaryOutput) and self.meaning != AUXILIARY[self.operation]:
            return f"{self.operation}({self.meaning.output})"
        settings = tuple(self.meaning.settings.items()) if isinstance(self.meaning, Quantisation) else self.settings
        set_to = ", ".join(f"{name}={value}" for name, value in settings)
        return f"{self.operation}({set_to})" if set_to else self.operation

    @cached_property
    def written(self) -> str:
        """The operation in a kernel's name, with value and name of each setting: `clamp_0_min_6_max`.

        Two different chains have different texts: a value begins with a digit and a name with a letter, and no
        operation has the name of an order. An output's name that is not the default begins with `1`: `save_1hidden`.
        """
        if isinstance(self.meaning, AuxiliaryOutput) and self.meaning != AUXILIARY[self.operation]:
            return f"{written(self.operation)}_1{self.meaning.output}"
        if isinstance(self.meaning, Quantisation):
            return self.meaning.written
        set_to = (v if isinstance(v, str) else f"{_digits(v)}_{written(name)}" for name, v in self.settings)
        return "_".join([written(self.operation), *set_to])

    def keeps_integers(self, *, exact: bool) -> bool:
        """Whether it makes integers of integers: with `exact`, also of operands that are tensors of these."""
        tensors = [local for local, x in self.operands if x.shape not in (SCALAR, ELEMENT)]
        return formula.keeps_integers(self.tree, tensors if exact else None)

    @property
    def inline(self) -> bool:
        """Whether sentences contain the formula itself. It has one `x`, so that the text of a chain stays short."""
        if self.meaning.gated or isinstance(self.meaning, GradientOperation):
            return False
        once = formula.used(self.tree).count(formula.X) == 1
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
        """The chain in a spec: `none`, or the operations joined by `+`."""
        return "+".join(step.word for step in self.steps) or "none"

    @cached_property
    def written(self) -> str:
        """The chain in a kernel's name."""
        return "_".join(step.written for step in self.steps) or "none"

    @cached_property
    def operands(self) -> tuple[EpilogueOperand, ...]:
        """The operands that the chain reads, under the launcher's keywords."""
        return tuple(operand for step in self.steps for _, operand in step.operands if operand.shape != OUT)

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The auxiliary outputs, in the order of the chain."""
        return tuple(step.output for step in self.steps if step.output is not None)

    @property
    def quantisation(self) -> Quantisation | None:
        """What stores C in another type under scales that are found from C; None for a C of `dtype.out`."""
        last = self.steps[-1].meaning if self.steps else None
        return last if isinstance(last, Quantisation) else None

    @cached_property
    def exact(self) -> bool:
        """Whether integers have all its results, where the product, C and the operands are integers of one type."""
        return self.quantisation is None and all(step.keeps_integers(exact=True) for step in self.steps)

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """The names of all that the chain reads and writes beside C."""
        scales = (OUT_SCALE,) if self.quantisation is not None else ()
        return (*(operand.name for operand in self.operands), *(output.name for output in self.outputs), *scales)

    @cached_property
    def reads_out(self) -> bool:
        """Whether C is read before it is written."""
        return any(operand.shape == OUT for step in self.steps for _, operand in step.operands)

    @cached_property
    def beta(self) -> str:
        """The number by which a call multiplies C, which is not read where it is 0; empty where no call gives it."""
        accumulated = [step for step in self.steps if step.operation == ACCUMULATE]
        return "".join(x.name for step in accumulated for _, x in step.operands if x.shape != OUT)

    def rounded(self, held: str, to: str) -> Epilogue:
        """The chain with its running value rounded to `to` before each operation; the accumulator's type is `held`."""
        rounding = Step(to, EpilogueOperation(f"{to}({formula.X})"), ())
        steps: list[Step] = []
        for step in self.steps:
            if held != to and (held, to) != ("fp16", "fp32"):
                steps.append(rounding)
                held = to
            steps.append(step)
            # An auxiliary output leaves the running value unchanged.
            held = held if step.output is not None else "fp32"
        return Epilogue(tuple(steps))

    @cached_property
    def text(self) -> str:
        """The chain as a formula: `relu(A @ B + bias)`."""
        return self._text(len(self.steps))

    @cached_property
    def described_outputs(self) -> tuple[str, ...]:
        """What each auxiliary output is: `preact is A @ B + bias`."""
        auxiliaries = [(at, step.output) for at, step in enumerate(self.steps) if step.output is not None]
        return tuple(f"{output.name} is {output.writer.meaning.format(self._text(at))}" for at, output in auxiliaries)

    def _text(self, steps: int) -> str:
        """The first `steps` operations of the chain as a formula."""
        tree = ast.parse("A @ B", mode="eval").body
        for step in self.steps[:steps]:
            if step.output is not None or isinstance(step.meaning, Quantisation):
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
        """The formulas over `x` of the user-defined operations that `text` calls by name."""
        own = [step for step in self.steps if not step.inline and step.output is None and not step.meaning.built_in]
        return {step.word: ast.unparse(step.tree) for step in own if not step.meaning.gated}

    @cached_property
    def gate(self) -> Step | None:
        """The gated linear unit of the chain, or None."""
        return next((step for step in self.steps if step.meaning.gated), None)

    @cached_property
    def order(self) -> str | None:
        """The order of the two columns of b for each column of C; None without a gated linear unit."""
        return None if self.gate is None else self.gate.order

    @property
    def columns_of_b(self) -> int:
        """How many columns b has for each column of C: 2 with a gated linear unit, else 1."""
        return 1 if self.gate is None else 2

    @property
    def data(self) -> list[Any]:
        """The chain as JSON: the name of each built-in operation, and the whole definition of any other."""
        return [
            step.operation
            if step.built_in and not step.settings and not isinstance(step.meaning, Quantisation)
            else {"operation": step.operation, **step.meaning.settings}
            if isinstance(step.meaning, Quantisation)
            else {"operation": step.operation, "output": step.meaning.output}
            if isinstance(step.meaning, AuxiliaryOutput)
            else {"operation": step.operation, **definition(step.meaning), "settings": dict(step.settings)}
            for step in self.steps
        ]

    @classmethod
    def chain(cls, operations: Sequence[Used]) -> Epilogue:
        """The chain of these operations; the second use of an operand or output gets a number in its name."""
        # Operands and outputs are numbered apart: an output with the name of an operand is an error of the spec. Only
        # the operand of a gradient is numbered after the outputs that have its name by default.
        saved = [meaning for _, meaning, _ in operations if isinstance(meaning, AuxiliaryOutput)]
        operands_taken = {PREACT: [meaning.output for meaning in saved].count(PREACT)}
        outputs_taken: dict[str, int] = {}
        steps = []

        def keyword(name: str, taken: dict[str, int]) -> str:
            taken[name] = taken.get(name, 0) + 1
            return name if taken[name] == 1 else f"{name}{taken[name]}"

        for at, (name, meaning, settings) in enumerate(operations):
            gated = any(later.gated for _, later, _ in operations[at + 1 :])
            shapes = shapes_of(meaning, settings, gated=gated)
            keywords = [local if shape == OUT else keyword(local, operands_taken) for local, shape in shapes.items()]
            operands = tuple(zip(shapes, map(EpilogueOperand, keywords, shapes.values())))
            output = None
            if isinstance(meaning, AuxiliaryOutput):
                output = Output(keyword(meaning.output, outputs_taken), meaning, gated)
            steps.append(Step(name, meaning, operands, settings, output))
        return cls(tuple(steps))


def why_no_chain(operations: Sequence[EpilogueOperation]) -> str | None:
    """Why these operations cannot be a chain, as the part that is illegal, or None."""
    gated = [operation.gated for operation in operations]
    if sum(gated) > 1:
        return "a second gate: b has two columns for each column of C, and the first gate consumes them"
    before = operations[: gated.index(True)] if any(gated) else ()
    if any(MATRIX in operation.operands.values() for operation in before):
        return "a matrix before the gate, where the product has 2N columns; put it after the gate"
    read = any(OUT in operation.operands.values() for operation in before)
    if read or any(isinstance(operation, AuxiliaryOutput) and operation.reduction for operation in before):
        what = "C" if read else "a sum or maximum"
        return f"{what} before the gate, where there are two columns for each column of C; put it after the gate"
    if any(isinstance(operation, Quantisation) for operation in operations[:-1]):
        return "an operation behind quantize, which stores C; put quantize at the end"
    stored = bool(operations) and isinstance(operations[-1], Quantisation)
    if stored and any(OUT in operation.operands.values() for operation in operations):
        return "quantize and accumulate, which would read C without its scales; add a matrix with 'add'"
    return None


def shapes_of(operation: EpilogueOperation, settings: Settings, *, gated: bool) -> dict[str, str]:
    """The operands of an operation with these settings, with shapes; `gated` if a gated linear unit follows."""
    shapes = {name: shape for name, shape in operation.arguments.items() if name not in dict(settings)}
    return {name: HALVES if gated and shape == COLUMNS else shape for name, shape in shapes.items()}


#: The key of an operation's formula in JSON; a gradient has the formula of the operation that it is the gradient of.
_FORMULA, _DERIVATIVE_OF = "formula", "derivative_of"


def definition(operation: EpilogueOperation) -> dict[str, Any]:
    """The operation as JSON, which cannot represent infinity."""
    return {
        _DERIVATIVE_OF if isinstance(operation, GradientOperation) else _FORMULA: operation.formula,
        "operands": dict(operation.operands),
        "scalars": {n: v if v is None or abs(v) <= formula.LARGEST else repr(v) for n, v in operation.scalars.items()},
    }


def operation_of(entry: Mapping[str, Any]) -> EpilogueOperation:
    """The operation of a `definition`; raise ValueError (or its subclass `FormulaError`) if it is invalid."""
    infinite = {repr(value): value for value in (math.inf, -math.inf)}
    scalars = {n: infinite[v] if isinstance(v, str) else v for n, v in entry.get("scalars", {}).items()}
    operands = {name: str(shape) for name, shape in entry["operands"].items()}
    strange = [v for v in scalars.values() if type(v) not in (int, float, type(None))]
    strange += [shape for shape in operands.values() if shape not in (*SHAPES.values(), OUT)]
    if strange:
        raise ValueError(f"{strange[0]!r} is neither a shape nor a number")
    if _DERIVATIVE_OF in entry:
        operation: EpilogueOperation = GradientOperation(str(entry[_DERIVATIVE_OF]), operands, scalars)
        if operands != {PREACT: MATRIX}:
            raise ValueError(f"a gradient has the operand {PREACT!r}, found {operands}")
    else:
        operation = EpilogueOperation(str(entry[_FORMULA]), operands, scalars)
    operation.check()
    return operation


def settings_of(entry: Mapping[str, Any], operation: EpilogueOperation) -> Settings:
    """The settings in a JSON entry; raise ValueError where the formula is invalid with them."""
    left = dict(entry)
    settings = tuple((name, left.pop(name)) for name in operation.scalars if name in left)
    numbers = all(type(value) in (int, float) for _, value in settings)
    if operation.gated and left.get(gated_units.ORDER) == gated_units.INTERLEAVED:
        settings += ((gated_units.ORDER, left.pop(gated_units.ORDER)),)
    if left or not numbers:
        raise ValueError(f"settings of {operation.formula!r} are numbers of its scalars, found {dict(entry)}")
    operation.tree(settings)
    return settings
