"""The sizes a kernel is run at, derived from its tiles, each with the reason why it is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from generator.epilogue.gated_units import CONCATENATED
from generator.epilogue.operations import MATRIX, SCALAR
from generator.language.model import Tile, Variant
from generator.language.vocabulary import ELEMENTS, SWIZZLE
from generator.plan import legality
from generator.plan.kernels import Kernel


@dataclass(frozen=True)
class Case:
    """One call of a kernel: its sizes, how its operands lie in memory, what is in them, and why."""

    name: str
    reason: str
    sizes: tuple[int, int, int]
    #: Index into CONFIGS; None leaves the choice to the launcher, which only a GPU can always make.
    row: int | None
    #: Leading dimensions longer than the matrix needs.
    padded: bool = False
    #: Operands that start one element past an aligned address.
    unaligned: bool = False
    #: Infinity and NaN among the inputs.
    special: bool = False
    #: The operand, of a, b and c, whose offsets pass 2**31 elements.
    huge: str = ""
    #: The type of the epilogue's vectors and matrices, and of a scalar that is a tensor.
    operand_type: str = "fp32"
    scalar_tensor: bool = False
    #: That tensor lies on the CPU, wherever the operands are.
    scalar_elsewhere: bool = False
    #: A dimension of one element has a stride that nothing steps by.
    odd_single: bool = False
    #: a is larger by this power of two, and b smaller.
    shift: int = 0
    #: Operands of no fixed layout lie column after column, with gaps along both dimensions, or row after row.
    strided: str = "row"
    #: Whether the result goes into a tensor of the caller's; if not, the launcher makes one.
    given_out: bool = True
    #: Matrices of a batch, the operand whose matrices are all one, the operand whose offsets pass 2**31 elements from
    #: matrix to matrix, and whether matrices lie between each other's lines; of no meaning where there is no batch.
    batch: int = 2
    repeated: str = ""
    apart: str = ""
    interleaved: bool = False
    #: Run twice on a GPU, and the two compared bit for bit.
    repeat: bool = False


@dataclass(frozen=True)
class Fit:
    """Rounds the sizes of a case to what one row of a kernel's table can take."""

    variant: Variant
    tile: Tile

    @property
    def unit(self) -> tuple[int, int, int]:
        """What stands for a tile: its sizes, or a few elements where one program computes one."""
        return (2, 2, 2) if not self.variant.traits.tiled else (self.tile.m, self.tile.n, self.tile.k)

    @property
    def primes(self) -> tuple[int, int, int]:
        """Sizes that are primes, each below a tile."""
        if not self.variant.traits.tiled:
            return 3, 5, 2
        return _prime(self.tile.m), _prime(self.tile.n), _prime(self.tile.k)

    def __call__(self, m: int, n: int, k: int) -> tuple[int, int, int]:
        """The nearest legal sizes that are not smaller, except for K where it is bounded."""
        ragged = legality.ragged(self.variant.masking)
        if not self.variant.traits.tiled:
            return m, n, k
        if not self.variant.traits.looped:
            k = min(k, self.tile.k)
        m, n, k = (
            size if ragged[dimension] is not False else -(-size // block) * block
            for dimension, size, block in zip("mnk", (m, n, k), self.unit, strict=True)
        )
        step, read = written_step(self.variant), read_step(self.variant)
        if self.variant.layout.c == "column":
            return -(-m // step) * step, -(-n // read) * read, k
        step = max(step, read)
        return m, -(-n // step) * step, k


def written_step(variant: Variant) -> int:
    """What the inner extent of C must be a multiple of: 16 bytes where the hardware copies it, else one element."""
    if variant.load != "descriptor" or variant.store != "as_load":
        return 1
    return 16 * 8 // ELEMENTS[variant.dtype.out].bits


def read_step(variant: Variant) -> int:
    """What N must be a multiple of: 16 bytes where the hardware reads the second half of B's rows, else one element."""
    if variant.load != "descriptor" or variant.epilogue.order != CONCATENATED or variant.layout.b != "row":
        return 1
    return 16 * 8 // ELEMENTS[variant.dtype.b].bits


def addressed(variant: Variant) -> bool:
    """Whether operands are copied by the hardware, which wants them aligned."""
    return variant.load == "descriptor"


def leading_extents(variant: Variant, case: Case) -> tuple[int, ...]:
    """The extents in front of a matrix's own: how many matrices a batch has, nothing where there is none."""
    return () if variant.batch == "none" else (case.batch,)


def cases(kernel: Kernel, *, hardware: bool) -> tuple[Case, ...]:
    """Every case of `kernel`: the full list on its smallest row, a ragged and an aligned one on each other row.

    The interpreter knows nothing of warps and stages: of rows that differ in these alone it runs one.
    """
    smallest = smallest_row(kernel)
    found = list(distinct(_full(kernel, smallest, hardware=hardware)))
    seen = {_interpreted(kernel.tiles[smallest])}
    for row, tile in enumerate(kernel.tiles):
        if row != smallest and (hardware or _interpreted(tile) not in seen):
            found += distinct(_other(Fit(kernel.variant, tile), row))
        seen.add(_interpreted(tile))
    return tuple(found)


def _interpreted(tile: Tile) -> tuple[int, ...]:
    """What the interpreter sees of a row."""
    return tile.m, tile.n, tile.k, tile.group, tile.split, tile.chiplets


def smallest_row(kernel: Kernel) -> int:
    """The index of the row whose tiles cost the interpreter least."""
    return min(
        range(len(kernel.tiles)), key=lambda row: (kernel.tiles[row].m * kernel.tiles[row].n, kernel.tiles[row].k)
    )


def distinct(found: Iterator[Case]) -> Iterator[Case]:
    """Without the cases that are equal to one before but for their names, as rounding makes them."""
    seen = set()
    for case in found:
        essence = replace(case, name="", reason="")
        if essence not in seen:
            seen.add(essence)
            yield case


def _full(kernel: Kernel, row: int, *, hardware: bool) -> Iterator[Case]:
    fit = Fit(kernel.variant, kernel.tiles[row])
    yield from _sizes(fit, row)
    yield from _layouts(fit, row)
    yield from _orders(fit, row)
    yield from _contents(fit, row)
    yield from _large(fit, row)
    if kernel.variant.batch == "strided":
        yield from _batches(fit, row)
    if hardware or kernel.select != "autotune":
        deepest = max(kernel.tiles, key=lambda tile: tile.k) if not kernel.variant.traits.looped else fit.tile
        fit = Fit(kernel.variant, deepest)
        m, n, k = fit.unit
        small = fit(m + 1, n + 1, 2 * k + 1)
        yield Case("plain", "the call that a user writes: no config, no out", small, None, given_out=False, repeat=True)
    if hardware and any(operand.shape == SCALAR for operand in kernel.variant.epilogue.operands):
        reason = "a scalar as a tensor on the CPU"
        yield Case("scalar-elsewhere", reason, fit(*fit.primes), row, scalar_tensor=True, scalar_elsewhere=True)


def _sizes(fit: Fit, row: int) -> Iterator[Case]:
    m, n, k = fit.unit

    def case(name: str, reason: str, *sizes: int, repeat: bool = False) -> Case:
        return Case(name, reason, fit(*sizes), row, repeat=repeat)

    yield case("empty-m", "M = 0: nothing to compute, nothing to launch", 0, n, k)
    yield case("empty-n", "N = 0: nothing to compute, nothing to launch", m, 0, k)
    yield case("empty-k", "K = 0: the epilogue of 0", *fit.primes[:2], 0)
    one = case("one", "1 x 1 x 1: all of a tile but one element is outside", 1, 1, 1)
    yield one
    if 1 in one.sizes:
        yield replace(one, name="single", reason="dimensions of 1, with strides that nothing steps by", odd_single=True)
    if not fit.variant.traits.tiled:
        yield case("primes", "no two dimensions alike", *fit.primes, repeat=True)
        yield case("long-k", "K much longer than M and N", 2, 3, 17)
        return
    yield case("aligned", "whole tiles, two along M and K: no mask is needed", 2 * m, n, 2 * k)
    yield case("past-tile", "one past a tile in every dimension", m + 1, n + 1, 2 * k + 1, repeat=True)
    if fit.variant.masking == "auto":
        # Each dimension has code of its own for whole tiles.
        yield case("past-m", "one past a tile along M alone", m + 1, n, k)
        yield case("past-n", "one past a tile along N alone", m, n + 1, k)
        yield case("past-k", "one past a tile along K alone", m, n, k + 1)
    yield case("primes", "primes below a tile, K too", *fit.primes)
    if fit.variant.traits.walks_steps:
        yield case("shared", "one tile, of which every program has steps", m, n, 7 * k - 1)
        yield case(
            "handed-on", "five tiles of three steps: each end of the second program lies within one", 5 * m, n, 3 * k
        )
    if fit.variant.traits.splits:
        parts = fit.tile.split
        yield case("parts", "every part of K has two steps, the last of them a short one", m, n + 1, 2 * parts * k - 1)
        yield case("few-parts", "a step more than parts: two steps each, and none for the last", m, n, (parts + 1) * k)


def _layouts(fit: Fit, row: int) -> Iterator[Case]:
    sizes = fit(*fit.primes)
    base = Case("padded", "leading dimensions longer than the matrix needs", sizes, row, padded=True)
    yield base
    if not addressed(fit.variant):
        yield replace(
            base, name="unaligned", reason="views that start and step off every alignment", unaligned=True, padded=True
        )
    letters = (fit.variant.layout.a, fit.variant.layout.b, fit.variant.layout.c)
    if "strided" in letters:
        yield replace(base, name="strided-columns", reason="strided operands, column after column", strided="column")
        yield replace(base, name="strided-gaps", reason="no stride of a strided operand is 1", strided="gaps")
    yield replace(base, name="made-out", reason="the launcher makes the result's tensor", given_out=False, padded=False)


def _orders(fit: Fit, row: int) -> Iterator[Case]:
    m, n, k = fit.unit
    bands = fit.tile.group + 1
    k = min(k, 2)
    if not fit.variant.traits.tiled:
        return
    band = SWIZZLE[fit.variant.swizzle].band
    if band == "GROUP_M":
        reason = f"{bands} tile rows: a whole band of {bands - 1} and a band of one"
        yield Case("bands", reason, fit((bands - 1) * m + 1, n + 1, k), row)
    elif band == "GROUP_N":
        reason = f"{bands} tile columns: a whole band of {bands - 1} and a band of one"
        yield Case("bands", reason, fit(m + 1, (bands - 1) * n + 1, k), row)
    elif fit.variant.swizzle == "hilbert":
        reason = "5 by 7 tiles, which a Hilbert curve cuts in every way that it has"
        yield Case("curve", reason, fit(4 * m + 1, 6 * n + 1, k), row)
    else:
        yield Case("grid", "more tiles along N than along M", fit(m + 1, 2 * n + 1, k), row)


#: The products stay as they are; what is 2**-40 is 0 in fp16.
_SHIFT = 40


def _contents(fit: Fit, row: int) -> Iterator[Case]:
    sizes = fit(*fit.primes)
    if fit.variant.dtype.a in ("bf16", "fp32"):
        yield Case("range", "numbers past the range of fp16, and below it", sizes, row, shift=_SHIFT)
    if ELEMENTS[fit.variant.dtype.a].floating:
        yield Case("special", "infinity and NaN go through as arithmetic has it", sizes, row, special=True)
    shapes = {operand.shape for operand in fit.variant.epilogue.operands}
    if shapes:
        for word in ("fp64", "bf16", "fp16"):
            tensor = word != "fp16"
            reason = f"the epilogue's operands in {word}" + (", a scalar as a tensor of one element" * tensor)
            yield Case(f"operands-{word}", reason, sizes, row, operand_type=word, scalar_tensor=tensor)
    if SCALAR in shapes:
        yield Case("scalar-tensor", "a scalar as a tensor of one element", sizes, row, scalar_tensor=True)


def _matrices(variant: Variant) -> list[str]:
    """The matrices of the epilogue."""
    return [operand.name for operand in variant.epilogue.operands if operand.shape == MATRIX]


def _saved(variant: Variant) -> list[str]:
    """The matrices that are written beside C."""
    return [output.name for output in variant.epilogue.outputs if output.shape == MATRIX]


#: Few elements, but more than two lines, so that the stride is below 2**31 and only what it is multiplied to is not.
_HUGE_LINES = 3


def _large(fit: Fit, row: int) -> Iterator[Case]:
    sizes = fit(_HUGE_LINES, _HUGE_LINES, _HUGE_LINES)
    for name in ("a", "b", "c", *_matrices(fit.variant), *_saved(fit.variant)):
        yield Case(f"huge-{name}", f"offsets of {name} pass 2**31 elements", sizes, row, huge=name)


def _batches(fit: Fit, row: int) -> Iterator[Case]:
    several = Case("batch", "five matrices, each of one tile and a part of another", _batch_sizes(fit), row, batch=5)
    yield several
    yield replace(several, name="batch-empty", reason="B = 0: nothing to compute, nothing to launch", batch=0)
    yield replace(several, name="batch-one", reason="a batch of one", batch=1)
    between = replace(several, batch=3, interleaved=True)
    yield replace(between, name="batch-interleaved", reason="matrices lie between each other's lines")
    if not addressed(fit.variant):
        yield replace(
            between, name="batch-unaligned", reason="the same, off every alignment", padded=True, unaligned=True
        )
        for name in ("a", "b", *_matrices(fit.variant)):
            reason = f"{name} is one matrix for the whole batch"
            yield replace(several, name=f"batch-repeats-{name}", reason=reason, batch=3, repeated=name)
    few = fit(_HUGE_LINES, _HUGE_LINES, _HUGE_LINES)
    for name in ("a", "b", "c", *_matrices(fit.variant), *_saved(fit.variant)):
        reason = f"offsets of {name} pass 2**31 elements from matrix to matrix"
        yield Case(f"batch-huge-{name}", reason, few, row, batch=_HUGE_LINES, apart=name)


def _batch_sizes(fit: Fit) -> tuple[int, int, int]:
    m, n, k = fit.unit
    return fit(m + 1, n, k)


def _other(fit: Fit, row: int) -> Iterator[Case]:
    m, n, k = fit.unit
    ragged = fit(m + m // 2, n // 2, k + k // 2)
    label = f"row {row} of CONFIGS: "
    reason = f"{label}half a tile more along M and K, half a tile along N: multiples of smaller powers of two"
    yield Case(f"row{row}-ragged", reason, ragged, row)
    yield Case(f"row{row}-aligned", f"{label}one whole tile", fit(m, n, k), row)


def _prime(limit: int) -> int:
    """The largest prime below `limit`, which is at least 3."""
    return next(p for p in range(limit - 1, 1, -1) if all(p % d for d in range(2, p)))
