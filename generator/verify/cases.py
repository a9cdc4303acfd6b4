"""The calls a kernel is run with, their sizes derived from its tiles, each with the reason for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from generator.epilogue.operations import MATRIX, SCALAR
from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant
from generator.language.vocabulary import SWIZZLE
from generator.plan import variant_rules
from generator.plan.kernels import Kernel
from generator.verify.case_sizes import Case, Fit


def cases(kernel: Kernel, *, hardware: bool) -> tuple[Case, ...]:
    """Every case of `kernel`: the full list for its smallest configuration, two for each other configuration.

    The two are one with partial tiles and one with whole tiles. The interpreter ignores warps and stages: of
    configurations that differ in these alone it runs one. Hardware also runs each configuration on a full device.
    """
    smallest = smallest_row(kernel)
    cases_of = list(distinct(_full(kernel, smallest, hardware=hardware)))
    seen = {_interpreted(kernel.tiles[smallest])}
    for row, tile in enumerate(kernel.tiles):
        if row != smallest and (hardware or _interpreted(tile) not in seen):
            cases_of += distinct(_other(Fit(kernel.variant, tile, row)))
        seen.add(_interpreted(tile))
        cases_of += _overlapping(Fit(kernel.variant, tile, row)) if hardware else ()
    return tuple(cases_of)


def _interpreted(tile: Tile) -> tuple[int, ...]:
    """The part of a configuration that changes what the interpreter does."""
    return tile.m, tile.n, tile.k, tile.group, tile.split, tile.chiplets


def smallest_row(kernel: Kernel) -> int:
    """The index of the configuration whose tiles cost the interpreter least."""
    return min(
        range(len(kernel.tiles)), key=lambda row: (kernel.tiles[row].m * kernel.tiles[row].n, kernel.tiles[row].k)
    )


def distinct(given: Iterator[Case]) -> Iterator[Case]:
    """Drop each case that differs from an earlier one in name and reason alone: rounding of sizes makes such cases."""
    seen = set()
    for case in given:
        essence = case.but("", "")
        if essence not in seen:
            seen.add(essence)
            yield case


def _full(kernel: Kernel, row: int, *, hardware: bool) -> Iterator[Case]:
    fit = Fit(kernel.variant, kernel.tiles[row], row)
    for some in (_sizes, _layouts, _orders, _contents, _large):
        yield from some(fit)
    if kernel.variant.batch == "strided":
        yield from _batches(fit)
    if kernel.variant.products.divided:
        yield from _groups(fit, _MANY_GROUPS[hardware])
    if hardware or kernel.select != "autotune":
        if not kernel.variant.traits.looped:
            fit = replace(fit, tile=max(kernel.tiles, key=lambda tile: tile.k))
        m, n, k = fit.unit
        plain = fit.case("plain", "a plain call, without config and out", m + 1, n + 1, 2 * k + 1)
        yield replace(plain, row=None, given_out=False, repeat=True)
    if hardware and any(operand.shape == SCALAR for operand in kernel.variant.epilogue.operands):
        reason = "a scalar is a tensor on the CPU"
        yield fit.case("scalar-elsewhere", reason, *fit.primes, scalar_tensor=True, scalar_elsewhere=True)


def _sizes(fit: Fit) -> Iterator[Case]:
    (m, n, k), case = fit.unit, fit.case
    yield case("empty-m", "M = 0: nothing to compute, nothing to launch", 0, n, k)
    yield case("empty-n", "N = 0: nothing to compute, nothing to launch", m, 0, k)
    yield case("empty-k", "K = 0: the result is the epilogue of 0", *fit.primes[:2], 0)
    one = case("one", "1 x 1 x 1: all elements of a tile but one are masked", 1, 1, 1)
    yield one
    if 1 in one.sizes:
        yield one.but("single", "dimensions of 1 with arbitrary strides", odd_single=True)
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


#: Tile columns of which two rows fill the multiprocessors of a large GPU, as tiles of a triangle with so many on a side
#: do, and steps of which all but few run alike.
_WIDE, _SIDE, _STEPS = 66, 16, 38


def _overlapping(fit: Fit) -> Iterator[Case]:
    """A call whose programs all run at once, for so long that copies, conversions and products of steps overlap."""
    v, (m, n, k) = fit.variant, fit.unit
    if not (v.traits.tiled and v.traits.looped) or v.products.divided or v.batch != "none":
        return
    parts = fit.tile.split if v.traits.splits else 1
    steps = max(_STEPS, parts * _STEPS // 4)
    reason = "a tile for each multiprocessor, and many steps along K, which overlap"
    sizes = (_SIDE * n - n // 2,) * 2 if v.symmetric else (m + m // 2, _WIDE * n)
    yield fit.case(f"row{fit.row}-overlapping", f"configuration {fit.row}: {reason}", *sizes, steps * k)


def _layouts(fit: Fit) -> Iterator[Case]:
    base = fit.case("padded", "leading dimensions longer than the matrix needs", *fit.primes, padded=True)
    yield base
    if not fit.variant.loading.descriptors:
        yield base.but("unaligned", "addresses and strides without any alignment", unaligned=True, padded=True)
    letters = (fit.variant.layout.a, fit.variant.layout.b, fit.variant.layout.c)
    if "strided" in letters or fit.variant.dtype.scaled or fit.variant.dtype.sparse:
        yield base.but("strided-columns", "strided operands are column-major", strided="column")
        yield base.but("strided-gaps", "no stride of a strided operand is 1", strided="gaps")
    yield base.but("made-out", "the launcher allocates the result's tensor", given_out=False, padded=False)


def _orders(fit: Fit) -> Iterator[Case]:
    m, n, k = fit.unit
    # A symmetric result has half as many rows of tiles, once it is folded to a rectangle.
    bands = (2 if fit.variant.symmetric else 1) * (fit.tile.group + 1)
    k = min(k, 2)
    if not fit.variant.traits.tiled:
        return
    band = SWIZZLE[fit.variant.swizzle].band
    if band == "GROUP_M":
        reason = f"{bands} tile rows: a whole band of {bands - 1} and a band of one"
        yield fit.case("bands", reason, (bands - 1) * m + 1, n + 1, k)
    elif band == "GROUP_N":
        reason = f"{bands} tile columns: a whole band of {bands - 1} and a band of one"
        yield fit.case("bands", reason, m + 1, (bands - 1) * n + 1, k)
    elif fit.variant.swizzle == "hilbert":
        reason = "5 by 7 tiles, which a Hilbert curve divides in every way that it can"
        yield fit.case("curve", reason, 4 * m + 1, 6 * n + 1, k)
    else:
        yield fit.case("grid", "more tiles along N than along M", m + 1, 2 * n + 1, k)


#: The products are unchanged, but 2**-40 is 0 in fp16.
_SHIFT = 40


def _contents(fit: Fit) -> Iterator[Case]:
    primes = fit.case("", "", *fit.primes)
    multiplied = fit.variant.dtype.stored_a
    b = fit.variant.dtype.stored_b
    if multiplied.element.most > ELEMENTS["fp16"].most and (not b.converted or b.block is not None or b.sparse):
        yield primes.but("range", "numbers above and below the range of fp16", shift=_SHIFT)
    if ELEMENTS[b.scale_types[0]].powers and multiplied.word != "fp16":
        yield primes.but("least", "scales of b down to 2**-127, the byte 0", least=True)
    if multiplied.element.floating:
        yield primes.but("special", "infinity and NaN propagate as in IEEE arithmetic", special=True)
    shapes = {operand.shape for operand in fit.variant.epilogue.operands}
    if shapes or fit.variant.dtype.scaled:
        for word in ("fp64", "bf16", "fp16", *["uint8"] * bool(shapes)):
            tensor = word in ("fp64", "bf16")
            whose = "the epilogue's operands" if shapes else "scales"
            reason = f"{whose} are {word}" + (", a scalar is a tensor of one element" * tensor)
            yield primes.but(f"operands-{word}", reason, operand_type=word, scalar_tensor=tensor)
    if fit.variant.epilogue.beta:
        yield primes.but("beta-zero", "beta is 0, and C, which is not read, has infinity and NaN", beta_zero=True)
    if SCALAR in shapes:
        yield primes.but("scalar-tensor", "a scalar is a tensor of one element", scalar_tensor=True)


def _matrices(variant: Variant, *, written: bool) -> list[str]:
    """The names of the epilogue's operands that are matrices, and with `written` of auxiliary outputs that are."""
    read = [operand.name for operand in variant.epilogue.operands if operand.shape == MATRIX]
    return [*read, *(output.name for output in variant.epilogue.outputs if written and not output.reduced)]


