"""Products of torch that this family's contracts compute: which contract fits one, and what became of those of a model.

Torch's operators in eager mode (`overriding`) and graphs of Inductor (`graph_pass`) ask `Matrices.fitting`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

from .launchable import surely
from .precision import fp32_precision

_I = TypeVar("_I", bound="Installed")


class Applied(NamedTuple):
    """An operation of a contract's chain: its name in a spec, the keywords of its operands, and its settings."""

    operation: str
    operands: tuple[str, ...] = ()
    settings: tuple[tuple[str, float | str], ...] = ()


class TorchProduct(NamedTuple):
    """What a contract computes, as far as torch has products like it.

    `batch` and `layout` are those of a spec. `precision` is "ieee" or "tf32" for fp32, else empty. `rounding` is that
    of the spec, and empty where nothing is rounded between the product and the result.
    """

    batch: str
    layout: str
    a: torch.dtype
    b: torch.dtype
    out: torch.dtype
    precision: str = ""
    chain: tuple[Applied, ...] = ()
    rounding: str = ""


def applied(operation: str, *operands: str, **settings: float | str) -> Applied:
    """An operation with keywords of operands, and settings."""
    return Applied(operation, operands, tuple(settings.items()))


#: What a product is multiplied by, and what is added to it, in the same rounding, as torch's `addmm` does.
SCALE, BIAS, ADD = applied("scale", "scale"), applied("bias", "bias"), applied("add", "add")


def word_of(chain: tuple[Applied, ...]) -> str:
    """A chain as a spec has it."""
    return "+".join(each.operation for each in chain) or "none"


class Matrices(NamedTuple):
    """The operands of a product of torch, of which fake tensors suffice, and the type of its result.

    `out` is the tensor that is filled, or None for a new one, which is row-major.
    """

    batch: str
    a: Any
    b: Any
    dtype: torch.dtype
    out: Any = None

    @property
    def precision(self) -> str:
        """How torch multiplies fp32 now."""
        return fp32_precision() if self.a.dtype == torch.float32 else ""

    @property
    def layouts(self) -> list[str]:
        """The layouts that fit, that by which the operands were most likely made first."""
        results = "rs" if self.out is None else letters(self.out)
        return ["".join(each) for each in itertools.product(letters(self.a), letters(self.b), results)]

    def fitting(
        self, products: Mapping[str, TorchProduct], chain: tuple[Applied, ...], roundings: Iterable[str]
    ) -> str | None:
        """The contract of this product and a chain behind it, or None."""
        alike = TorchProduct(self.batch, "", self.a.dtype, self.b.dtype, self.dtype, self.precision, chain)
        # One that rounds nothing on the way is that of every rounding.
        ways = itertools.product(self.layouts, dict.fromkeys(("", *roundings)))
        wanted = [alike._replace(layout=layout, rounding=rounding) for layout, rounding in ways]
        return next((name for one in wanted for name, product in products.items() if product == one), None)

    def why_none(self, products: Mapping[str, TorchProduct], chain: str) -> str:
        """Why no contract fits, with a chain in words."""
        candidates = [x for x in products.values() if x.batch == self.batch]
        if not candidates:
            return f"no contract has {_BATCHES[self.batch]}"
        types = self.a.dtype, self.b.dtype, self.dtype
        candidates = [x for x in candidates if (x.a, x.b, x.out) == types]
        if not candidates:
            a, b, out = (str(x).removeprefix("torch.") for x in types)
            return f"no contract multiplies {a} by {b} to {out}"
        candidates = [x for x in candidates if x.precision == self.precision]
        if not candidates:
            return f"no contract multiplies fp32 as torch is set to, {self.precision}"
        has = ", ".join(dict.fromkeys(x.layout for x in candidates))
        candidates = [x for x in candidates if x.layout in self.layouts]
        if not candidates:
            return f"no contract has the layout {self.layouts[0]}; this type has {has}"
        chains = dict.fromkeys(word_of(x.chain) for x in candidates)
        return f"no contract of {candidates[0].layout} has {chain}; those there have {', '.join(chains)}"


