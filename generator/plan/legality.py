"""The legality table: what cannot exist or makes no difference, each as a rule with its reason.

The expansion, the renderer, the harness and the documentation all ask this module; no template and no test has rules
of its own. A rule returns the reason, or None where it has nothing against.
"""

from __future__ import annotations

from collections.abc import Callable

from packaging.specifiers import SpecifierSet

from generator.epilogue import formula
from generator.epilogue.operations import MATRIX
from generator.language.model import Tile, Variant
from generator.language.versions import minor_versions, spelled
from generator.language.vocabulary import ELEMENTS, MASKED_DIMENSIONS, TARGETS
from generator.plan.memory import shared_memory
from generator.plan.resources import (
    TENSOR_MEMORY,
    largest_tensor,
    matrix_rows,
    registers,
    registers_of_operands,
    registers_of_sums,
    tensor_memory,
    widths,
)

#: File systems hold 255 bytes; `.py` and the suffix of a file being written take some.
_LONGEST_NAME = 240

#: How far past K a number may go: launchers keep K that far from 2**31.
_BEYOND_K = 2**16

VariantRule = Callable[[Variant], str | None]
TargetRule = Callable[[Variant, str], str | None]


def _tile_load_of_elements(v: Variant) -> str | None:
    if not v.traits.tiled and v.load != "pointer":
        return f"elementwise loads single elements, which {v.load} cannot address"
    return None


def _precision_of_elements(v: Variant) -> str | None:
    if not v.traits.tiled and v.dtype.precision in ("tf32", "tf32x3", "fast"):
        return f"{v.dtype.precision} belongs to the matrix unit, which elementwise does not use"
    return None


def _descriptor_masking(v: Variant) -> str | None:
    if v.load == "descriptor" and v.masking not in ("mnk", "auto"):
        return f"descriptor accesses are bounded by the hardware, so {v.masking} would say nothing; use mnk or auto"
    return None


def _descriptor_strides(v: Variant) -> str | None:
    if v.load != "descriptor":
        return None
    if "strided" in (v.layout.a, v.layout.b):
        return "a descriptor needs a unit inner stride, which a strided A or B does not promise"
    if v.layout.c == "strided" and v.store == "as_load":
        return "a descriptor cannot write a strided C; use 'store: pointer'"
    return None


def _descriptor_matrices(v: Variant) -> str | None:
    matrices = [operand.name for operand in v.epilogue.operands if operand.shape == MATRIX]
    matrices += [output.name for output in v.epilogue.outputs if output.shape == MATRIX]
    matrices += ["C"] if v.epilogue.reads_out else []
    if v.traits.walks_tiles and v.load == "descriptor" and v.store == "as_load" and matrices:
        return f"a tile of {matrices[0]} would lie in shared memory beside the loads in flight; use 'store: pointer'"
    return None


def _integer_output(v: Variant) -> str | None:
    if v.dtype.out == "int32" and not all(formula.keeps_integers(step.tree) for step in v.epilogue.steps):
        return "the epilogue is computed in fp32, and no rounding back to int32 is defined; give dtype.out a float type"
    return None


def _elementwise_reduction(v: Variant) -> str | None:
    reduced = [step.operation for step in v.epilogue.steps if step.output is not None and step.output.tap.reduction]
    if not v.traits.tiled and reduced:
        return f"{reduced[0]} is made of what each tile has of it, and elementwise has no tiles; use tiled"
    if v.traits.pairs and reduced:
        return f"{reduced[0]} is made of what each tile has of it, and a tile of two widths has two; use tiled"
    return None


def _batch_schedule(v: Variant) -> str | None:
    if v.batch == "strided" and (v.traits.splits or v.traits.workspace):
        return f"{v.schedule} divides the K of one product, and has no place for the sums of several; use tiled"
    return None


def _atomic_result(v: Variant) -> str | None:
    if v.traits.repeatable:
        return None
    if v.epilogue.steps:
        return "each part of K is added to the result by itself, and an epilogue needs the whole sum; use split_k"
    if v.dtype.out != "fp32":
        return f"parts of K are added in the type of the result, and {v.dtype.out} rounds each sum; use split_k"
    if v.dtype.acc == "int32":
        return "parts of K are added in the type of the result, and fp32 rounds int32 sums; use split_k"
    if v.load != "pointer" and v.store == "as_load":
        return f"{v.load} has no atomic add; use 'store: pointer'"
    return None


