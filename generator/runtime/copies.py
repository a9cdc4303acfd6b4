"""Copies of operands whose layout or alignment no fast kernel takes, and when copying is worth its time.

torch copies a matrix with odd rows at a third of the memory bandwidth, and each operand in a launch of its own. A
`Copier` copies all operands of a call in one launch, and caches that launch.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import fast
from .alignment import crosses, is_aligned, repeats
from .launch import Function

#: An operand, the memory for its copy, and the dimension, -1 or -2, along which the copy is contiguous.
Pair: TypeAlias = tuple[Tensor, Tensor, int]

# Rows and columns of a block of a copy in the same layout.
_BLOCK = 4, 1024
# The same of a copy in another layout.
_TURNED = 64, 64


@triton.jit  # type: ignore[untyped-decorator]
def _copy(program, operand, zero, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """One block of the `rows` of all matrices, of which each has `size`."""
    x_ptr, copy_ptr, rows, size, columns, stride_b, stride_r, stride_c, ld = operand
    blocks = tl.cdiv(columns, COLUMNS)
    offs_r = (program // blocks) * ROWS + tl.arange(0, ROWS)
    offs_c = (program % blocks) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (offs_r[:, None] < rows) & (offs_c[None, :] < columns)
    starts = (offs_r // size).to(tl.int64) * stride_b + (offs_r % size).to(tl.int64) * stride_r
    x = tl.load(x_ptr + starts[:, None] + offs_c.to(tl.int64)[None, :] * stride_c, mask=inside)
    tl.store(copy_ptr + zero + offs_r.to(tl.int64)[:, None] * ld + offs_c[None, :], x, mask=inside)


# One launch copies both operands. `zero` hides from Triton that a copy is aligned: if each thread stored eight elements
# at once, its one-element loads would be eight elements apart as well.
@triton.jit(do_not_specialize=["programs_a", "zero"])  # type: ignore[untyped-decorator]
def _copy_kernel(a, b, programs_a, zero, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    if program < programs_a:
        _copy(program, a, zero, ROWS, COLUMNS)
    else:
        _copy(program - programs_a, b, zero, ROWS, COLUMNS)


def worth_aligning(a: Tensor, b: Tensor) -> bool:
    """Whether each element to be copied is in so many products that a copy costs less than aligned operands save.

    `a` is (M, K) and `b` (K, N), or batches of them.
    """
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    copied = (0 if is_aligned(a) else m) + (0 if is_aligned(b) else n)
    return copied > 0 and k > 0 and m * n > 16 * copied and not repeats(a) and not repeats(b)


def worth_lining(a: Tensor, b: Tensor) -> bool:
    """Whether a copy of `b` with a row pitch of whole 128-byte lines costs less than it saves.

    From 3072 rows on, a tile of 128 by 256 is balanced between arithmetic and loads if only one operand crosses lines;
    so the operand of the longer side is copied, and the other is not.
    """
    return a.shape[-2] >= 3072 and a.shape[-1] > 0 and crosses(b) and not repeats(b)


def aligning(*operands: Tensor) -> Copier:
    """A copier of those operands whose base or strides are not multiples of 16 bytes; their layouts stay."""
    return Copier([None if is_aligned(x) else _contiguous(x) for x in operands], _BLOCK)


def lining(a: Tensor, b: Tensor) -> Copier:
    """A copier of `b` to a row pitch of whole 128-byte lines; its layout stays."""
    return Copier([None, _contiguous(b)], _BLOCK)


class Copier:
    """Copies operands; a call returns all of them, with copies in place of those that need one.

    `along` has for each operand the dimension, -1 or -2, along which its copy is contiguous, and None for no copy.
    `block` is the number of rows and columns that one program copies. All calls have one signature (shapes, strides,
    types, devices, alignment), and the first one's launch is repeated with the addresses of the others.
    """

    def __init__(self, along: Sequence[int | None], block: tuple[int, int]) -> None:
        self.along, self.block = along, block
        self.again: Callable[[Sequence[Pair]], None] | None = None

    def __call__(self, *operands: Tensor) -> list[Tensor]:
        copied = self.like(*operands)
        pairs = self._pairs(operands, copied)
        if self.again is not None:
            self.again(pairs)
        elif pairs:
            self.again = _launch(pairs, self.block)
        return copied

    def like(self, *operands: Tensor) -> list[Tensor]:
        """What a call returns, with copies that are not filled."""
        return [x if along is None else _like(x, along) for x, along in zip(operands, self.along)]

    def launch(self, *operands: Tensor) -> tuple[Any, tuple[int, ...], dict[str, Any]] | None:
        """The kernel, the grid and the arguments that a call launches; None if there is nothing to copy."""
        pairs = self._pairs(operands, self.like(*operands))
        if not pairs:
            return None
        grid, arguments = _planned(pairs, self.block)
        return _copy_kernel, grid, dict(zip(_copy_kernel.arg_names, arguments(pairs)))

    def _pairs(self, operands: Iterable[Tensor], copied: Iterable[Tensor]) -> list[Pair]:
        return [(x, copy, along) for x, copy, along in zip(operands, copied, self.along) if along is not None]


class AsRow(Copier):
    """Views the vector `a` (1, K) or `b` (K, 1), with an aligned stride along the dimension of 1, which is not used.

    Nothing is copied. `operand` is the name of the vector.
    """

    def __init__(self, operand: str) -> None:
        super().__init__((None, None), _BLOCK)
        self.operand = operand

    def like(self, *operands: Tensor) -> list[Tensor]:
        a, b = operands
        return [_row(a), b] if self.operand == "a" else [a, _row(b.mT).mT]


def _row(x: Tensor) -> Tensor:
    """The vector `x` (1, K), with the stride of an aligned row."""
    return x.as_strided(x.shape, (-(-x.shape[1] // 16) * 16, 1))


def _contiguous(x: Tensor) -> int:
    """The dimension along which `x` is contiguous."""
    return -2 if x.stride(-2) == 1 and x.shape[-2] > 1 else -1


def _like(x: Tensor, along: int) -> Tensor:
    """Memory for a copy of `x`, contiguous along a dimension, with rows that start at multiples of 128 bytes."""
    step = 128 // x.element_size()
    ld = -(-x.shape[along] // step) * step
    strides = (ld, 1) if along == -1 else (1, ld)
    front = (ld * x.shape[-1 if along == -2 else -2],) if x.dim() == 3 else ()
    return torch.empty_strided(x.shape, front + strides, dtype=x.dtype, device=x.device)


def _planned(
    pairs: Sequence[Pair], block: tuple[int, int]
) -> tuple[tuple[int, ...], Callable[[Sequence[Pair]], tuple[Any, ...]]]:
    """The grid of a launch that copies one or two matrices, or batches of them, and a function for its arguments."""
    sizes, programs = [], []
    for x, copy, along in pairs:
        rows, copied = (x, copy) if along == -1 else (x.mT, copy.mT)
        size, columns = rows.shape[-2:]
        count = rows.numel() // columns
        stride = rows.stride(0) if rows.dim() == 3 else 0
        sizes.append((count, size, columns, stride, *rows.stride()[-2:], copied.stride(-2)))
        programs.append(triton.cdiv(count, block[0]) * triton.cdiv(columns, block[1]))

    def arguments(pairs: Sequence[Pair]) -> tuple[Any, ...]:
        operands = [(x, copy, *numbers) for (x, copy, _), numbers in zip(pairs, sizes)]
        return operands[0], operands[-1], programs[0], 0, *block

    return (sum(programs), 1, 1), arguments


def _launch(pairs: Sequence[Pair], block: tuple[int, int]) -> Callable[[Sequence[Pair]], None] | None:
    """Copy one or two matrices, or batches of them; return what copies others of the same call signature.

    Returns None if the launch cannot be repeated.
    """
    grid, arguments = _planned(pairs, block)
    device = pairs[0][0].device

    with torch.cuda.device_of(pairs[0][0]):  # type: ignore[no-untyped-call]
        compiled = _copy_kernel[grid](*arguments(pairs))
    if not (fast.KNOWN and compiled):
        return None
    try:
        entry = fast.Entry(compiled, compiled.run)
    except AttributeError:
        return None

    current, stream = fast.current()

    def again(pairs: Sequence[Pair]) -> None:
        if current() != device.index:
            with torch.cuda.device(device):
                return again(pairs)
        entry(stream(device.index), arguments(pairs), grid)

    return again


class Copies:
    """Contracts for the other layout of an operand, which compute a call in place of the contract that was called.

    That is where a vector has both layouts, or where an operand is worth a copy. `function` returns the function of a
    contract by name. `twins` are the contracts for the other layout of `a` or `b`; `turns` is not None if one is copied
    to it where that is faster (`worth_turning`); `across` are those for an `a` or `b` that is copied so that K is not
    contiguous (`worth_across`), `summed` whether a kernel for few rows reads both of these as they are.
    """

    worth_aligning, worth_lining = staticmethod(worth_aligning), staticmethod(worth_lining)
    aligning, lining = staticmethod(aligning), staticmethod(lining)

    def __init__(
        self,
        function: Callable[[str], Function],
        *,
        twins: Mapping[str, str] | None = None,
        turns: Collection[str] | None = None,
        across: Mapping[str, str] | None = None,
        summed: bool = False,
    ) -> None:
        self.function, self.twins, self.turns = function, twins or {}, turns
        self.across, self.alike = across or {}, 8 if summed else 1

    def other(self, a: Tensor, b: Tensor, gpu: bool) -> tuple[Copier, Function] | None:
        """What copies `a` and `b`, or views them in another way, and the function for that; None for no other."""
        function, twins, across = self.function, self.twins, self.across
        if across and gpu and torch.version.hip is None and a.dim() == b.dim() == 2:
            operand = worth_across(a, b, across, self.alike)
            if operand is not None:
                return copy_across(operand), function(across[operand])
        if "a" in twins and a.dim() == 2 and a.shape[0] == 1 and a.stride(1) == 1:
            return AsRow("a"), function(twins["a"])
        if "b" in twins and b.dim() == 2 and b.shape[1] == 1 and b.stride(0) == 1:
            return AsRow("b"), function(twins["b"])
        whole = twins and gpu and min(a.dim(), b.dim()) > 1
        operand = worth_turning(a, b, twins, self.turns) if whole else None
        return None if operand is None else (turning(operand), function(twins[operand]))


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


def turning(operand: str) -> Copier:
    """A copier of `a` (M, K) or `b` (K, N), or of batches of them, to a layout with K contiguous."""
    return Copier([-1, None] if operand == "a" else [None, -2], _TURNED)


def copy_across(operand: str) -> Copier:
    """A copier of `a` (M, K) or `b` (K, N) to a layout whose K is not contiguous."""
    return Copier([-2, None] if operand == "a" else [None, -1], _TURNED)