#: Few elements, but more than two lines: the stride is below 2**31, and only its product with a line's index is not.
_HUGE_LINES = 3


def _large(fit: Fit) -> Iterator[Case]:
    few = fit.case("", "", _HUGE_LINES, _HUGE_LINES, _HUGE_LINES * fit.variant.dtype.together)
    for storage in fit.variant.dtype.stored:
        if storage.block is not None and storage.block.across:
            reason = f"offsets of {storage.scale} exceed 2**31 elements"
            # Few blocks along K, but several rows or columns.
            m, n = (_HUGE_LINES * (storage.block.across if letter == storage.letter else 1) for letter in "ab")
            along = "row" if storage.letter == "a" else "column"
            yield fit.case(f"huge-{storage.scale}", reason, m, n, 2, huge=storage.scale, strided=along)
    if fit.variant.dtype.sparse:
        reason = "offsets of b_index exceed 2**31 elements"
        yield few.but("huge-b_index", reason, huge="b_index", strided="column")
    for name in ("a", "b", "c", *_matrices(fit.variant, written=True)):
        yield few.but(f"huge-{name}", f"offsets of {name} exceed 2**31 elements", huge=name)


def _batches(fit: Fit) -> Iterator[Case]:
    reason = "five matrices, each with one whole tile and a part of another"
    m, n, k = fit.unit
    several = fit.case("batch", reason, m + 1, n, k, batch=5)
    yield several
    yield several.but("batch-empty", "B = 0: nothing to compute, nothing to launch", batch=0)
    yield several.but("batch-one", "a batch of one", batch=1)
    between = replace(several, batch=3, interleaved=True)
    yield between.but("batch-interleaved", "lines of the matrices are interleaved")
    if not fit.variant.loading.descriptors:
        yield between.but("batch-unaligned", "the same without any alignment", padded=True, unaligned=True)
        for name in ("a", "b", *_matrices(fit.variant, written=False)):
            reason = f"{name} is one matrix for the whole batch"
            yield several.but(f"batch-repeats-{name}", reason, batch=3, repeated=name)
    few = fit.case("", "", _HUGE_LINES, _HUGE_LINES, _HUGE_LINES, batch=_HUGE_LINES)
    for name in ("a", "b", "c", *_matrices(fit.variant, written=True)):
        reason = f"the batch stride of {name} makes offsets exceed 2**31 elements"
        yield few.but(f"batch-huge-{name}", reason, apart=name)


