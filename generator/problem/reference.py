"""The float64 result of a spec, with a bound on the rounding error of any correct kernel.

Every value has a bound on the error that a correct kernel may have made so far (`error_propagation`). The bound does
not include the rounding of the store; `compare` adds it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from generator.epilogue import formula
from generator.epilogue.auxiliary_outputs import AuxiliaryOutput
from generator.epilogue.chain import Epilogue, EpilogueOperand, Output, Step
from generator.language.elements import ELEMENTS
from generator.language.model import Variant
from generator.lowering import approximate_math
from generator.plan.contract_call import call
from generator.plan.resources import through_registers
from generator.problem.accumulation_bounds import truncated
from generator.problem.chain_values import run_chain, spread, taken_apart
from generator.problem.element_types import Operands
from generator.problem.error_propagation import EXACT, FUNCTIONS, Bounded, exact, functions, read, sum_along
from generator.problem.grouping import part_of, parts
from generator.problem.stored_values import product, product_of_decoded


def references(
    variant: Variant, a: torch.Tensor, b: torch.Tensor, operands: Operands, *, hardware: bool
) -> tuple[Bounded, ...]:
    """The (M, N) result of `variant` before the store, then the auxiliary outputs in the order of the chain.

    Of a quantised result, whose scales follow from it (`quantised_values`), it is the value before.

    `a` is (M, K) and `b` (K, N); for a batch, all matrices have its dimension in front. With a gated linear unit `b` is
    (K, 2N). If the epilogue reads C, its old values are `operands["c"]`. Of groups, what belongs to none of them is 0.

    `hardware` states whether a matrix unit multiplies (with tf32, a short fp8 accumulator, truncated sums) or the
    interpreter, which has none of these.
    """
    if variant.products.divided:
        return _of_groups(variant, a, b, operands, hardware=hardware)
    if not hardware and (held := through_registers(variant)):
        # The kernel truncates this operand to tf32 itself; a matrix unit truncates the other one, too.
        a, b = (truncated(a), b) if held == "a" else (a, truncated(b))
    if (beta := variant.epilogue.beta) and operands[beta] == 0:
        # As in BLAS, C is not read, whatever is in it.
        operands = {**operands, "c": torch.zeros_like(torch.as_tensor(operands["c"]))}
    multiply = product_of_decoded if variant.traits.decodes else product
    sums = multiply(variant.dtype, a, b, operands, hardware=hardware)
    outputs: list[Bounded] = []
    # Infinite and NaN elements have no error.
    x = Bounded(sums.value, torch.where(sums.value.isfinite(), sums.error, 0.0))
    return finish(variant, x, operands, outputs, hardware=hardware), *outputs


def _of_groups(
    variant: Variant, a: torch.Tensor, b: torch.Tensor, operands: Operands, *, hardware: bool
) -> tuple[Bounded, ...]:
    """The results of all groups, each computed as a product of its own."""
    described, alone = call(variant), replace(variant, batch="none")
    given = {"a": a, "b": b, **operands}
    ends = given.pop("offsets")
    assert isinstance(ends, torch.Tensor)
    rows = given.pop("rows", None)
    # Where the rows of C belong is not what they are.
    given.pop("scatter", None)
    if isinstance(rows, torch.Tensor):
        given = {name: _named(x, rows) if name in ("a", "a_scale") else x for name, x in given.items()}
    by_rows = variant.products.divided == "M"
    total = len(rows if isinstance(rows, torch.Tensor) else a) if by_rows else a.shape[1]
    sizes = {"G": len(ends), "T": total, "M": a.shape[0], "N": b.shape[-1]}
    sizes["N"] //= 2 if described.gated else 1
    whole_out = replace(described.out, dimensions=call(replace(variant, epilogue=Epilogue())).out.dimensions)
    computed = (whole_out, *described.beside)
    zeros = (a.new_zeros(x.sizes(sizes), dtype=torch.float64) for x in computed)
    results = [Bounded(x, x.clone()) for x in zeros]
    arguments = (described.a, described.b, *described.keywords, replace(described.out, name="c"))
    for number, span, own in parts(arguments, given, ends.tolist(), sizes["T"]):
        left, right = own.pop("a"), own.pop("b")
        assert isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
        own_results = references(alone, left, right, own, hardware=hardware)
        for x, whole, part in zip(computed, results, own_results, strict=True):
            for into, values in ((whole.value, part.value), (whole.error, part.error)):
                target = part_of(x, into, number, span)
                assert isinstance(target, torch.Tensor)
                target.copy_(values.expand(target.shape))
    return tuple(results)


def _named(value: torch.Tensor | float, rows: torch.Tensor) -> torch.Tensor | float:
    """The rows of a matrix that are named; zeros for those that it does not have."""
    if not isinstance(value, torch.Tensor) or value.shape[0] == 1:
        return value
    there = (rows >= 0) & (rows < value.shape[0])
    # Of some types torch cannot fill a part; a zero has no bits in any.
    picked = value[torch.where(there, rows, 0).long()].contiguous()
    picked.view(torch.uint8)[~there] = 0
    return picked


def finish(
    variant: Variant, x: Bounded, operands: Operands, outputs: list[Bounded] | None = None, *, hardware: bool = False
) -> Bounded:
    """The epilogue of `variant` on the accumulator `x`: fp32 arithmetic, after integer steps on an integer accumulator.

    The auxiliary outputs are appended to `outputs`.
    """
    math, out = approximate_math.math_of(variant), variant.dtype.out
    integer = not ELEMENTS[variant.dtype.sum].floating

    def operand(each: EpilogueOperand) -> Bounded:
        value = torch.as_tensor(operands[each.name], dtype=torch.float64, device=x.value.device)
        bounded = Bounded(value := spread(value, each.shape), torch.zeros_like(value))
        return bounded if variant.exact else read(bounded)

    def step_value(step: Step, names: dict[str, Bounded]) -> Bounded:
        nonlocal integer
        if variant.exact:
            return formula.evaluate(step.tree, names, EXACT, lambda value: exact(value, names[formula.X].value))
        if integer and not step.keeps_integers(exact=False):
            integer = False
            names = {name: read(y) if name in (formula.X, formula.GATE) else y for name, y in names.items()}
        return evaluate(step.tree, names, functions(approximate_math.takes(step, math), out, hardware=hardware))

    def write(output: Output, y: Bounded) -> None:
        if outputs is not None:
            value = auxiliary_value(output.writer, y, out, integer=integer)
            outputs.append(_mirrored(value) if variant.symmetric else value)

    result = run_chain(variant.chain.steps, x, operand, step_value, apart=_taken_apart, write=write)
    result = _stored("fp32" if variant.quantised is not None else out, result, integer=integer)
    return _mirrored(result) if variant.symmetric else result


def _mirrored(x: Bounded) -> Bounded:
    """The symmetric matrix of what is on and above the diagonal of `x`."""
    places = torch.arange(x.value.shape[-1], device=x.value.device)
    upper = places[:, None] <= places
    return Bounded(*(torch.where(upper, each, each.mT) for each in (x.value, x.error.expand(x.value.shape))))


def _taken_apart(x: Bounded, order: str) -> tuple[Bounded, Bounded]:
    gate, other = map(Bounded, taken_apart(x.value, order), taken_apart(x.error, order))
    return gate, other


def _stored(out: str, x: Bounded, *, integer: bool) -> Bounded:
    """The value to store: an integer is converted to fp32 for a floating result."""
    return read(x) if integer and ELEMENTS[out].floating else x


def auxiliary_value(writer: AuxiliaryOutput, x: Bounded, out: str, *, integer: bool) -> Bounded:
    """The auxiliary output `writer` of the running value `x`, beside a C of type `out`; sums may be in any order."""
    if not writer.reduction:
        return _stored(out, x, integer=integer)
    x = read(x) if integer else x
    if writer.reduction == "sum":
        return sum_along(x, writer.dimension)
    value, error = writer.lines(x.value), writer.lines(x.error.expand(x.value.shape))
    if not value.shape[writer.dimension]:
        return Bounded(value.sum(writer.dimension), value.sum(writer.dimension))
    # No rounding; the error of a maximum is at most the largest error of the values.
    return Bounded(value.abs().amax(writer.dimension), error.amax(writer.dimension))


def evaluate(
    tree: ast.expr, names: Mapping[str, Bounded], table: Mapping[str, Callable[..., Any]] = FUNCTIONS
) -> Bounded:
    """The value of a checked formula for the values `names`, with a bound on the error of fp32 arithmetic."""
    return formula.evaluate(tree, names, table, lambda value: read(exact(value, names[formula.X].value)))