def _paired(v: Variant) -> str | None:
    if not v.traits.pairs:
        return None
    if v.load != "descriptor":
        return f"columns of two widths are loaded by descriptors, which {v.load} is not; use 'load: descriptor'"
    if v.store != "pointer":
        return "columns of two widths are stored through pointers; use 'store: pointer'"
    if v.dtype.precision == "ieee":
        return "plain arithmetic holds operands in registers, which are too few for those of two products; use tiled"
    if v.product != "direct":
        return "the narrower columns need not fill the matrix unit's 64 rows; use 'product: direct'"
    if v.batch != "none":
        return "the tiles of a batch are many, and fill the last wave in one width; use tiled or persistent"
    if v.epilogue.order is not None:
        return "a gate has a sum for each of its columns already; use tiled or persistent"
    return None


def _gate_load(v: Variant) -> str | None:
    if v.epilogue.order is not None and v.load == "block_pointer":
        return "a gate takes two columns of B for each of C, which block pointers do not; use pointer or descriptor"
    return None


def _rounding_to(v: Variant) -> str | None:
    if v.rounding == "torch" and v.dtype.out not in ("fp16", "bf16", "fp32"):
        return f"eager torch rounds no operation to {v.dtype.out}; use 'rounding: late', or give dtype.out fp16 or bf16"
    return None


def _name_length(v: Variant) -> str | None:
    if len(v.name) > _LONGEST_NAME:
        return f"its name has {len(v.name)} characters, and a file system holds {_LONGEST_NAME}; shorten the epilogue"
    return None


#: What cannot exist on any target.
VARIANT_RULES: tuple[VariantRule, ...] = (
    _tile_load_of_elements,
    _precision_of_elements,
    _descriptor_masking,
    _descriptor_strides,
    _descriptor_matrices,
    _integer_output,
    _elementwise_reduction,
    _batch_schedule,
    _atomic_result,
    _paired,
    _gate_load,
    _rounding_to,
    _name_length,
)


def _descriptor_target(v: Variant, target: str) -> str | None:
    if v.load == "descriptor" and not TARGETS[target].descriptors:
        return f"{target} has no bulk tensor copies; descriptors need sm90 or later"
    return None


def _fp8_target(v: Variant, target: str) -> str | None:
    missing = {v.dtype.a, v.dtype.b} & {"fp8e4m3", "fp8e5m2"} - TARGETS[target].fp8
    return f"{target} does not multiply {min(missing)}" if missing else None


def _fp8_result_target(v: Variant, target: str) -> str | None:
    found = TARGETS[target]
    # Triton 3.6 converts to fp8e5m2 by an instruction of sm89, too.
    if v.dtype.out in ("fp8e4m3", "fp8e5m2") and found.vendor == "nvidia" and found.capability < 89:
        return f"Triton stores no {v.dtype.out} on {target}; int8 is stored there"
    return None


def _tf32_target(v: Variant, target: str) -> str | None:
    if v.dtype.precision == "tf32" and TARGETS[target].vendor == "amd" and target != "gfx942":
        return f"{target} has no tf32"
    if v.dtype.precision == "tf32x3" and TARGETS[target].vendor == "amd":
        return "Triton emulates fp32 by three tf32 products on NVIDIA only"
    return None


def _exchanged_target(v: Variant, target: str) -> str | None:
    if v.product == "exchanged" and TARGETS[target].capability not in (90, 100):
        return f"{target}'s matrix unit has no 64 rows for columns of C to fill"
    return None


#: What one target cannot run.
TARGET_RULES: tuple[TargetRule, ...] = (
    _descriptor_target,
    _fp8_target,
    _fp8_result_target,
    _tf32_target,
    _exchanged_target,
)


def _collapses(v: Variant) -> tuple[str, ...]:
    """The axes whose value makes no difference in `v`."""
    # Not where nothing is rounded between the product and the store.
    same = ("rounding",) if v.epilogue.rounded(v.dtype.acc, v.dtype.out) == v.epilogue else ()
    if not v.traits.tiled:
        return (*same, "masking", "swizzle", "store", "product")
    if v.load == "descriptor":
        return (*same, "masking")
    return (*same, "store") if v.load == "pointer" else same


def why_not(v: Variant) -> str | None:
    """Why no target can run `v`, or None."""
    return next((reason for rule in VARIANT_RULES if (reason := rule(v))), None)


def why_not_selected(v: Variant, select: str) -> str | None:
    """Why the row of `v` cannot be chosen by `select`, or None."""
    if select != "autotune":
        return None
    if v.epilogue.reads_out:
        return "the tuner runs a kernel many times, and accumulate would read what the run before wrote; use heuristic"
    if any(output.tap.reduction for output in v.epilogue.outputs):
        name = next(output.name for output in v.epilogue.outputs if output.tap.reduction)
        return f"the room for the parts of {name} is made before the tuner chooses its tiles; use heuristic"
    return None