#: More groups than one or two warps have lanes, some of them empty: as many on hardware, and few enough to interpret.
_MANY_GROUPS = {True: 512, False: 65}


def _groups(fit: Fit, many: int) -> Iterator[Case]:
    m, n, k = fit.unit
    by_rows = fit.variant.products.divided == "M"
    unit = m if by_rows else k
    total = 3 * unit + 4

    def case(name: str, reason: str, ends: tuple[int, ...], **rest: Any) -> Case:
        sizes = (total, n + 1, 3) if by_rows else (m + 1, n + 1, total)
        return fit.case(f"groups-{name}", reason, *sizes, ends=ends, **rest)

    loose: dict[str, Any] = {"named": True, "padded": True, "unaligned": True, "strided": "gaps"}
    ragged = (unit, unit, unit + 1, 2 * unit + 2, total - 1)
    yield case("ragged", "a whole tile, nothing, one row, a tile and one row, a rest that ends before T", ragged)
    if by_rows and not fit.variant.loading.descriptors:
        reason = "rows of A are named, some twice, some outside it"
        yield case("named", reason, ragged, named=True)
        yield case("named-unaligned", reason, ragged, **loose)
        yield case("named-huge", "the same, far apart", ragged, named=True, huge="a")
    if by_rows:
        reason = "rows of C are named, some outside it, and some of its rows are not"
        yield case("scattered", reason, ragged, scattered=True)
        yield case("scattered-huge", "the same, far apart", ragged, scattered=True, huge="c")
        if not fit.variant.loading.descriptors:
            reason = "rows of A and C are named, without alignment"
            yield case("scattered-unaligned", reason, ragged, scattered=True, **loose)
    yield case("first-empty", "the first and the last groups have no rows", (0, 0, total - 3, total, total, total))
    yield case("one-has-all", "one group of several has all rows", (0, total, total))
    yield case("one", "a single group, which ends before T", (total - 2,))
    yield case("no-rows", "no group has rows: nothing is written", (0, 0))
    yield case("none", "G = 0: nothing to compute, nothing to launch", ())
    yield case("descending", "ends that descend, pass T and are negative", (5, 3, -1, 2 * unit, total + 7, 4))
    ends = tuple(total * (index + 1) // many for index in range(many))
    yield case("many", f"{many} groups, some of them without rows", ends)


def _other(fit: Fit) -> Iterator[Case]:
    m, n, k = fit.unit
    label = f"configuration {fit.row}: "
    reason = f"{label}1.5 tiles along M and K, half a tile along N: multiples of smaller powers of two"
    yield fit.case(f"row{fit.row}-ragged", reason, m + m // 2, n // 2, k + k // 2)
    yield fit.case(f"row{fit.row}-aligned", f"{label}one whole tile", m, n, k)


#: Sizes (M, N, K) at which operands that descriptors cannot address are copied; no size is a multiple of 16.
_COPIED = (401, 403, 203)


def contract_cases(kernels: Sequence[Kernel], *, hardware: bool) -> Iterator[tuple[Kernel, Case]]:
    """Calls of one contract's function, each with a kernel of the contract that supports it.

    On hardware the function caches its launches by call signature, so that each call is made again.
    """
    for kernel, case in _of_function(kernels, hardware):
        yield kernel, case
        if hardware:
            yield (
                kernel,
                case.but(
                    f"{case.name}-again", "a call with the same signature as the one before, which reuses its launch"
                ),
            )


def _of_function(kernels: Sequence[Kernel], hardware: bool) -> Iterator[tuple[Kernel, Case]]:
    largest = max(kernels, key=lambda kernel: kernel.variant.traits.looped)
    tiles = [tile for kernel in kernels for tile in kernel.tiles if kernel.variant.schedule == largest.variant.schedule]
    sizes = (max(t.m for t in tiles), max(t.n for t in tiles), max(t.k for t in tiles))
    if not largest.variant.traits.tiled:
        sizes = Fit(largest.variant, tiles[0]).primes
    reason = "whole tiles of every kernel, which every kernel supports"
    yield largest, Case("aligned", reason, sizes, None, given_out=False)
    anything = [
        kernel
        for kernel in kernels
        if False not in variant_rules.ragged(kernel.variant.masking).values() and not kernel.variant.loading.descriptors
    ]
    if anything:
        yield from ((anything[0], case) for case in _fallbacks(anything[0], sizes, hardware))


def _fallbacks(kernel: Kernel, sizes: tuple[int, int, int], hardware: bool) -> Iterator[Case]:
    """Calls that only some kernels of the contract support, such as `kernel`, behind a call of `sizes`."""
    if hardware:
        reason = "the sizes of the call before at other addresses, for which its cached launch is not compiled"
        yield Case("unaligned", reason, sizes, None, unaligned=True, given_out=False)
    fit = Fit(kernel.variant, kernel.tiles[smallest_row(kernel)])
    reason = "sizes and addresses that only some kernels of the contract support"
    fallback = fit.case("fallback", reason, *fit.primes, padded=True, unaligned=True)
    yield fallback
    if kernel.variant.batch == "strided":
        reason = "one matrix for the whole batch, which only some kernels of the contract support"
        yield Case("fallback-repeats", reason, sizes, None, repeated="b")
    if hardware and kernel.variant.traits.tiled:
        m, n, k = fallback.sizes
        plain = fit.case("row", "A is a vector, which matches two layouts", 1, n, k, given_out=False)
        yield plain
        yield plain.but("column", "B is a vector, likewise", sizes=fit(m, 1, k))
        reason = "operands that descriptors cannot address, and whose elements enter many products"
        yield plain.but("copied", reason, sizes=fit(*_COPIED), padded=True, unaligned=True)
