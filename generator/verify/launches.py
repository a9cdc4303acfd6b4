"""The launches of a kernel that its launcher can come to: each row of the table in every class of specialisation.

Triton compiles a kernel anew for what it knows of the arguments: whether addresses and numbers are multiples of 16,
whether a number is 1 or wider than 32 bits, and every constant. A class is a call that makes it know one thing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from generator.epilogue.operations import SCALAR
from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant
from generator.plan import legality, variant_rules
from generator.plan.kernels import Kernel
from generator.verify.case_sizes import Case, Fit, sizes_of
from generator.verify.cases import distinct

#: The class of a row that the legality table refuses: it must not fit, or the table is too strict.
REFUSED = "refused"


@dataclass(frozen=True)
class CompiledLaunch:
    """One row of a kernel's table, called in one class; `case` has the sizes and how the operands lie."""

    row: int
    tile: Tile
    case: Case
    #: Whether the row says how many programs share a tile.
    splits: bool = False

    @property
    def name(self) -> str:
        return f"row{self.row}-{self.case.name}"

    @property
    def row_label(self) -> str:
        """The row's values, by which rows of different kernels are one value of an axis."""
        t = self.tile
        split = f" p{t.split}" if self.splits else ""
        dies = "" if t.chiplets == Tile.chiplets else f" c{t.chiplets}"
        return f"{t.m}x{t.n}x{t.k} w{t.warps} s{t.stages} g{t.group}{split}{dies}"


def left_out(kernel: Kernel, target: str) -> str | None:
    """Why nothing of `kernel` is compiled for `target`, or None."""
    reason = legality.why_not_on(kernel.variant, target)
    if reason is not None or any(_compiled(kernel.variant, tile, target) for tile in kernel.tiles):
        return reason
    return f"no row of its table is for {target}: {legality.why_no_row_on(kernel.variant, kernel.tiles[0], target)}"


def _compiled(v: Variant, tile: Tile, target: str) -> bool:
    """Whether a row is compiled: one that fits, and one that needs too much memory, which is seen when compiling."""
    return legality.why_no_row_on(v, tile, target) is None or legality.too_much_memory(v, tile, target) is not None


@lru_cache(maxsize=4096)
def launches(kernel: Kernel, target: str) -> tuple[CompiledLaunch, ...]:
    """Every launch of `kernel` on `target`: of a row that does not fit there only one, which shows that it does not."""
    if left_out(kernel, target) is not None:
        return ()
    cases_of = []
    splits = kernel.variant.traits.splits
    for row, tile in enumerate(kernel.tiles):
        classes = distinct(_calls(kernel.variant, Fit(kernel.variant, tile), row))
        if legality.why_no_row_on(kernel.variant, tile, target) is None:
            cases_of += [CompiledLaunch(row, tile, case, splits) for case in classes]
        elif legality.too_much_memory(kernel.variant, tile, target) is not None:
            cases_of.append(CompiledLaunch(row, tile, replace(next(classes), name=REFUSED), splits))
    return tuple(cases_of)


def _calls(v: Variant, fit: Fit, row: int) -> Iterator[Case]:
    m, n, k = fit.unit if v.traits.tiled else (16, 16, 16)
    m, n, k = 2 * m, 2 * n, k if not v.traits.looped else 2 * k
    out = ELEMENTS[v.dtype.out]
    # The type that a caller's vectors and matrices have: that of the result, where it is a floating one.
    plain = v.dtype.out if out.floating and out.bits >= 16 else "fp32"
    aligned = Case(
        "aligned", "whole tiles, every address and stride a multiple of 16", fit(m, n, k), row, operand_type=plain
    )
    yield aligned
    ragged = variant_rules.ragged(v.masking) if v.traits.tiled else dict.fromkeys("mnk", True)
    loose = "".join(dimension for dimension in "mnk" if ragged[dimension] is not False)

    def odd(some: str) -> tuple[int, int, int]:
        return fit(m + ("m" in some), n + ("n" in some), k - ("k" in some))

    if loose:
        yield aligned.but("ragged", "all dimensions that may end within a tile do", sizes=odd(loose))
        ones = tuple(1 if d in loose else size for d, size in zip("mnk", aligned.sizes, strict=True))
        yield aligned.but("unit", "a dimension of 1 is a constant to Triton", sizes=fit(*ones))
    if v.masking == "auto" and v.traits.tiled and not v.loading.descriptors:
        # Each dimension has code of its own for whole tiles.
        for some in ("m", "n", "k", "mn", "mk", "nk"):
            label = " and ".join(some.upper())
            yield aligned.but(f"ragged-{some}", f"{label} end within a tile", sizes=odd(some))
    if not v.loading.descriptors:
        yield aligned.but("unaligned", "no address and no stride is a multiple of 16", padded=True, unaligned=True)
    yield aligned.but("wide", "offsets pass 2**31 elements", huge="c")
    lines = "k" if v.layout.a == "column" else "m"
    if lines in loose:
        two = tuple(2 if d == lines else size for d, size in zip("mnk", aligned.sizes, strict=True))
        yield aligned.but("wide-stride", "a stride passes 2**31 elements", sizes=fit(*two), huge="a")
    if v.batch == "strided":
        yield from _batches(v, aligned)
    if v.products.divided:
        total = sizes_of(v, aligned)["T"]
        yield aligned.but("groups-one", "G = 1 is a constant to Triton", ends=(total,))
        if v.products.divided == "M" and not v.loading.descriptors:
            yield aligned.but("groups-named", "rows of A are named", named=True)
        if v.products.divided == "M":
            yield aligned.but("groups-scattered", "rows of C are named", scattered=True)
        yield aligned.but("groups-many", "more groups than lanes of a warp", ends=(total,) * 48)
    if "strided" in (v.layout.a, v.layout.b, v.layout.c):
        yield aligned.but("strided-columns", "strided operands, column after column", strided="column")
        yield aligned.but("strided-gaps", "no stride of a strided operand is 1", strided="gaps")
    shapes = {operand.shape for operand in v.epilogue.operands}
    if shapes - {SCALAR}:
        other = "bf16" if plain == "fp32" else "fp32"
        yield aligned.but("operands", f"the epilogue's operands in {other}", operand_type=other)
    if SCALAR in shapes:
        yield aligned.but("scalar-tensor", "a scalar as a tensor", scalar_tensor=True)
        yield aligned.but(
            "scalar-elsewhere", "a scalar as a tensor on another device", scalar_tensor=True, scalar_elsewhere=True
        )


def _batches(v: Variant, aligned: Case) -> Iterator[Case]:
    if v.traits.walks_tiles:
        # Elsewhere the number of matrices is no argument.
        yield aligned.but("batch-one", "a batch of one is a constant to Triton", batch=1)
    yield aligned.but("batch-wide", "offsets pass 2**31 elements from matrix to matrix", apart="c")
    yield aligned.but("batch-wide-stride", "a stride from matrix to matrix passes 2**31 elements", apart="a", batch=2)
    if not v.loading.descriptors:
        yield aligned.but("batch-repeats", "a stride of 0 between matrices", repeated="b")
        unaligned = replace(aligned, padded=True, unaligned=True, interleaved=True)
        yield unaligned.but("batch-unaligned", "matrices that lie between each other's lines")