_BATCHES = {
    "none": "single products",
    "strided": "batches: `batch: strided`",
    "grouped": "groups: `batch: grouped`",
    "grouped_k": "groups along K: `batch: grouped_k`",
}


def letters(x: Any) -> str:
    """The letters of the layouts that a matrix has; of both, that of its strides first."""
    # Nothing more is certain about a size that is known only at run time.
    narrow, single = surely(x.shape[-1] <= 1), surely(x.shape[-2] <= 1)
    along, across = surely(x.stride(-1) == 1), surely(x.stride(-2) == 1)
    # A single row with a step of 1 to the next one is that of a matrix whose columns are contiguous.
    row = surely(x.shape[-2] == 1) and surely(x.shape[-1] > 1)
    order = "cr" if across and (not along or row) else "rc"
    fits = {"r": along or narrow, "c": across or single}
    return "".join(letter for letter in order if fits[letter]) + "s"


def grouped(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> tuple[str, Any, Any, str]:
    """The `batch` of a spec that a call of torch's `_grouped_mm` is, offsets and type, and why no contract has it."""
    batch = {(2, 3): "grouped", (2, 2): "grouped_k"}.get((a.dim(), b.dim()), "")
    why = "" if batch else "groups are divided along N"
    if bias is not None or offs is None:
        why = "a grouped product with a bias" if bias is not None else "a grouped product without offsets"
    return batch, offs, out_dtype, why


def addend(
    own: tuple[Any, ...], shape: tuple[Any, ...], alpha: float = 1, beta: float = 1, *, alike: bool = False
) -> tuple[tuple[Applied, ...], tuple[Any, ...], str]:
    """What `beta * c + alpha * product` adds to a product of this shape, where `c` has the shape `own`.

    Returns the chain, the shape in which `c` is its operand, and why no chain has it. With `alike` the number of rows
    has no part in it: a vector is a bias, and all else is a matrix of the result's shape, to which `c` is expanded.
    """
    if beta not in (0, 1):
        return (), (), f"beta is {beta}"
    if alpha == 0:
        return (), (), "alpha is 0, with which torch reads neither A nor B"
    scaled = () if alpha == 1 else (SCALE,)
    if beta == 0:
        return scaled, (), ""
    if alike and len(own) > 1:
        return (*scaled, ADD), shape, ""
    if own and surely(own[-1] == shape[-1]) and all(surely(size == 1) for size in own[:-1]):
        return (*scaled, BIAS), shape[-1:], ""
    if len(own) == len(shape) and all(surely(one == other) for one, other in zip(own, shape)):
        return (*scaled, ADD), own, ""
    return (), (), f"what is added has the shape {own}, neither a row nor that of the result"


class Report:
    """What became of torch's products: counts by operator and contract, or by operator and reason.

    `replaced` are computed by a contract, and `kept` are left to torch. `apart` are replaced, but what follows them is
    not part of it, although a contract has such a chain.
    """

    def __init__(self) -> None:
        self.replaced, self.kept, self.apart = (Counter[tuple[str, str]]() for _ in range(3))

    def clear(self) -> None:
        """Begin to count again."""
        for each in (self.replaced, self.kept, self.apart):
            each.clear()

    def __str__(self) -> str:
        counted = {"replaced": self.replaced, "left to torch": self.kept, "replaced without what follows": self.apart}
        lines = []
        for title, counts in counted.items():
            if counts or counts is not self.apart:
                lines.append(f"{title}: {sum(counts.values())}")
            lines += [f"  {count} {operator}: {what}" for (operator, what), count in counts.most_common()]
        return "\n".join(lines)


class Installed:
    """What stays installed until `remove`: a context manager too, of which the end of the outermost block removes it.

    `report` says what became of torch's products.
    """

    report: Report
    install: Any
    remove: Any
    _entered = 0

    def __enter__(self: _I) -> _I:  # noqa: PYI019
        self._entered += 1
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if self._entered <= 0:
            self.remove()

    def __str__(self) -> str:
        return str(self.report)
