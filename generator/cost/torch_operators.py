"""Torch's own products as candidates of a family's choice (`backends: [triton, aten]`), as its source holds them.

A contract is one of torch's if a single operator computes the product and all that follows. Torch's products of groups
are not among them: at no measured size of equal groups was one of them faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from generator.language.elements import ELEMENTS
from generator.language.measured_winners import Measured
from generator.language.model import Variant
from generator.language.storage import Block
from generator.plan import portfolio
from generator.plan.kernels import Family

#: By `batch` and what follows the product: the operator, and the operand that it adds.
_OPERATORS = {
    ("none", "none"): ("mm", ""),
    ("none", "bias"): ("addmm", "bias"),
    ("none", "add"): ("addmm", "add"),
    ("strided", "none"): ("bmm", ""),
    ("strided", "add"): ("baddbmm", "add"),
}
#: The blocks of A and of B whose scales torch._scaled_mm takes, for a result in bf16.
SCALED: Mapping[tuple[Block | None, Block | None], str] = {
    (Block(along=0, across=1), Block(along=0, across=1)): "rows",
    (Block(along=128, across=1), Block(along=128, across=128)): "blocks",
}


@dataclass(frozen=True)
class AtenContract:
    """What computes a contract (`runtime.aten_product.AtenOperator`)."""

    contract: str
    operator: str
    detail: str
    #: The class of contracts that share a rule; empty where none was measured that does as much.
    rule: str
    #: The contract whose measured sizes count, or the empty text.
    measured: str
    precision: str


def operator_of(v: Variant) -> tuple[str, str] | None:
    """The operator of torch that computes a contract, and its operand or how it multiplies; None if there is none."""
    dtype = v.dtype
    if v.quantised is not None or v.symmetric or v.rounds_between or not all(x.built_in for x in v.epilogue.steps):
        return None
    if dtype.stored_a.bits == 8 or not dtype.plain:
        alone = v.epilogue.word == "none" and v.batch == "none" and v.layout.word == "rcr"
        return _of_eight_bits(v) if alone else None
    floating = dtype.stored_a.element.floating and dtype.a == dtype.b == dtype.out and dtype.acc == "fp32"
    # Torch has no setting for three products of tf32.
    exact = dtype.precision in (None, "ieee", "tf32")
    return _OPERATORS.get((v.batch, v.epilogue.word)) if floating and exact else None


def _of_eight_bits(v: Variant) -> tuple[str, str] | None:
    """As `operator_of`, for a single product of operands of 8 bits and nothing behind it."""
    dtype = v.dtype
    a, b = dtype.stored_a, dtype.stored_b
    if dtype.sparse or (a.bits, b.bits) != (8, 8) or a.element.floating != b.element.floating:
        return None
    if not a.element.floating:
        return ("_int_mm", "") if dtype.plain and dtype.a == dtype.b == "int8" and dtype.out == "int32" else None
    if dtype.a_block is not None and dtype.b_block is not None:
        scaled = SCALED.get((dtype.a_block, dtype.b_block))
        return ("_scaled_mm", scaled) if scaled and dtype.out == "bf16" else None
    # cuBLASLt needs an operand of e4m3.
    plain = dtype.plain and "fp8e4m3" in (dtype.a, dtype.b) and ELEMENTS[dtype.out].bits >= 16
    return ("_scaled_mm", dtype.precision or "") if plain else None


def rule_of(v: Variant) -> str:
    """The contracts that share a rule with `v`: those of its types in all layouts, of two types of 16 bits both."""
    dtype = v.dtype
    like = ELEMENTS[dtype.a].measured_as if dtype.plain and dtype.a == dtype.b == dtype.out == "bf16" else ""
    dtype = replace(dtype, a=like, b=like, out=like) if like else dtype
    return f"{v.products.prefix}_{dtype.word}"


def operators(family: Family) -> tuple[AtenContract, ...]:
    """The contracts of a family that torch computes too; none if its spec does not ask for them."""
    contracts = []
    for name, kernels in family.contracts.items() if "aten" in family.spec.backends else ():
        v = kernels[0].variant
        if known := operator_of(v):
            # Torch copies a matrix before it adds to it, which measurements of the product alone do not show.
            as_measured = v.epilogue.word in ("none", "bias")
            names = [x for x in portfolio.similar(v) if x.startswith(f"{v.products.prefix}_")]
            names = names if as_measured else [v.contract]
            source = next((each for each in names if any(_times(x, each) for x in family.measured)), "")
            precision = (v.dtype.precision or "") if v.dtype.a == "fp32" else ""
            contracts.append(AtenContract(name, *known, rule_of(v) if as_measured else "", source, precision))
    return tuple(contracts)


def measured(family: Family, contracts: Sequence[AtenContract]) -> dict[tuple[str, str], dict[tuple[int, ...], bool]]:
    """By device and contract the sizes at which both were measured, and whether torch's product was the faster one."""
    sources = dict.fromkeys(each.measured for each in contracts if each.measured)
    by_contract: dict[tuple[str, str], dict[tuple[int, ...], bool]] = {}
    for each in family.measured:
        for source in sources:
            own = by_contract.setdefault((each.device, source), {})
            own.update((sizes, x) for sizes, x in sorted(_times(each, source).items()) if sizes not in own)
    return {key: own for key, own in by_contract.items() if own}


def rules(family: Family, contracts: Sequence[AtenContract]) -> dict[tuple[str, str], Sequence[Sequence[object]]]:
    """The rule of each device and class; of several files, the first that has one counts."""
    wanted = dict.fromkeys(each.rule for each in contracts if each.rule)
    by_types: dict[tuple[str, str], Sequence[Sequence[object]]] = {}
    for each, name in itertools.product(family.measured, wanted):
        if name in each.aten:
            by_types.setdefault((each.device, name), each.aten[name])
    return by_types


def _times(measured: Measured, contract: str) -> Mapping[tuple[int, ...], bool]:
    """The measured sizes of a contract with torch's time, and whether that is the shorter one."""
    return {
        x.sizes: x.library_seconds < x.seconds
        for x in measured.winners
        if x.contract == contract and x.seconds and x.library_seconds
    }
