"""The example of a package: one contract, on data of its own, compared with a product in double precision."""

from __future__ import annotations

from dataclasses import dataclass

from generator.emit.cubin.c_expressions import formula_text, why_not_in_c
from generator.emit.cubin.contract_source import ContractSource
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
    def out(self) -> int:
        """The place of the result."""
        return next(index for index, each in enumerate(self.source.arguments) if each.operand.name == "out")

    @property
    def rounds_operands(self) -> bool:
        """Whether the operands of a product have 10 bits behind the leading one, as those in tf32."""
        return self.source.kernel.variant.dtype.precision == "tf32"

    @property
    def result_bits(self) -> int:
        """The error of rounding a result is 2 to the minus this, as a part of it."""
        return min(_TYPES[self.source.arguments[self.out].operand.dtype], 18)

    @property
    def approximates(self) -> bool:
        """Whether the kernel computes a function in a cheaper form, whose error is less than that of the result."""
        variant = self.source.kernel.variant
        math = approximate_math.math_of(variant)
        return any(approximate_math.takes(step, math) for step in variant.chain.steps)

    @property
    def steps(self) -> list[str]:
        """The chain on `x`, each step as an expression in C."""
        places = {each.operand.name: index for index, each in enumerate(self.source.arguments)}
        found = []
        for step in self.source.kernel.variant.chain.steps:
            names = {formula.X: "x"}
            for local, used in step.operands:
                place = places[used.name]
                rank = len(self.source.arguments[place].operand.extents)
                indices = {ROWS: ["i"], COLUMNS: ["j"], MATRIX: ["i", "j"]}.get(used.shape, ["0"])
                indices = ["b"] * (rank - len(indices)) + indices + ["0"] * 3
                names[local] = f"element(&x_[{place}], {', '.join(indices[:3])})" if rank else "NUMBER"
            found.append(formula_text(step.tree, names))
        return found

    @property
    def cases(self) -> list[ExampleCase]:
        """A few sizes of the table: the least and the largest M of N and K."""
        runs = self.source.runs
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
    variant = source.kernel.variant
    plain = {each.operand.dtype for each in source.arguments} <= {"", *_TYPES} and variant.dtype.acc == "fp32"
    strided = any(x.operand.unit is None and len(x.operand.extents) > 1 for x in source.arguments)
    more = (
        sum(each.operand.written for each in source.arguments) != 1,
        variant.products.divided,
        variant.epilogue.reads_out,
        variant.epilogue.gate is not None,
        variant.words.get("result", "full") != "full",
        approximate_math.math_of(variant) == "fast",
        any(step.output is not None or why_not_in_c(step.tree) for step in variant.chain.steps),
    )
    return Example(source) if plain and not strided and not any(more) else None
