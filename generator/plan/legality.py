"""The legality table: which variants, targets and configurations cannot exist, each rule with its reason.

The expansion, the renderer, the harness and the documentation all use this module; no template and no test has rules of
its own. Those of variants are in `variant_rules`. Users read the reasons in `--list`, in error messages and in
manifests.
"""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from generator.language.model import NARROWEST, Tile, Variant
from generator.language.targets import TARGETS
from generator.language.versions import minor_versions, spelled
from generator.language.vocabulary import SPLIT_K, schedule_of_blocks
from generator.plan.resources import (
    MATRIX_ROWS,
    SCALED_ROWS,
    SHORTEST_COPY,
    TENSOR_MEMORY,
    copies_too_little,
    heights,
    largest_tensor,
    matrix_instruction,
    matrix_rows,
    registers,
    registers_of_operands,
    registers_of_sums,
    shallowest,
    tensor_memory,
    widths,
)
from generator.plan.shared_memory import shared_memory
from generator.plan.target_rules import TARGET_RULES
from generator.plan.variant_rules import VARIANT_RULES, WITH_ROWS, first_reason, rows_of_any_number

#: How far past K an index along K may go: launchers refuse a K that is not so far below 2**31.
_BEYOND_K = 2**16
_HEURISTIC = "use 'select: heuristic'"


def _axes_without_effect(v: Variant) -> tuple[str, ...]:
    """The axes whose value makes no difference in `v`."""
    # `rounding` makes none where nothing is rounded between the product and the store.
    same = ("rounding",) if v.epilogue.rounded(v.dtype.sum, v.dtype.out) == v.epilogue else ()
    if not v.traits.tiled:
        return (*same, "masking", "swizzle", "store", "product")
    if v.loading.descriptors:
        return (*same, "masking")
    return (*same, "store") if v.loading.pointers else same


def why_not(v: Variant) -> str | None:
    """Why no target can run `v`, or None."""
    return first_reason(VARIANT_RULES, v)


def why_not_selected(v: Variant, select: str, *, rows_alike: bool = False) -> str | None:
    """Why `select` cannot choose a configuration of `v`, or None; with `rows_alike`, whatever M is."""
    if v.products.divided and select == "autotune":
        return f"autotune is not made for groups, whose sizes only the device knows; {_HEURISTIC}"
    if rows_alike:
        if select == "autotune":
            return f"the autotuner's choice is keyed on M; {_HEURISTIC} or 'table' {WITH_ROWS}"
        return next(rows_of_any_number(v), None)
    if select != "autotune":
        return None
    if v.traits.twice:
        return f"the autotuner times one launch, and {v.schedule} has two; {_HEURISTIC} or 'table'"
    if v.epilogue.reads_out:
        return f"the autotuner repeats a kernel, and accumulate would read what the run before wrote; {_HEURISTIC}"
    name = next((output.name for output in v.epilogue.outputs if output.reduced), None)
    if name is not None:
        return f"the workspace of {name} is allocated before the autotuner chooses a tile; {_HEURISTIC}"
    return None


def why_not_on(v: Variant, target: str) -> str | None:
    """Why `target` cannot run `v`, or None."""
    return first_reason(TARGET_RULES, v, target)


def effective_words(v: Variant) -> tuple[str, ...]:
    """The words of the axes that make a difference in `v`: variants with equal words here are the same kernel."""
    without_effect = _axes_without_effect(v)
    return tuple(word for axis, word in v.words.items() if axis not in without_effect)


def versions(v: Variant) -> SpecifierSet:
    """The Triton versions that can compile `v`."""
    return SpecifierSet("<3.9") if v.loading.blocks else SpecifierSet()


def why_no_version(v: Variant, allowed: SpecifierSet) -> str | None:
    """Why no Triton version in `allowed` can compile `v`, or None."""
    if minor_versions(allowed & versions(v)):
        return None
    return f"{v.load} needs Triton {versions(v)}, and the spec allows {spelled(allowed)}"


def why_no_row(v: Variant, tile: Tile) -> str | None:
    """Why no target can run `v` with the configuration `tile`, or None."""
    if not v.traits.tiled:
        return None
    if reason := _no_blocks(v, tile):
        return reason
    m, n = (" + ".join(map(str, extents)) for extents in (heights(v, tile), widths(v, tile)))
    least = shallowest(v)
    if tile.k < least:
        kind = v.dtype.word if v.dtype.native else v.dtype.stored_a.multiplied
        needs = "a summed product" if v.product == "summed" else "the matrix unit"
        return f"k is {tile.k}, and {needs} needs at least {least} for {kind}"
    for storage in v.multiplied.dtype.stored:
        if tile.k < storage.together:
            return f"k is {tile.k}, and {storage.letter} stores {storage.together} elements along K together"
        if storage.block is not None and not storage.native and storage.block.along % tile.k:
            many = f"{storage.block.along} elements along K"
            return f"k is {tile.k}, and a step has one scale of {storage.letter}, which is for {many}"
        if copies_too_little(v, storage, tile.k):
            return f"k is {tile.k}, and a descriptor copies at least {SHORTEST_COPY} bytes of a row of {storage.letter}"
    if min(*heights(v, tile), *widths(v, tile)) < NARROWEST and v.product != "summed":
        return f"m and n are {m} and {n}, and the matrix unit needs at least {NARROWEST} of each"
    if v.product == "exchanged" and matrix_rows(v, tile) < MATRIX_ROWS:
        return f"n is {n}, too few columns of C for the 64 rows of the matrix unit in an exchanged product"
    if v.quantised is not None and tile.n % v.quantised.block:
        return (
            f"n is {tile.n}, and {v.quantised.block} columns of a tile have one scale, so n must be a multiple of that"
        )
    if v.symmetric and tile.m > tile.n:
        return f"m is {tile.m} and n is {tile.n}, and tiles of a symmetric result are at least as wide as high"
    if not v.traits.looped and tile.m * tile.n <= 256 and tile.k > 256:
        return f"Triton compiles 16x16 tiles with {tile.k} along K in one load to reads past shared memory; use m: 32"
    if v.traits.splits and (tile.split + 1) * tile.k > _BEYOND_K:
        most = _BEYOND_K // tile.k - 1
        return f"split is {tile.split}, and at most {most} is allowed with k: {tile.k}: indices along K have 32 bits"
    largest = largest_tensor(v, tile)
    if largest > 1 << 20:
        return f"it holds {largest} elements in one tensor, and Triton allows {1 << 20}"
    return None


