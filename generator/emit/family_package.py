"""A family as a Python package: which kernels implement a contract, and the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from generator.language.model import Variant
from generator.language.vocabulary import ELEMENTS, WORDS
from generator.lowering import docstrings
from generator.lowering.launcher import Launcher, launcher
from generator.lowering.lines import paragraph
from generator.lowering.view import view
from generator.plan.kernels import Family, Kernel
from generator.plan.resources import through_registers

#: The axes by which the kernels of a contract are ordered, the most important first.
_RANKED = ("schedule", "load", "masking", "swizzle")


@dataclass(frozen=True)
class Contract:
    """One function of a family's package: its name, its formula, and its kernels.

    A call runs the first kernel that accepts the operands.
    """

    name: str
    formula: str
    kernels: tuple[str, ...]


def _rank(kernel: Kernel) -> tuple[int, ...]:
    ranks = (WORDS[axis][kernel.variant.word(axis)].rank for axis in _RANKED)
    return (*ranks, 0 if kernel.variant.store == "as_load" else 1)


def _variants(family: Family) -> dict[str, Variant]:
    """One variant of each contract; all variants of a contract compute the same."""
    return {kernel.variant.contract: kernel.variant for kernel in family.kernels}


def _transposed(variant: Variant) -> dict[str, Variant]:
    """`variant` with one operand contiguous along K that is not, by the operand's name."""
    layout, found = variant.layout, {}
    if layout.a == "column":
        found["a"] = replace(variant, layout=replace(layout, a="row"))
    if layout.b == "row":
        found["b"] = replace(variant, layout=replace(layout, b="column"))
    return found


def twins(family: Family) -> tuple[tuple[str, str], ...]:
    """For each contract the family's contracts that differ only in that `a` or `b` is contiguous along K.

    They are written as the entries of a dictionary: `"a": "gemm_fp16_rcr_none"`.
    """
    names = _variants(family)
    found = []
    for name, variant in names.items():
        others = _transposed(variant).items()
        entries = [f'"{operand}": "{other.contract}"' for operand, other in others if other.contract in names]
        if entries:
            found.append((name, ", ".join(entries)))
    return tuple(found)


def contiguous_k(family: Family, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The contracts of `names` whose matrix unit needs operands contiguous along K: on Hopper, all but 16-bit elements.

    Each contract comes with the letters of the operands that its kernels can read without K contiguous, through
    registers. If neither operand is contiguous, this includes the operand that can be read so once the other has been
    transposed.
    """
    variants = _variants(family)
    readable: dict[str, set[str]] = {}
    for kernel in family.kernels:
        readable.setdefault(kernel.variant.contract, set()).update(through_registers(kernel.variant) or "")
    found = []
    for name in names:
        variant = variants[name]
        if variant.dtype.precision == "tf32" or ELEMENTS[variant.dtype.a].bits == 8:
            others = (x.contract for x in _transposed(variant).values())
            found.append((name, "".join(sorted(readable[name].union(*(readable.get(other, ()) for other in others))))))
    return tuple(found)


def gated(family: Family) -> tuple[str, ...]:
    """The contracts with a gated linear unit: their product has two columns for each column of C."""
    return tuple(name for name, variant in _variants(family).items() if variant.epilogue.gate is not None)


def operands(family: Family) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """For each contract its operands, and those of its results that are not sums of tiles, as `prepare.py.j2` has them.

    Each is the text of a tuple: dtype, None for any floating one; the extents by name; the dimension of stride 1, None
    for any; and whether a call may leave it out.
    """
    kernels = {kernel.variant.contract: kernel for kernel in reversed(family.kernels)}
    return tuple((name, tuple(_operands(launcher(view(kernels[name]))))) for name in _variants(family))


def _operands(made: Launcher) -> Iterator[tuple[str, str]]:
    needed = (*made.checked, *made.scalars)
    results = (made.c, *made.saved)
    for operand in (*needed, *results):
        name = "out" if operand == made.c else operand.name
        sizes = ", ".join(f'"{size}"' for size in operand.sizes) + "," * (len(operand.sizes) == 1)
        optional = operand in results and not (operand == made.c and made.reads_out)
        yield name, f"({operand.torch_dtype}, ({sizes}), {operand.unit}, {optional})"


def contracts(family: Family) -> tuple[Contract, ...]:
    """The contracts of a family in the order of its kernels, each with its kernels in the order they are tried."""
    grouped: dict[str, list[Kernel]] = {}
    for kernel in family.kernels:
        grouped.setdefault(kernel.variant.contract, []).append(kernel)
    return tuple(
        Contract(
            name, paragraph(docstrings.formula(kernels[0].variant)), tuple(k.name for k in sorted(kernels, key=_rank))
        )
        for name, kernels in grouped.items()
    )
