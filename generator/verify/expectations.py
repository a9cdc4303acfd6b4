"""What the machine code of a launch must hold and must not, by the meaning of the kernel, never by its text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.epilogue import formula
from generator.language.model import Tile, Variant
from generator.language.vocabulary import ELEMENTS, TARGETS
from generator.lowering import approximate_math
from generator.plan.default_configurations import defaults
from generator.plan.kernels import Kernel
from generator.plan.memory import copied_ahead, registers_of_loads
from generator.plan.resources import (
    matrix_instruction,
    registers,
    registers_of_operands,
    registers_of_sums,
    through_registers,
)
from generator.verify.cases import addressed
from generator.verify.launches import Launch
from generator.verify.machine_code import MachineCode

#: Every instruction that multiplies tiles.
_MATRIX = ("wgmma", "tcgen05", "mma.sync", "mfma", "wmma")

#: Bytes a thread may spill where loads are whole vectors. `tf32x3` holds three products' operands in registers, and
#: fp32 without a matrix unit a whole tile's.
SPILLED = 1024
SPILLED_IN_REGISTERS = 16384
#: Where no alignment is known, each element is loaded by itself, with an address of its own.
SPILLED_BY_ELEMENT = 32768

#: The longest stretch of K whose fp8 products stay in the matrix unit's short accumulator under `precision: full`.
_PROMOTED_EVERY = 128
#: The stretch that Triton takes on Hopper where none is asked for: longer than any K.
_NEVER_PROMOTED = 2**30


def faults(kernel: Kernel, launch: Launch, target: str, code: MachineCode) -> Iterator[str]:
    """What is wrong with the machine code of one launch, a sentence each."""
    yield from _multiplies(kernel.variant, launch, target, code)
    yield from _copies(kernel.variant, launch, target, code)
    yield from _masks(kernel.variant, launch, code)
    yield from _sums(kernel.variant, code)
    yield from _hands_in(kernel.variant, code)
    yield from _keeps_nan(kernel.variant, code)
    yield from _precision(kernel.variant, target, code)
    yield from _approximates(kernel.variant, target, code)
    bound = spill_bound(kernel.variant, launch, target)
    if bound is not None and code.spilled > bound:
        yield f"{code.spilled} bytes spilled a thread, more than {bound}"


def _multiplies(v: Variant, launch: Launch, target: str, code: MachineCode) -> Iterator[str]:
    wanted = matrix_instruction(v, launch.tile, target)
    found = [name for name in _MATRIX if code.instructions[name]]
    if found != ([wanted] if wanted else []):
        yield f"multiplies by {', '.join(found) or 'plain arithmetic'}, expected {wanted or 'plain arithmetic'}"
    held = through_registers(v)
    if held and code.instructions["wgmma from registers"] != code.instructions["wgmma"]:
        yield f"{held} comes from shared memory, where it is turned around first; expected from registers"


def _copies(v: Variant, launch: Launch, target: str, code: MachineCode) -> Iterator[str]:
    if TARGETS[target].vendor != "nvidia":
        return
    if addressed(v):
        if not code.instructions["bulk copy in"]:
            yield "a descriptor's loads are no bulk copies"
        if v.store == "as_load" and not code.instructions["bulk copy out"]:
            yield "a descriptor's store is no bulk copy"
        return
    if not v.traits.tiled or launch.case.name != "aligned":
        return
    if copied_ahead(v, launch.tile, target) and not code.instructions["cp.async"]:
        yield "loads are not pipelined: no asynchronous copy"


def _masks(v: Variant, launch: Launch, code: MachineCode) -> Iterator[str]:
    """Where every dimension is a multiple of the tile, `auto` promises code without masks, as `none` has it."""
    # A plain store beside descriptors is masked always, `auto` or not.
    if v.masking == "none" or (v.masking == "auto" and launch.case.name == "aligned" and not addressed(v)):
        masked = re.findall(r"\btt\.(?:load %[\w#]+|store %[\w#]+, %[\w#]+), %", code.ir)
        if masked:
            yield f"{len(masked)} accesses are masked, where every dimension is a multiple of the tile"


def _sums(v: Variant, code: MachineCode) -> Iterator[str]:
    kind = {"fp16": "f16", "fp32": "f32", "int32": "i32"}[v.dtype.acc]
    found = set(re.findall(r"\btt\.dot .*-> tensor<\w+x(\w+?)(?:>|,)", code.ir))
    if found - {kind}:
        yield f"sums are kept in {', '.join(sorted(found))}, expected {kind}"


def _hands_in(v: Variant, code: MachineCode) -> Iterator[str]:
    """A partial sum is in memory before the count of it is seen, and who reads it reads past L1."""
    if not v.traits.workspace:
        return
    stored, counted, rest = code.ir.partition("tt.atomic_rmw add, acq_rel, gpu")
    _, stores, behind = stored.rpartition("tt.store")
    if not counted or not stores or not re.search(r"\b(?:gpu|ttg)\.barrier\b", behind):
        yield "a partial sum is counted before every thread's part of it is known to be in memory"
    reads = re.findall(r"\btt\.load .*", rest)
    # Triton 3.9 has a policy with a modifier in it.
    if not any(re.search(r"\bcache(M|_m)odifier = cg\b", read) for read in reads):
        yield "partial sums are read through L1, which may hold what was there before"


def _keeps_nan(v: Variant, code: MachineCode) -> Iterator[str]:
    if re.search(r"\barith\.(max|min)numf\b", code.ir):
        yield "a maximum or minimum drops NaN (arith.maxnumf); the epilogue propagates it"
    called = {name for step in v.epilogue.steps for name in formula.called(step.tree)}
    # A choice between a value and a constant may become a plain max, which then drops NaN as the choice does.
    if code.instructions["plain max"] and called & {"max", "min"} and "where" not in called:
        yield "a plain max drops NaN; the epilogue propagates it"


def _precision(v: Variant, target: str, code: MachineCode) -> Iterator[str]:
    if not v.traits.tiled:
        return
    if ELEMENTS[v.dtype.a].bits == 32:
        found = set(re.findall(r"\binputPrecision = (\w+)", code.ir)) or {"ieee"}
        if found != {v.dtype.precision}:
            yield f"multiplies in {', '.join(sorted(found))}, expected {v.dtype.precision}"
    if v.dtype.precision in ("full", "fast") and TARGETS[target].capability == 90:
        stretches = [int(n) for n in re.findall(r"maxNumImpreciseAcc = (\d+)", code.ir)]
        longest = max(stretches, default=0)
        if v.dtype.precision == "full" and not 0 < longest <= _PROMOTED_EVERY:
            yield f"fp8 products of {longest or 'all of'} K stay in the short accumulator, at most {_PROMOTED_EVERY}"
        shortest = min(stretches, default=0)
        if v.dtype.precision == "fast" and shortest < _NEVER_PROMOTED:
            yield f"fp8 sums are promoted every {shortest} along K, and fast is to leave them as they are"


def _approximates(v: Variant, target: str, code: MachineCode) -> Iterator[str]:
    wanted = approximate_math.applies(v) and TARGETS[target].vendor == "nvidia"
    if wanted != bool(code.instructions["approximation"]):
        yield f"computes {'without' if wanted else 'by'} the hardware's approximate instructions"


def spill_bound(v: Variant, launch: Launch, target: str) -> int | None:
    """Bytes that a thread may spill; None where a row leaves its registers too crowded to foretell any.

    The rows of the default tables never do.
    """
    if launch.tile not in defaults(v) and _crowded(v, launch.tile, target):
        return None
    if launch.case.name != "aligned":
        return SPILLED_BY_ELEMENT
    return SPILLED_IN_REGISTERS if v.dtype.precision in ("tf32x3", "ieee") else SPILLED


def _crowded(v: Variant, tile: Tile, target: str) -> bool:
    """Whether sums and operands may take more registers than a thread has, or nearly as many."""
    if not v.traits.tiled:
        return False
    if TARGETS[target].vendor == "amd" and tile.warps > 8:
        # AMD's compiler divides registers among sixteen warps in ways of its own.
        return True
    operands = registers_of_operands(v, tile, target)
    # Where neighbours do not lie along K, each 8 bits are moved by themselves.
    apart = ELEMENTS[v.dtype.a].bits == 8 and (v.layout.a, v.layout.b) != ("row", "column")
    taken = operands * (4 if apart else 2) + registers_of_loads(v, tile, target)
    return 3 * (registers_of_sums(v, tile, target) + taken) > 2 * registers(tile, target)
