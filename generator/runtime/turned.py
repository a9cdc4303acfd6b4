"""Contracts for the other layout of an operand, which compute a call in place of the one that was called.

That is where a vector has both layouts, or where an operand is worth a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from . import relaunch
from .alignment import repeats
from .contracts import Function
from .copies import Copier

# Rows and columns of a block of a copy.
_BLOCK = 64, 64

#: Of `a`, `b` and whether they are on a GPU: what copies them, or views them in another way, and the contract for that.
Other: TypeAlias = "Callable[[Tensor, Tensor, bool], tuple[AsRow | Copier, Function] | None]"


def other(
    function: Callable[[str], Function],
    twins: Mapping[str, str],
    turns: Collection[str] | None,
    across: Mapping[str, str],
    summed: bool,
) -> Other:
    """A function that returns what computes a call in place of a contract, or None (`functions.contract`)."""

    def found(a: Tensor, b: Tensor, gpu: bool) -> tuple[AsRow | Copier, Function] | None:
        if across and gpu and torch.version.hip is None and a.dim() == b.dim() == 2:
            operand = worth_across(a, b, across, 8 if summed else 1)
            if operand is not None:
                return copy_across(operand, keep=relaunch.KNOWN), function(across[operand])
        if "a" in twins and a.dim() == 2 and a.shape[0] == 1 and a.stride(1) == 1:
            return AsRow("a"), function(twins["a"])
        if "b" in twins and b.dim() == 2 and b.shape[1] == 1 and b.stride(0) == 1:
            return AsRow("b"), function(twins["b"])
        whole = twins and gpu and min(a.dim(), b.dim()) > 1
        operand = worth_turning(a, b, twins, turns) if whole else None
        return None if operand is None else (turning(operand, keep=relaunch.KNOWN), function(twins[operand]))

    return found


def worth_turning(a: Tensor, b: Tensor, turnable: Collection[str], turns: Collection[str] | None) -> str | None:
    """Which of the `turnable` operands is worth a copy with K contiguous; None for none.

    If `turns` is not None, the matrix unit needs K contiguous, and a copy is worth its time if each element is used in
    many products. `turns` names the operands that the kernel can also read in their own layout, through registers.
    """
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    if repeats(a) or repeats(b):
        return None
    # Columns shorter than 32 bytes are loaded element by element, and every step along a long K waits for them, but not
    # one that waits for products of fp32 without the matrix unit.
    waits = turns is not None or a.element_size() < 4
    if "a" in turnable and waits and a.dim() == 2 and 0 < m * a.element_size() < 32 and k >= 4096:
        return "a"
    if turns is None or m * n * k < 2**29:
        return None
    enters = {"a": n, "b": m}
    pays = [x for x in turnable if enters[x] >= 512]
    if len(turnable) == 2 and turns:
        # The smaller operand is copied, and the other is read in its own layout.
        return max((x for x in pays if set(turnable) - {x} <= set(turns)), key=enters.__getitem__, default=None)
    if not set(turnable) <= set(turns):
        # Copying only one of two such operands gains nothing.
        return min(pays, default=None) if len(pays) == len(turnable) else None
    return next((x for x in pays if enters[x] >= 4 * min(m, n)), None)


def worth_across(a: Tensor, b: Tensor, copied: Collection[str], alike: int) -> str | None:
    """Which of the operands `copied` is worth a copy whose K is not contiguous; None for none.

    Both have K contiguous, which scalar units read slowly in the right operand of a product. That is `b`, but `a` if
    the product is exchanged, which is for few rows: they are copied in no time. The launch of the copy takes as long as
    some 2**26 products. Up to `alike` rows have a kernel that reads both as they are.
    """
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    if m <= alike or m * n * k < 2**26 or a.stride(1) != 1 or b.stride(0) != 1:
        return None
    smaller = "a" if m < 128 or n >= 16 * m else "b"
    if smaller in copied:
        return smaller
    return next(iter(copied), None) if m >= 128 else None


def turning(operand: str, *, keep: bool = False) -> Copier:
    """A copier of `a` (M, K) or `b` (K, N), or of batches of them, to a layout with K contiguous."""
    return Copier([-1, None] if operand == "a" else [None, -2], _BLOCK, keep)


def copy_across(operand: str, *, keep: bool = False) -> Copier:
    """A copier of `a` (M, K) or `b` (K, N) to a layout whose K is not contiguous."""
    return Copier([-2, None] if operand == "a" else [None, -1], _BLOCK, keep)


class AsRow:
    """Views the vector `a` (1, K) or `b` (K, 1), with an aligned stride along the dimension of 1, which is not used.

    It has the methods of a `Copier`, and copies nothing. `operand` is the name of the vector.
    """

    def __init__(self, operand: str) -> None:
        self.operand = operand

    def __call__(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (_row(a), b) if self.operand == "a" else (a, _row(b.mT).mT)

    like = __call__

    def launch(self, *operands: Tensor) -> None:
        """Nothing is copied."""


def _row(x: Tensor) -> Tensor:
    """The vector `x` (1, K), with the stride of an aligned row."""
    return x.as_strided(x.shape, (-(-x.shape[1] // 16) * 16, 1))