#: What the size of a tile is along a side with so many blocks.
_SUMS = {
    1: "a power of two",
    2: "a sum of two different powers of two, such as 160 = 128 + 32",
    3: "a sum of three different powers of two, such as 208 = 128 + 64 + 16",
}


def _no_blocks(v: Variant, tile: Tile) -> str | None:
    """Why the sizes of `tile` are not those of so many blocks as the schedule has, or None."""
    for side, size in (("m", tile.m), ("n", tile.n)):
        count = v.traits.blocks if v.traits.side == side else 1
        # An exchanged product may have two equal widths, of which one is promoted while the other is multiplied.
        halves = count == 2 and side == "n" and v.product == "exchanged"
        if size.bit_count() == count or (halves and size.bit_count() == 1):
            continue
        reason = f"{side} is {size}, and {v.schedule} needs {_SUMS[count]}"
        if v.traits.pairs and count == 1:
            return reason
        if v.schedule == SPLIT_K:
            return f"{reason}; beside tiled, add a tile with the key split"
        fitting = schedule_of_blocks(side, size, splits=v.traits.splits and v.traits.pairs)
        return f"{reason}; use {fitting}" if fitting else reason
    return None


def why_no_row_on(v: Variant, tile: Tile, target: str) -> str | None:
    """Why `target` cannot run `v` with the configuration `tile`, which `why_no_row` allows, or None."""
    rows = heights(v, tile)
    if v.product == "direct" and min(rows) < MATRIX_ROWS <= max(rows) and TARGETS[target].capability in (90, 100):
        # Its blocks would be multiplied by different matrix instructions.
        listed = " + ".join(map(str, rows))
        return f"m is {listed}, and the matrix unit of {target} has {MATRIX_ROWS} rows; use 'product: exchanged'"
    rules = (_too_many_warps, too_much_memory, too_many_registers)
    return next((reason for rule in rules if (reason := rule(v, tile, target))), None)


def shared_memory_needed(v: Variant, tile: Tile, target: str) -> int | None:
    """Bytes of shared memory with which `target` could run `tile`; None if it could not, however many it had."""
    never = _too_many_warps(v, tile, target) or _too_much_tensor_memory(v, tile, target)
    return None if never or too_many_registers(v, tile, target) else shared_memory(v, tile, target)


def _too_many_warps(v: Variant, tile: Tile, target: str) -> str | None:
    """Why a program of `target` cannot have the warps of `tile`, or None."""
    most = 1024 // TARGETS[target].lanes
    if tile.warps > most:
        return f"{tile.warps} warps, and {target} runs at most {most} in a program"
    if v.dtype.native and matrix_instruction(v, tile, target) is None:
        return (
            f"{tile.m} rows and {tile.warps} warps, and {target} multiplies {SCALED_ROWS} scaled rows with 4 or 8 warps"
        )
    return None


def too_many_registers(v: Variant, tile: Tile, target: str) -> str | None:
    """Why the accumulators and operands of `tile` need more registers than a thread of `target` has, or None."""
    if not v.traits.tiled:
        return None
    available, needed = registers(tile, target), registers_of_sums(v, tile, target)
    limit = f"{target} has {available} with {tile.warps} warp{'s' if tile.warps > 1 else ''}"
    if needed >= available:
        return f"its accumulators need {needed} registers per thread, and {limit}"
    needed += registers_of_operands(v, tile, target)
    if needed >= 2 * available:
        return f"accumulators and operands need {needed} registers per thread, and {limit}"
    return None


def too_much_memory(v: Variant, tile: Tile, target: str) -> str | None:
    """Why a program of `tile` needs more shared or tensor memory than `target` has, or None."""
    needed = shared_memory(v, tile, target)
    if needed > TARGETS[target].shared_memory:
        return f"{needed} bytes of shared memory, and {target} has {TARGETS[target].shared_memory}"
    return _too_much_tensor_memory(v, tile, target)


def _too_much_tensor_memory(v: Variant, tile: Tile, target: str) -> str | None:
    """Why a program of `tile` needs more tensor memory than `target` has, or None."""
    columns = tensor_memory(v, tile, target)
    if columns > TENSOR_MEMORY:
        return f"{columns} columns of tensor memory, and {target} has {TENSOR_MEMORY}"
    return None
