"""The sizes a kernel is run with, derived from its tiles, each with the reason for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from generator.epilogue.gated_units import CONCATENATED
from generator.epilogue.operations import MATRIX, SCALAR
from generator.language.model import Tile, Variant
from generator.language.vocabulary import ELEMENTS, SWIZZLE
from generator.plan import variant_rules
from generator.plan.kernels import Kernel


@dataclass(frozen=True)
class Case:
    """One call of a kernel: its sizes (M, N, K), its operands' layouts and values, and the reason for it."""

    name: str
    reason: str
    sizes: tuple[int, int, int]
    #: Index into CONFIGS; None leaves the choice to the launcher, which may need a GPU for it (autotuning).
    row: int | None
    #: Leading dimensions longer than the matrix needs.
    padded: bool = False
    #: Operands that start one element past an aligned address.
    unaligned: bool = False
    #: Infinity and NaN among the inputs.
    special: bool = False
    #: The operand whose offsets exceed 2**31 elements.
    huge: str = ""
    #: The type of the epilogue's vectors and matrices, and of a scalar that is a tensor.
    operand_type: str = "fp32"
    scalar_tensor: bool = False
    #: That tensor is on the CPU, whatever the device of the operands.
    scalar_elsewhere: bool = False
    #: A dimension of one element has an arbitrary stride.
    odd_single: bool = False
    #: a is scaled by two to this power, and b by two to its negative.
    shift: int = 0
    #: Scales of b that are powers of two begin at the least one, and a is larger.
    least: bool = False
    #: Layout of the operands whose layout is `strided`: "row", "column", or "gaps" along both dimensions.
    strided: str = "row"
    #: Whether the caller supplies the result's tensor; if not, the launcher allocates it.
    given_out: bool = True
    #: The number of matrices in a batch, the operand with one matrix for the whole batch, the operand whose batch
    #: stride makes offsets exceed 2**31 elements, and whether lines of the matrices are interleaved. Only for a batch.
    batch: int = 2
    repeated: str = ""
    apart: str = ""
    interleaved: bool = False
    #: The ends of groups, as `offsets` has them; None for a group of a third of all, one of none, and one of the rest.
    ends: tuple[int, ...] | None = None
    #: Whether the rows of A are named, of which it then has a few more. Only for groups of rows.
    named: bool = False
    #: On a GPU the case runs twice, and the results are compared bit for bit.
    repeat: bool = False

    def offsets(self, total: int) -> tuple[int, ...]:
        """The ends of the groups that an extent of `total` is divided into."""
        return (total // 3, total // 3, total) if self.ends is None else self.ends


@dataclass(frozen=True)
class Fit:
    """Rounds the sizes of a case to sizes that one configuration supports."""

    variant: Variant
    tile: Tile

    @property
    def unit(self) -> tuple[int, int, int]:
        """The sizes of a tile (M, N, K); a few elements if one program computes one element."""
        return (2, 2, 2) if not self.variant.traits.tiled else (self.tile.m, self.tile.n, self.tile.k)

    @property
    def primes(self) -> tuple[int, int, int]:
        """Prime sizes (M, N, K), each smaller than a tile."""
        if not self.variant.traits.tiled:
            return 3, 5, 2
        return _prime(self.tile.m), _prime(self.tile.n), _prime(self.tile.k)

    def __call__(self, m: int, n: int, k: int) -> tuple[int, int, int]:
        """The nearest supported sizes that are not smaller; K is limited where one tile must hold it."""
        ragged = variant_rules.ragged(self.variant.masking)
        together = self.variant.dtype.together
        k = -(-k // together) * together
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
    """The inner extent of C must be a multiple of this many elements: 16 bytes if the hardware copies it, else 1."""
    if variant.load != "descriptor" or variant.store != "as_load":
        return 1
    return 16 * 8 // ELEMENTS[variant.dtype.out].bits


def read_step(variant: Variant) -> int:
    """N must be a multiple of this many elements: 16 bytes if descriptors read the second half of B's rows, else 1."""
    if variant.load != "descriptor" or variant.epilogue.order != CONCATENATED or variant.layout.b != "row":
        return 1
    return 16 * 8 // variant.multiplied.dtype.stored_b.bits


def addressed(variant: Variant) -> bool:
    """Whether tensor descriptors copy the operands, which must then be aligned to 16 bytes."""
    return variant.load == "descriptor"


#: How many rows A has besides those that the products have, where rows are named.
_MORE_ROWS = 3


def sizes_of(variant: Variant, case: Case) -> Mapping[str, int]:
    """The sizes of a call by name: B, M, N and K; of groups also their number G, and T, the extent that they divide."""
    found = dict(zip("BMNK", (case.batch, *case.sizes), strict=True))
    divided = variant.products.divided
    if divided:
        found |= {"T": found[divided], "G": len(case.offsets(found[divided]))}
        found["R"] = found["T"] + _MORE_ROWS * case.named
    return found


def spans(ends: Iterable[int], total: int) -> list[tuple[int, int]]:
    """The first and the last but one element of each group: an end counts as between the one before it and `total`."""
    found, first = list[tuple[int, int]](), 0
    for end in ends:
        last = max(first, min(end, total))
        found.append((first, last))
        first = last
    return found


def leading_extents(variant: Variant, case: Case) -> tuple[int, ...]:
    """The extents in front of those of C: the number of matrices where there are several, or nothing."""
    products = variant.products
    return () if products.divided == "M" else tuple(sizes_of(variant, case)[size] for size in products.front)


def cases(kernel: Kernel, *, hardware: bool) -> tuple[Case, ...]:
    """Every case of `kernel`: the full list for its smallest configuration, two for each other configuration.

    The two are one with partial tiles and one with whole tiles. The interpreter ignores warps and stages: of
    configurations that differ in these alone it runs one.
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
    """The part of a configuration that changes what the interpreter does."""
    return tile.m, tile.n, tile.k, tile.group, tile.split, tile.chiplets


def smallest_row(kernel: Kernel) -> int:
    """The index of the configuration whose tiles cost the interpreter least."""
    return min(
        range(len(kernel.tiles)), key=lambda row: (kernel.tiles[row].m * kernel.tiles[row].n, kernel.tiles[row].k)
    )


def distinct(found: Iterator[Case]) -> Iterator[Case]:
    """Drop each case that differs from an earlier one in name and reason alone: rounding of sizes makes such cases."""
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
    if kernel.variant.products.divided:
        yield from _groups(fit, row, _MANY_GROUPS[hardware])
    if hardware or kernel.select != "autotune":
        deepest = max(kernel.tiles, key=lambda tile: tile.k) if not kernel.variant.traits.looped else fit.tile
        fit = Fit(kernel.variant, deepest)
        m, n, k = fit.unit
        small = fit(m + 1, n + 1, 2 * k + 1)
        yield Case("plain", "a plain call, without config and out", small, None, given_out=False, repeat=True)
    if hardware and any(operand.shape == SCALAR for operand in kernel.variant.epilogue.operands):
        reason = "a scalar is a tensor on the CPU"
        yield Case("scalar-elsewhere", reason, fit(*fit.primes), row, scalar_tensor=True, scalar_elsewhere=True)


def _sizes(fit: Fit, row: int) -> Iterator[Case]:
    m, n, k = fit.unit

    def case(name: str, reason: str, *sizes: int, repeat: bool = False) -> Case:
        return Case(name, reason, fit(*sizes), row, repeat=repeat)

    yield case("empty-m", "M = 0: nothing to compute, nothing to launch", 0, n, k)
    yield case("empty-n", "N = 0: nothing to compute, nothing to launch", m, 0, k)
    yield case("empty-k", "K = 0: the result is the epilogue of 0", *fit.primes[:2], 0)
    one = case("one", "1 x 1 x 1: all elements of a tile but one are masked", 1, 1, 1)
    yield one
    if 1 in one.sizes:
        yield replace(one, name="single", reason="dimensions of 1 with arbitrary strides", odd_single=True)
    if not fit.variant.traits.tiled:
        yield case("primes", "three different dimensions", *fit.primes, repeat=True)
        yield case("long-k", "K much longer than M and N", 2, 3, 17)
        return
    yield case("aligned", "whole tiles, two along M and K: no mask is needed", 2 * m, n, 2 * k)
    yield case("past-tile", "one element past a tile in every dimension", m + 1, n + 1, 2 * k + 1, repeat=True)
    if fit.variant.masking == "auto":
        # Each dimension has a branch of its own for whole tiles.
        yield case("past-m", "one element past a tile along M alone", m + 1, n, k)
        yield case("past-n", "one element past a tile along N alone", m, n + 1, k)
        yield case("past-k", "one element past a tile along K alone", m, n, k + 1)
    yield case("primes", "prime sizes smaller than a tile, K too", *fit.primes)
    if fit.variant.dtype.scaled:
        yield case("blocks", "two whole blocks of scales and a part of another in every dimension", *_blocks(fit))
    if fit.variant.traits.walks_steps:
        yield case("shared", "one tile, and every program computes some of its steps along K", m, n, 7 * k - 1)
        yield case(
            "handed-on", "five tiles of three steps: the second program starts and ends inside a tile", 5 * m, n, 3 * k
        )
    if fit.variant.traits.splits:
        parts = fit.tile.split
        yield case("parts", "every part of K has two steps, and the last step is partial", m, n + 1, 2 * parts * k - 1)
        yield case("few-parts", "one step more than parts: two steps each, none for the last", m, n, (parts + 1) * k)


#: Blocks of more elements are not run: the interpreter would take too long, and smaller sizes end inside one, too.
_LARGEST_BLOCK = 256


def _blocks(fit: Fit) -> tuple[int, int, int]:
    """Sizes (M, N, K) with several blocks of scales, or of a few tiles where there is one block."""
    m, n, k = (size + 1 for size in fit.unit)
    for storage in fit.variant.dtype.stored:
        if storage.block is not None:
            across = 2 * storage.block.across + 1 if storage.block.across <= _LARGEST_BLOCK else 0
            m, n = (max(m, across), n) if storage.letter == "a" else (m, max(n, across))
            k = max(k, 2 * storage.block.along + 1 if storage.block.along <= _LARGEST_BLOCK else 0)
    return m, n, k


def _layouts(fit: Fit, row: int) -> Iterator[Case]:
    sizes = fit(*fit.primes)
    base = Case("padded", "leading dimensions longer than the matrix needs", sizes, row, padded=True)
    yield base
    if not addressed(fit.variant):
        yield replace(
            base, name="unaligned", reason="addresses and strides without any alignment", unaligned=True, padded=True
        )
    letters = (fit.variant.layout.a, fit.variant.layout.b, fit.variant.layout.c)
    if "strided" in letters or fit.variant.dtype.scaled or fit.variant.dtype.sparse:
        yield replace(base, name="strided-columns", reason="strided operands are column-major", strided="column")
        yield replace(base, name="strided-gaps", reason="no stride of a strided operand is 1", strided="gaps")
    reason = "the launcher allocates the result's tensor"
    yield replace(base, name="made-out", reason=reason, given_out=False, padded=False)


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
        reason = "5 by 7 tiles, which a Hilbert curve divides in every way that it can"
        yield Case("curve", reason, fit(4 * m + 1, 6 * n + 1, k), row)
    else:
        yield Case("grid", "more tiles along N than along M", fit(m + 1, 2 * n + 1, k), row)


#: The products are unchanged, but 2**-40 is 0 in fp16.
_SHIFT = 40


def _contents(fit: Fit, row: int) -> Iterator[Case]:
    sizes = fit(*fit.primes)
    multiplied = fit.variant.dtype.stored_a
    b = fit.variant.dtype.stored_b
    if multiplied.word in ("bf16", "fp32") and (not b.converted or b.block is not None or b.sparse):
        yield Case("range", "numbers above and below the range of fp16", sizes, row, shift=_SHIFT)
    if b.scale_types[0] == "e8m0" and multiplied.word != "fp16":
        yield Case("least", "scales of b down to 2**-127, the byte 0", sizes, row, least=True)
    if multiplied.element.floating:
        yield Case("special", "infinity and NaN propagate as in IEEE arithmetic", sizes, row, special=True)
    shapes = {operand.shape for operand in fit.variant.epilogue.operands}
    if shapes or fit.variant.dtype.scaled:
        for word in ("fp64", "bf16", "fp16"):
            tensor = word != "fp16"
            whose = "the epilogue's operands" if shapes else "scales"
            reason = f"{whose} are {word}" + (", a scalar is a tensor of one element" * tensor)
            yield Case(f"operands-{word}", reason, sizes, row, operand_type=word, scalar_tensor=tensor)
    if SCALAR in shapes:
        yield Case("scalar-tensor", "a scalar is a tensor of one element", sizes, row, scalar_tensor=True)


def _matrices(variant: Variant) -> list[str]:
    """The names of the epilogue's operands that are matrices."""
    return [operand.name for operand in variant.epilogue.operands if operand.shape == MATRIX]


def _saved(variant: Variant) -> list[str]:
    """The names of the auxiliary outputs that are matrices."""
    return [output.name for output in variant.epilogue.outputs if output.shape == MATRIX]


#: Few elements, but more than two lines: the stride is below 2**31, and only its product with a line's index is not.
_HUGE_LINES = 3


def _large(fit: Fit, row: int) -> Iterator[Case]:
    sizes = fit(_HUGE_LINES, _HUGE_LINES, _HUGE_LINES * fit.variant.dtype.together)
    for storage in fit.variant.dtype.stored:
        if storage.block is not None and storage.block.across:
            reason = f"offsets of {storage.scale} exceed 2**31 elements"
            # Few blocks along K, but several rows or columns.
            m, n = (_HUGE_LINES * (storage.block.across if letter == storage.letter else 1) for letter in "ab")
            along = "row" if storage.letter == "a" else "column"
            yield Case(f"huge-{storage.scale}", reason, fit(m, n, 2), row, huge=storage.scale, strided=along)
    if fit.variant.dtype.sparse:
        reason = "offsets of b_index exceed 2**31 elements"
        yield Case("huge-b_index", reason, sizes, row, huge="b_index", strided="column")
    for name in ("a", "b", "c", *_matrices(fit.variant), *_saved(fit.variant)):
        yield Case(f"huge-{name}", f"offsets of {name} exceed 2**31 elements", sizes, row, huge=name)


def _batches(fit: Fit, row: int) -> Iterator[Case]:
    reason = "five matrices, each with one whole tile and a part of another"
    several = Case("batch", reason, _batch_sizes(fit), row, batch=5)
    yield several
    yield replace(several, name="batch-empty", reason="B = 0: nothing to compute, nothing to launch", batch=0)
    yield replace(several, name="batch-one", reason="a batch of one", batch=1)
    between = replace(several, batch=3, interleaved=True)
    yield replace(between, name="batch-interleaved", reason="lines of the matrices are interleaved")
    if not addressed(fit.variant):
        yield replace(
            between, name="batch-unaligned", reason="the same without any alignment", padded=True, unaligned=True
        )
        for name in ("a", "b", *_matrices(fit.variant)):
            reason = f"{name} is one matrix for the whole batch"
            yield replace(several, name=f"batch-repeats-{name}", reason=reason, batch=3, repeated=name)
    few = fit(_HUGE_LINES, _HUGE_LINES, _HUGE_LINES)
    for name in ("a", "b", "c", *_matrices(fit.variant), *_saved(fit.variant)):
        reason = f"the batch stride of {name} makes offsets exceed 2**31 elements"
        yield Case(f"batch-huge-{name}", reason, few, row, batch=_HUGE_LINES, apart=name)


#: More groups than one or two warps have lanes, some of them empty: as many on hardware, and few enough to interpret.
_MANY_GROUPS = {True: 512, False: 65}


def _groups(fit: Fit, row: int, many: int) -> Iterator[Case]:
    m, n, k = fit.unit
    by_rows = fit.variant.products.divided == "M"
    unit = m if by_rows else k
    total = 3 * unit + 4

    def case(name: str, reason: str, ends: tuple[int, ...]) -> Case:
        sizes = fit(total, n + 1, 3) if by_rows else fit(m + 1, n + 1, total)
        return Case(f"groups-{name}", reason, sizes, row, ends=ends)

    ragged = (unit, unit, unit + 1, 2 * unit + 2, total - 1)
    yield case("ragged", "a whole tile, nothing, one row, a tile and one row, a rest that ends before T", ragged)
    if by_rows and not addressed(fit.variant):
        named = replace(case("named", "rows of A are named, some twice, some outside it", ragged), named=True)
        yield named
        yield replace(named, name="groups-named-unaligned", padded=True, unaligned=True, strided="gaps")
        yield replace(named, name="groups-named-huge", reason="the same, far apart", huge="a")
    yield case("first-empty", "the first and the last groups have no rows", (0, 0, total - 3, total, total, total))
    yield case("one-has-all", "one group of several has all rows", (0, total, total))
    yield case("one", "a single group, which ends before T", (total - 2,))
    yield case("no-rows", "no group has rows: nothing is written", (0, 0))
    yield case("none", "G = 0: nothing to compute, nothing to launch", ())
    yield case("descending", "ends that descend, pass T and are negative", (5, 3, -1, 2 * unit, total + 7, 4))
    ends = tuple(total * (place + 1) // many for place in range(many))
    yield case("many", f"{many} groups, some of them without rows", ends)


def _batch_sizes(fit: Fit) -> tuple[int, int, int]:
    m, n, k = fit.unit
    return fit(m + 1, n, k)


def _other(fit: Fit, row: int) -> Iterator[Case]:
    m, n, k = fit.unit
    ragged = fit(m + m // 2, n // 2, k + k // 2)
    label = f"configuration {row}: "
    reason = f"{label}1.5 tiles along M and K, half a tile along N: multiples of smaller powers of two"
    yield Case(f"row{row}-ragged", reason, ragged, row)
    yield Case(f"row{row}-aligned", f"{label}one whole tile", fit(m, n, k), row)


def _prime(limit: int) -> int:
    """The largest prime below `limit`, which is at least 3."""
    return next(p for p in range(limit - 1, 1, -1) if all(p % d for d in range(2, p)))
