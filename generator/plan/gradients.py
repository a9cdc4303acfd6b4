"""The gradients of a contract: the products that its backward pass needs, and what is kept for its chain.

For C = f(A @ B) and the gradient dS of the sum S = A @ B, the gradients of the operands are the products
dA = dS @ B^T and dB = A^T @ dS. Each is computed so that it lies as its operand does; a column-major operand's gradient
is the transposed of a row-major product. Of a symmetric result the gradients below the diagonal are first added to
those of the elements above it, of which these are copies, and are zero from there on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from generator.epilogue.auxiliary_outputs import ACCUMULATE, AUXILIARY, AuxiliaryOutput, named
from generator.epilogue.chain import Epilogue
from generator.epilogue.chain_gradients import passes, reads_sum
from generator.language.dtypes import QUANTISED
from generator.language.elements import ELEMENTS
from generator.language.model import Dtype, Layout, Variant
from generator.language.vocabulary import DEFAULTS

#: The output that keeps the sum for the backward pass.
SUM = "whole"

#: Names that the kernel of a gradient, and the call of it, have for their own values.
_OWN = re.compile(r"grad(_.*)?|x\d+|(gate|up)\d+|needed|d_sum|gradient_kernel", re.A)
#: What such a kernel makes of the name of an operand: its columns of each half of a gate, and its gradient.
_MADE = ("{}_gate", "{}_up", "d_{}")

_TURNED = {"row": "column", "column": "row", "strided": "strided"}


@dataclass(frozen=True)
class Product:
    """The product that is the gradient of an operand: a contract, and whether its result is the transposed gradient.

    Of rows in groups the result is the gradient itself, and `turned` says that it is column-major.
    """

    contract: str
    turned: bool


@dataclass(frozen=True)
class ContractGradient:
    """What computes the gradients of one contract."""

    contract: str
    #: The contract that returns the sum as well and is called in this one's place, where this one does not return it.
    saving: str | None
    a: Product
    b: Product
    #: The variant whose chain a kernel runs backwards; None where the gradient of the result is that of the sum, and of
    #: all that the chain reads.
    chain: Variant | None
    #: The output that is the sum; None where it is not read.
    sum: str | None
    #: Whether the result is symmetric: what is below the diagonal is a copy, whose gradient belongs to the original.
    symmetric: bool = False

    @property
    def chained(self) -> bool:
        """Whether a kernel runs its chain backwards for this contract itself."""
        return self.chain is not None and self.saving is None

    @property
    def constant(self) -> tuple[str, ...]:
        """The outputs that have no gradient: maxima."""
        outputs = self.chain.epilogue.outputs if self.chain else ()
        return tuple(output.name for output in outputs if not output.writer.differentiable)

    @property
    def contracts(self) -> set[str]:
        """The contracts that a backward pass calls, and this one."""
        called = {self.a.contract, self.b.contract, self.saving}
        return {self.contract} | {name for name in called if name is not None}

    @property
    def file(self) -> str:
        """The name of the kernel that runs the chain backwards."""
        return f"{self.contract}__gradient"


def adds(v: Variant) -> bool:
    """Whether a contract adds the gradient of a linear layer's weight to a tensor, and so has no gradient itself."""
    of_floats = v.dtype.plain and v.dtype.a == v.dtype.b and ELEMENTS[v.dtype.a].floating
    kept = of_floats and v.dtype.stored_a.bits >= 16 and v.dtype.out in (v.dtype.a, "fp32")
    alone = v.batch == "none" and not v.symmetric
    return kept and alone and v.layout.word == "crr" and v.epilogue.word == f"{ACCUMULATE}(beta=1)"


def why_none(v: Variant) -> str | None:
    """Why a contract has no gradients, or None."""
    if v.epilogue.reads_out:
        return "accumulate writes over C, of which a gradient would be needed"
    if v.quantised is not None:
        return f"a result that is quantised to {v.quantised.format or v.quantised.kind} has no gradient"
    if v.dtype.out in QUANTISED or not ELEMENTS[v.dtype.out].floating:
        return f"a result in {v.dtype.out} has no gradient"
    if not v.dtype.stored_a.element.floating or v.dtype.stored_a.bits < 16:
        return f"operands in {v.dtype.a} have no gradient"
    if not v.dtype.plain:
        return f"operands that are stored as {v.dtype.word} have no gradient"
    if v.products.divided == "K":
        return "the gradients of products with a divided K are not made"
    names = {name for step in v.epilogue.steps for local, operand in step.operands for name in (local, operand.name)}
    derived = {form.format(name) for name in names for form in _MADE}
    own = sorted(name for name in names if _OWN.fullmatch(name) or name in derived)
    return f"its operand {own[0]!r} has a name that the kernel of a gradient uses itself" if own else None


def gradients(v: Variant) -> tuple[ContractGradient, ...]:
    """The gradients of the contract of `v`, which `why_none` allows, and of the one that is called in its place."""
    left, right, saved = _variants(v)
    gradient = ContractGradient(
        v.contract,
        None if saved is None or saved.contract == v.contract else saved.contract,
        Product(left.contract, v.layout.a == "column"),
        Product(right.contract, v.layout.b == "column" and not v.products.divided),
        None if not v.epilogue.steps or (passes(v.epilogue) and not v.products.divided) else v,
        None if saved is None else saved.epilogue.outputs[0].name,
        v.symmetric,
    )
    return (gradient,) if saved is None or gradient.saving is None else (gradient, *gradients(saved))


def needed(v: Variant) -> Iterator[Variant]:
    """A variant of each contract that the backward pass of `v` needs, its own perhaps among them."""
    return (variant for variant in _variants(v) if variant is not None)


def _variants(v: Variant) -> tuple[Variant, Variant, Variant | None]:
    """A variant of the contracts of both products, and of the contract that keeps the sum, where it is read."""
    a, b = v.layout.a, v.layout.b
    left = Layout(b, "column", "row") if a == "column" else Layout("row", _TURNED[b], "row")
    right = Layout("column", a, "row") if b == "column" else Layout(_TURNED[a], "row", "row")
    dtype = Dtype(v.dtype.a, v.dtype.a, v.dtype.acc, v.dtype.a, v.dtype.precision)
    defaults = {axis: DEFAULTS[axis] for axis in ("rounding", "math", "result")}
    plain = replace(v, dtype=dtype, epilogue=Epilogue(), **defaults)  # type: ignore[arg-type]
    summed = plain
    if v.products.divided:
        # Rows of A come in groups, and so do those of its gradient, which is not the transposed of a product.
        left = Layout("row", _TURNED[b], "column" if a == "column" else "row")
        right = Layout(_TURNED[a], "row", "column" if b == "column" else "row")
        summed = replace(plain, batch="grouped_k")
    reads = reads_sum(v.epilogue, [operand.name for operand in v.epilogue.operands])
    saved = replace(v, epilogue=_keeping(v.epilogue)) if reads else None
    return replace(plain, layout=left), replace(summed, layout=right), saved


def _keeping(epilogue: Epilogue) -> Epilogue:
    """The chain that first writes the sum; the chain itself where it does."""
    first = epilogue.steps[0]
    if isinstance(first.meaning, AuxiliaryOutput) and not first.meaning.reduction:
        return epilogue
    used = [(step.operation, step.meaning, step.settings) for step in epilogue.steps]
    return Epilogue.chain([("save", named(AUXILIARY["save"], SUM), ()), *used])
