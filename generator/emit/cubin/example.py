"""The example of a package: one contract, on data of its own, compared with a product in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from generator.emit.cubin.c_expressions import formula_text, why_not_in_c
from generator.emit.cubin.contract_source import ContractSource, OperandFields
from generator.epilogue import formula
from generator.epilogue.operations import COLUMNS, MATRIX, ROWS
from generator.lowering import approximate_math

#: The types of elements that the example converts, with the place of the last bit behind the leading one.
_TYPES = {"float16": 11, "bfloat16": 8, "float32": 24}
#: The most sizes that it runs.
_CASES = 6


@dataclass(frozen=True)
class ExampleCase:
    """Sizes of a call, and whether the package takes operands of any alignment for them."""

    m: int
    n: int
    k: int
    any: bool


@dataclass(frozen=True)
class Example:
    """A contract whose product and chain the example computes in C."""

    source: ContractSource

    @property
    def symbol(self) -> str:
        return self.source.symbol

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def formula(self) -> str:
        return self.source.formula

    @property
    def counted(self) -> str:
        return self.source.counted

    @property
    def needs_memory(self) -> bool:
        return self.source.needs_memory

    @property
    def operands(self) -> tuple[OperandFields, ...]:
        return self.source.operands

    @property
    def tensors(self) -> list[tuple[int, OperandFields]]:
        """The operands that are no numbers, each with its place."""
        return [(index, each) for index, each in enumerate(self.operands) if each.operand.extents]

    @property
    def numbers(self) -> list[str]:
        """The operands that are numbers."""
        return [each.name for each in self.operands if not each.operand.extents]

    @property
    def out(self) -> int:
        """The place of the result."""
        return next(index for index, each in enumerate(self.operands) if each.operand.name == "out")

    @property
    def rounds_operands(self) -> bool:
        """Whether the operands of a product have 10 bits behind the leading one, as those in tf32."""
        return self.source.contract.kernel.variant.dtype.precision == "tf32"

    @property
    def result_bits(self) -> int:
        """The error of rounding a result is 2 to the minus this, as a part of it."""
        return min(_TYPES[self.operands[self.out].operand.dtype], 18)

    @property
    def approximates(self) -> bool:
        """Whether the kernel computes a function in a cheaper form, whose error is less than that of the result."""
        variant = self.source.contract.kernel.variant
        math = approximate_math.math_of(variant)
        return any(approximate_math.takes(step, math) for step in variant.chain.steps)

    def _steps(self, element: str, *, python: bool = False) -> list[str]:
        """The chain on `x`, each step as an expression; `element` reads an operand at indices."""
        places = {each.operand.name: index for index, each in enumerate(self.operands)}
        found = []
        for step in self.source.contract.kernel.variant.chain.steps:
            names = {formula.X: "x"}
            for local, used in step.operands:
                operand = self.operands[places[used.name]]
                if not operand.operand.extents:
                    names[local] = "NUMBER"
                    continue
                indices = {ROWS: ["i"], COLUMNS: ["j"], MATRIX: ["i", "j"]}.get(used.shape, ["0"])
                indices = ["b"] * (len(operand.operand.extents) - len(indices)) + indices
                indices += [] if python else ["0"] * (3 - len(indices))
                names[local] = element.format(name=operand.name, place=places[used.name], at=", ".join(indices))
            found.append(formula_text(step.tree, names, python=python))
        return found

    @cached_property
    def steps(self) -> list[str]:
        """The chain in C."""
        return self._steps("element(&x_[{place}], {at})")

    @cached_property
    def python_steps(self) -> list[str]:
        """The chain in Python."""
        steps = self._steps('at("{name}", {at})', python=True)
        return [step.replace("'", '"') for step in steps]

    @property
    def python_extents(self) -> list[tuple[str, str, bool]]:
        """The tensors with their extents in Python, and whether each is column-major."""
        names = {"s->m": "M", "s->n": "N", "s->k": "K", "s->count": "COUNT"}
        found = []
        for _, each in self.tensors:
            extents = [names.get(x, x) for x in each.operand.extents]
            listed = f"({', '.join(extents)}{',' * (len(extents) == 1)})"
            found.append((each.name, listed, each.layout == "column-major"))
        return found

    @property
    def cases(self) -> list[ExampleCase]:
        """A few sizes of the table: the least and the largest M of N and K."""
        runs = self.source.contract.runs
        found = {}
        for n, k in dict.fromkeys((run.n, run.k) for run in runs):
            own = [run for run in runs if (run.n, run.k) == (n, k)]
            for run, m in (
                (own[0], own[0].first),
                (own[len(own) // 2], own[len(own) // 2].last),
                (own[-1], own[-1].last),
            ):
                found[m, n, k] = ExampleCase(m, n, k, run.entries[-1] is not None)
        return [*found.values()][:_CASES]


def example_of(source: ContractSource) -> Example | None:
    """The example of a contract, or None where it would need more than products of matrices and a chain."""
    contract = source.contract
    variant = contract.kernel.variant
    plain = {each.operand.dtype for each in source.operands} <= {"", *_TYPES}
    written = [each for each in source.operands if each.operand.written]
    strided = any(x.operand.unit is None and len(x.operand.extents) > 1 for x in source.operands)
    steps = variant.chain.steps
    plain &= variant.dtype.acc == "fp32"
    if not plain or len(written) != 1 or strided or variant.products.divided or variant.epilogue.reads_out:
        return None
    if (
        variant.epilogue.gate is not None
        or variant.words.get("result", "full") != "full"
        or approximate_math.math_of(variant) == "fast"
    ):
        return None
    if any(step.output is not None or why_not_in_c(step.tree) for step in steps):
        return None
    return Example(source)