def why_not_on(v: Variant, target: str) -> str | None:
    """Why `target` cannot run `v`, or None."""
    return next((reason for rule in TARGET_RULES if (reason := rule(v, target))), None)


def essence(v: Variant) -> tuple[str, ...]:
    """What makes `v` differ from others: two variants of one essence are the same kernel under two names."""
    free = _collapses(v)
    return tuple(word for axis, word in v.words.items() if axis not in free)


def versions(v: Variant) -> SpecifierSet:
    """The Triton versions that can compile `v`."""
    return SpecifierSet("<3.9") if v.load == "block_pointer" else SpecifierSet()


def why_no_version(v: Variant, allowed: SpecifierSet) -> str | None:
    """Why no Triton version in `allowed` can compile `v`, or None."""
    if minor_versions(allowed & versions(v)):
        return None
    return f"{v.load} needs Triton {versions(v)}, and the spec allows {spelled(allowed)}"


def why_no_row(v: Variant, tile: Tile) -> str | None:
    """Why no target can hold `tile` for `v` at all, or None."""
    if not v.traits.tiled:
        return None
    parts = widths(v, tile)
    if any(part & (part - 1) for part in parts):
        return f"n is {tile.n}, and {v.schedule} needs a power of two; of two widths are the tiles of paired"
    if len(parts) == 2 and tile.left == tile.right:
        return f"n is {tile.n}, and the columns of {v.schedule} are two powers of two, as 160 is 128 and 32"
    shallowest = 32 if ELEMENTS[v.dtype.a].bits == 8 else 16
    if tile.k < shallowest:
        return f"k is {tile.k}, and the matrix unit needs at least {shallowest} for {v.dtype.a}"
    if min(tile.m, *parts) < 16:
        told = " and ".join(map(str, parts))
        return f"m and n are {tile.m} and {told}, and the matrix unit needs at least 16 of each"
    if v.product == "exchanged" and matrix_rows(v, tile) < 64:
        return f"n is {tile.n}, and operands are exchanged for columns of C to fill the matrix unit's 64 rows"
    if not v.traits.looped and tile.m * tile.n <= 256 and tile.k > 256:
        return f"Triton compiles 16x16 tiles with {tile.k} along K in one load to reads past shared memory; use m: 32"
    if v.traits.splits and (tile.split + 1) * tile.k > _BEYOND_K:
        most = _BEYOND_K // tile.k - 1
        return f"split is {tile.split}, and steps of {tile.k} along K allow {most}: a part's end has 32 bits"
    largest = largest_tensor(v, tile)
    if largest > 1 << 20:
        return f"it holds {largest} elements in one tensor, and Triton allows {1 << 20}"
    return None


def why_no_row_on(v: Variant, tile: Tile, target: str) -> str | None:
    """Why `target` cannot hold `tile` for `v`, or None."""
    most = 1024 // TARGETS[target].lanes
    if tile.warps > most:
        return f"{tile.warps} warps, and {target} runs at most {most} in a program"
    return too_much_memory(v, tile, target) or too_many_registers(v, tile, target)


def too_many_registers(v: Variant, tile: Tile, target: str) -> str | None:
    """How the registers that the sums and operands of `tile` take exceed those of a thread, or None."""
    if not v.traits.tiled:
        return None
    there, sums = registers(tile, target), registers_of_sums(v, tile, target)
    if sums >= there:
        return f"its sums take {sums} registers of each thread, and {target} has {there} with {_warps(tile)}"
    needed = sums + registers_of_operands(v, tile, target)
    if needed >= 2 * there:
        return f"sums and operands take {needed} registers of each thread, and {target} has {there} with {_warps(tile)}"
    return None


def _warps(tile: Tile) -> str:
    return "1 warp" if tile.warps == 1 else f"{tile.warps} warps"


def too_much_memory(v: Variant, tile: Tile, target: str) -> str | None:
    """How the memory that a program of `tile` needs exceeds what `target` has, or None."""
    needed = shared_memory(v, tile, target)
    if needed > TARGETS[target].shared_memory:
        return f"{needed} bytes of shared memory, and {target} has {TARGETS[target].shared_memory}"
    columns = tensor_memory(v, tile, target)
    if columns > TENSOR_MEMORY:
        return f"{columns} columns of tensor memory, and {target} has {TENSOR_MEMORY}"
    return None


def ragged(masking: str) -> dict[str, bool | None]:
    """Whether each of m, n, k is masked: True always, False never, None where the call decides."""
    dimensions = MASKED_DIMENSIONS[masking]
    return {d: None if dimensions is None else d in dimensions for d in "mnk"}
