"""The resources and instructions that a launch's machine code may and must have, from the spec and not the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import triton

from generator.epilogue.gated_units import CONCATENATED
from generator.language.elements import ELEMENTS
from generator.language.model import Tile, Variant
from generator.language.targets import TARGETS
from generator.lowering import approximate_math
from generator.plan import legality
from generator.plan.configurations import STRIP
from generator.plan.default_configurations import defaults
from generator.plan.kernels import Kernel
from generator.plan.resources import (
    TENSOR_MEMORY,
    in_registers,
    matrix_instruction,
    registers,
    registers_of_operands,
    registers_of_sums,
    tensor_memory,
    widths,
)
from generator.plan.shared_memory import BARRIERS, copied_ahead, registers_of_loads, shared_memory
from generator.verify.launches import REFUSED, CompiledLaunch
from generator.verify.machine_code import MachineCode

#: The instructions that multiply tiles.
_MATRIX = ("wgmma", "tcgen05", "mma.sync", "mfma", "wmma")

#: Bytes a thread may spill if loads are vectors. `tf32x3` holds the operands of three products in registers, and fp32
#: without a matrix unit those of a whole tile.
SPILLED = 1024
SPILLED_IN_REGISTERS = 16384
#: Without known alignment, each element is loaded separately and has an address of its own.
SPILLED_BY_ELEMENT = 32768

#: The largest number of elements along K whose fp8 products stay in the matrix unit's short accumulator with
#: `precision: full`.
_PROMOTED_EVERY = 128
#: The number that Triton uses on Hopper if the kernel requests none: larger than any K.
_NEVER_PROMOTED = 2**30


def faults(kernel: Kernel, launch: CompiledLaunch, target: str, code: MachineCode) -> Iterator[str]:
    """Messages about what is wrong with the machine code of one launch."""
    if launch.case.name == REFUSED:
        yield from _fits(kernel.variant, launch.tile, target, code)
        return
    v = kernel.variant.multiplied
    yield from _resources(kernel.variant, launch, target, code)
    yield from _multiplies(v, launch, target, code)
    yield from _overwrites(code)
    yield from _copies(v, launch, target, code)
    yield from _masks(v, launch, code)
    yield from _sums(v, code)
    yield from _partial_sums(v, code)
    yield from _keeps_nan(v, code)
    yield from _precision(v, launch.tile, target, code)
    yield from _approximates(v, target, code)
    bound = spill_bound(kernel.variant, launch, target)
    if bound is not None and code.spilled > bound:
        yield f"{code.spilled} bytes spilled per thread, more than {bound}"


def _fits(v: Variant, tile: Tile, target: str, code: MachineCode) -> Iterator[str]:
    """A configuration that the legality table refuses must not fit."""
    limit = TARGETS[target].shared_memory
    # It is correct to refuse memory that only other versions of the compiler need.
    sure = shared_memory(v, tile, target, surely=True) > limit or tensor_memory(v, tile, target) > TENSOR_MEMORY
    if sure and code.shared <= limit and code.tensor_memory <= TENSOR_MEMORY:
        reason = legality.too_much_memory(v, tile, target)
        yield f"the legality table refuses this configuration ({reason}), but it needs {code.shared} bytes"


def _resources(v: Variant, launch: CompiledLaunch, target: str, code: MachineCode) -> Iterator[str]:
    limit = TARGETS[target].shared_memory
    if code.shared > limit:
        yield f"it needs {code.shared} bytes of shared memory, and {target} has {limit}"
    # Versions of Triton differ in barriers and padding, but not by a whole tile.
    needed = shared_memory(v, launch.tile, target) + BARRIERS + _held_longer(v, launch.tile)
    if launch.case.name == "aligned" and code.shared > needed:
        yield f"it needs {code.shared} bytes of shared memory, and the formula predicts at most {needed}"
    if code.tensor_memory > TENSOR_MEMORY:
        yield f"it needs {code.tensor_memory} columns of tensor memory, and {target} has {TENSOR_MEMORY}"


def _held_longer(v: Variant, tile: Tile) -> int:
    """Bytes of a stage that Triton 3.8 alone, for tf32x3, frees later than other versions do."""
    if not triton.__version__.startswith("3.8.") or v.dtype.precision != "tf32x3":
        return 0
    return (tile.m + tile.n) * tile.k * v.dtype.stored_a.bits // 8


def _multiplies(v: Variant, launch: CompiledLaunch, target: str, code: MachineCode) -> Iterator[str]:
    wanted = matrix_instruction(v, launch.tile, target)
    used = [name for name in _MATRIX if code.instructions[name]]
    if used != ([wanted] if wanted else []):
        yield f"multiplies with {', '.join(used) or 'plain arithmetic'}, expected {wanted or 'plain arithmetic'}"
    yield from _scales(v, wanted, code)
    held = in_registers(v)
    if held and code.instructions["wgmma from registers"] != code.instructions["wgmma"]:
        yield f"wgmma reads {held} from shared memory; expected from registers, without another tile in memory"


def _overwrites(code: MachineCode) -> Iterator[str]:
    """A product on Hopper must have been waited for before the registers with its rows are written to."""
    if code.overwriting:
        yield (
            f"{len(code.overwriting)} instructions write to registers from which a wgmma that was not waited for may "
            f"still read its rows, the first of them {code.overwriting[0]}: ptxas before CUDA 13.3 does so (Triton "
            "issue 9433), unless each step waits for its products"
        )


def _scales(v: Variant, wanted: str | None, code: MachineCode) -> Iterator[str]:
    """Whether the matrix unit itself scales blocks in each of its products, of elements of as many bits as stored."""
    every = code.instructions[wanted] if wanted else 0
    scaled, narrow = code.instructions["scaled"], code.instructions["scaled 4 bits"]
    if scaled != (every if v.dtype.native else 0):
        yield f"{scaled} of {every} matrix products scale blocks, expected {'all' if v.dtype.native else 'none'}"
    if v.dtype.native and narrow != (scaled if all(storage.bits == 4 for storage in v.dtype.stored) else 0):
        yield f"{narrow} of {scaled} scaled products are of 4 bits, for operands stored as {v.dtype.word}"


def _copies(v: Variant, launch: CompiledLaunch, target: str, code: MachineCode) -> Iterator[str]:
    if TARGETS[target].vendor != "nvidia":
        return
    if v.loading.descriptors:
        if not code.instructions["bulk copy in"]:
            yield "loads by descriptors are not compiled to bulk copies"
        if v.store == "as_load" and not code.instructions["bulk copy out"]:
            yield "the store by a descriptor is not compiled to a bulk copy"
        return
    if not v.traits.tiled or launch.case.name != "aligned":
        return
    if v.products.divided == "K" and (v.layout.a, v.layout.b) != ("column", "row"):
        # Where K is contiguous, groups start at any address, and a copy has at least four bytes.
        return
    if copied_ahead(v, launch.tile, target) and not code.instructions["cp.async"]:
        yield "loads are not pipelined: there is no asynchronous copy"


def _masks(v: Variant, launch: CompiledLaunch, code: MachineCode) -> Iterator[str]:
    """If every dimension is a multiple of the tile, `auto` must have no masks, like `none`."""
    # With descriptor loads a pointer store is always masked, and so is what ends with a group.
    if v.products.divided:
        return
    if v.masking == "none" or (v.masking == "auto" and launch.case.name == "aligned" and not v.loading.descriptors):
        # A kernel that decodes B has blocks of its own, and one that adds partial sums has strips of rows, which are as
        # wide as the widest block of a tile.
        apart = launch.tile.m % STRIP or len(widths(v, launch.tile)) > 1
        other = "decode|sum" if v.traits.joins and apart else "decode"
        own = "".join(x for x in re.split(r"(?=\btt\.func public)", code.ir) if not re.match(rf".*_(?:{other})\(", x))
        masked = re.findall(r"\btt\.(?:load %[\w#]+|store %[\w#]+, %[\w#]+), %", own)
        # The stores of a tile on the diagonal and of its mirror image; a kernel that walks tiles masks those of others.
        on_diagonal = 0 if not v.symmetric else 4 if v.traits.walks else 2
        # C is loaded under a mask where a call's beta may be 0.
        if len(masked) > _loaded_ahead(v.multiplied) + on_diagonal + bool(v.epilogue.beta):
            yield f"{len(masked)} accesses are masked, although every dimension is a multiple of the tile"


def _loaded_ahead(v: Variant) -> int:
    """The loads of scales and zero points that are masked where there is no further step: before the loop and in it."""
    strips = {"a": 1, "b": 2 if v.epilogue.order == CONCATENATED else 1}
    if v.traits.pairs:
        strips[{"m": "a", "n": "b"}[v.traits.side]] *= v.traits.blocks
    scaled = [storage for storage in v.dtype.stored if storage.scales_sums]
    return sum(2 * strips[storage.letter] * (2 if storage.zeros else 1) for storage in scaled)


def _sums(v: Variant, code: MachineCode) -> Iterator[str]:
    acc = ELEMENTS[v.dtype.acc]
    acc_type = f"{'f' if acc.floating else 'i'}{acc.bits}"
    types = set(re.findall(r"\btt\.dot .*-> tensor<\w+x(\w+?)(?:>|,)", code.ir))
    if types - {acc_type}:
        yield f"the accumulator has the type {', '.join(sorted(types))}, expected {acc_type}"


def _partial_sums(v: Variant, code: MachineCode) -> Iterator[str]:
    """A partial sum must be in memory before its counter is incremented, and must be read without L1."""
    if not v.traits.workspace or v.traits.joins:
        return
    stored, counted, rest = code.ir.partition("tt.atomic_rmw add, acq_rel, gpu")
    _, stores, behind = stored.rpartition("tt.store")
    if not counted or not stores or not re.search(r"\b(?:gpu|ttg)\.barrier\b", behind):
        yield "the counter of partial sums is incremented without a barrier after the stores of all threads"
    reads = re.findall(r"\btt\.load .*", rest)
    # Triton 3.9 writes the modifier inside a policy.
    if not any(re.search(r"\bcache(M|_m)odifier = cg\b", read) for read in reads):
        yield "partial sums are read through L1, which may hold old values"


def _keeps_nan(v: Variant, code: MachineCode) -> Iterator[str]:
    if re.search(r"\barith\.(max|min)numf\b", code.ir):
        yield "a maximum or minimum drops NaN (arith.maxnumf); the epilogue propagates it"
    called = {name for step in v.epilogue.steps for name in step.called}
    # A `where` between a value and a constant may become a plain max, which then drops NaN as the `where` does.
    if code.instructions["plain max"] and called & {"max", "min"} and "where" not in called:
        yield "a plain max drops NaN; the epilogue propagates it"


def _precision(v: Variant, tile: Tile, target: str, code: MachineCode) -> Iterator[str]:
    if not v.traits.tiled:
        return
    if v.dtype.stored_a.multiplied_bits == 32:
        precisions = set(re.findall(r"\binputPrecision = (\w+)", code.ir)) or {"ieee"}
        if precisions != {v.dtype.precision}:
            yield f"multiplies in {', '.join(sorted(precisions))}, expected {v.dtype.precision}"
    short = v.dtype.stored_a.multiplied_bits == 8 and v.dtype.precision in ("full", "fast")
    if short and TARGETS[target].capability == 90:
        stretches = [int(n) for n in re.findall(r"maxNumImpreciseAcc = (\d+)", code.ir)]
        longest = max(stretches, default=0)
        if any(storage.scales_sums for storage in v.dtype.stored):
            # The sum of each step is scaled in fp32.
            longest = min(longest, tile.k)
        if v.dtype.precision == "full" and not 0 < longest <= _PROMOTED_EVERY:
            yield (
                f"fp8 products of {longest or 'all'} elements along K stay in the short accumulator, expected at most "
                f"{_PROMOTED_EVERY}"
            )
        shortest = min(stretches, default=0)
        if v.dtype.precision == "fast" and shortest < _NEVER_PROMOTED:
            yield f"fp8 sums are promoted every {shortest} elements along K, but with precision: fast they must not be"


def _approximates(v: Variant, target: str, code: MachineCode) -> Iterator[str]:
    wanted = approximate_math.applies(v) and TARGETS[target].vendor == "nvidia"
    if wanted != bool(code.instructions["approximation"]):
        yield f"computes {'without' if wanted else 'with'} the hardware's approximate instructions"


def spill_bound(v: Variant, launch: CompiledLaunch, target: str) -> int | None:
    """Bytes that a thread may spill; None if the configuration needs so many registers that no bound is known.

    Default configurations always have a bound.
    """
    if launch.tile not in defaults(v) and _crowded(v, launch.tile, target):
        return None
    if launch.case.name != "aligned":
        return SPILLED_BY_ELEMENT
    return SPILLED_IN_REGISTERS if v.dtype.precision in ("tf32x3", "ieee") else SPILLED


def _crowded(v: Variant, tile: Tile, target: str) -> bool:
    """Whether accumulators and operands may need almost all registers of a thread, or more."""
    if not v.traits.tiled:
        return False
    if TARGETS[target].vendor == "amd" and tile.warps > 8:
        # How AMD's compiler divides registers among sixteen warps is not modelled.
        return True
    operands = registers_of_operands(v, tile, target)
    # Operands that are not contiguous along K are moved in units of 8 bits.
    apart = v.dtype.stored_a.multiplied_bits == 8 and (v.layout.a, v.layout.b) != ("row", "column")
    taken = operands * (4 if apart else 2) + registers_of_loads(v, tile, target)
    return 3 * (registers_of_sums(v, tile, target) + taken) > 2 * registers(tile, target)
