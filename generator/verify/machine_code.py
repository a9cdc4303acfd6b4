"""Compile a specialisation to machine code, and read its resources and instructions from it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import triton
from triton.compiler import ASTSource

from generator.problem.compare import Fault
from generator.verify.asynchronous_products import overwriting
from generator.verify.specialise import Specialisation, gpu_target

#: The pattern of each instruction in PTX or in the assembly of an AMD GPU.
INSTRUCTIONS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.MULTILINE)
    for name, pattern in {
        "wgmma": r"^\s*(?:@\S+ )?wgmma\.mma_async",
        # The second operand is in braces if it is in registers; a shared memory descriptor is one number.
        "wgmma from registers": r"^\s*(?:@\S+ )?wgmma\.mma_async\S*\s+\{[^}]*\},\s*\{",
        "tcgen05": r"^\s*(?:@\S+ )?tcgen05\.mma",
        "mma.sync": r"\bmma\.sync",
        # The scaled products of both, and those of elements of 4 bits alone.
        "scaled": r"^\s*(?:@\S+ )?(?:tcgen05\.mma|mma\.sync)\S*\.block_scale\b",
        "scaled 4 bits": r"^\s*(?:@\S+ )?(?:tcgen05\.mma|mma\.sync)\S*kind::mxf4(?:nvf4)?\.block_scale\b",
        "cp.async": r"cp\.async\.c[ag]\.shared",
        "bulk copy in": r"cp\.async\.bulk\.tensor\S*\.shared::(?:cluster|cta)\.global",
        "bulk copy out": r"cp\.async\.bulk\.tensor\S*\.global\.shared::cta",
        "mfma": r"\bv_(?:s?mfma)\w*",
        "wmma": r"\bv_s?wmma\w*",
        "approximation": r"\b(?:rcp\.approx\.ftz|tanh\.approx)\.f32",
        "plain max": r"\b(?:max|min)\.(?:ftz\.)?f32",
    }.items()
}


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """Within, kernels are compiled anew, without the line numbers and paths of their files."""
    folder = tempfile.TemporaryDirectory(prefix="compiled-", ignore_cleanup_errors=True)
    with folder as path, triton.knobs.cache.scope(), triton.knobs.compilation.scope():
        triton.knobs.cache.dir = path
        triton.knobs.compilation.disable_line_info = True
        yield


class CompileError(Fault):
    """The compiler rejected a kernel; the message is the compiler's."""


@dataclass(frozen=True)
class MachineCode:
    """The result of one compilation.

    `shared` is in bytes per program, `tensor_memory` in columns; `registers` and `spilled` (bytes) are per thread, as
    the assembler reports them; `instructions` counts each instruction of INSTRUCTIONS.
    """

    shared: int
    tensor_memory: int
    registers: int
    spilled: int
    instructions: Mapping[str, int]
    #: The kernel in Triton IR, before any lowering; empty if only memory was measured.
    ir: str
    #: The instructions that write to a register which an asynchronous product may still read.
    overwriting: tuple[str, ...] = ()

    def beside(self, other: MachineCode) -> MachineCode:
        """Of two kernels that are launched one after the other: the larger figures, and the instructions of both."""
        return MachineCode(
            max(self.shared, other.shared),
            max(self.tensor_memory, other.tensor_memory),
            max(self.registers, other.registers),
            max(self.spilled, other.spilled),
            {name: self.instructions.get(name, 0) + other.instructions.get(name, 0) for name in self.instructions},
            self.ir + other.ir,
            self.overwriting + other.overwriting,
        )

    @property
    def figures(self) -> tuple[tuple[str, int], ...]:
        """The figures to record, without instructions that do not occur."""
        figures = {"shared": self.shared, "tensor_memory": self.tensor_memory}
        if self.ir:
            figures |= {"registers": self.registers, "spilled": self.spilled}
        return tuple((figures | {name: count for name, count in self.instructions.items() if count}).items())


class _Allocated(Exception):
    """Ends a compilation once Triton has allocated memory; carries the metadata."""


def memory_needed(wanted: Specialisation, target: str) -> MachineCode:
    """The shared and tensor memory of `wanted`; compilation stops as soon as they are known.

    For kernels that do not fit, since their assembly can take many seconds. Raises `CompileError`.
    """
    with patch.object(triton.knobs.runtime, "add_stages_inspection_hook", _stop_when_allocated):
        try:
            return compile_to_machine_code(wanted, target)
        except _Allocated as allocated:
            (metadata,) = allocated.args
            return MachineCode(metadata["shared"], metadata.get("tmem_size") or 0, 0, 0, {}, "")


def _stop_when_allocated(*arguments: Any) -> tuple[str, str] | None:
    """Triton's hook on the stages of a compilation; without arguments it returns its part of the cache's key."""
    if not arguments:
        return "memory alone", "memory alone"
    stages = arguments[1]
    lower = stages["llir"]

    def lowered(module: Any, metadata: dict[str, Any]) -> None:
        lower(module, metadata)
        raise _Allocated(metadata)

    stages["llir"] = lowered
    return None


def compile_to_machine_code(wanted: Specialisation, target: str) -> MachineCode:
    """Compile `wanted` for `target`; raise `CompileError` with the compiler's message."""
    source = ASTSource(wanted.function, wanted.signature, wanted.constants, wanted.known)
    log = io.StringIO()
    with _standard_error() as written, triton.knobs.nvidia.scope(), triton.knobs.compilation.scope():
        # The code is the same; compilation is about 5 % faster, and ptxas takes no path outside ASCII.
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.nvidia.dump_ptxas_log = True
        try:
            with contextlib.redirect_stdout(log):
                compiled = triton.compile(source, target=gpu_target(target), options=wanted.options)
        except _Allocated:
            raise
        except Exception as error:
            raise CompileError(_reason(error, written())) from None
    text = compiled.asm.get("ptx") or compiled.asm["amdgcn"]
    registers, spilled = _amd_registers(text) if "amdgcn" in compiled.asm else _nvidia_registers(log.getvalue())
    instructions = {name: len(pattern.findall(text)) for name, pattern in INSTRUCTIONS.items()}
    return MachineCode(
        compiled.metadata.shared,
        getattr(compiled.metadata, "tmem_size", None) or 0,
        registers,
        spilled,
        instructions,
        compiled.asm["ttir"],
        _overwriting(compiled.asm["cubin"]) if instructions["wgmma from registers"] else (),
    )


def _overwriting(cubin: bytes) -> tuple[str, ...]:
    """The instructions that write to what a product may still read; code that cannot be read is a failure."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            tool = triton.knobs.nvidia.nvdisasm.path
            sass = subprocess.run(
                [tool, "-c", file.name], capture_output=True, encoding="utf-8", errors="replace", check=True
            ).stdout
            return overwriting(sass)
        except (OSError, RuntimeError, subprocess.SubprocessError, ValueError) as error:
            why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
            raise CompileError(f"whether products read what is overwritten is unknown: {why}") from None


@contextlib.contextmanager
def _standard_error() -> Iterator[Any]:
    """A function that returns the text written to file descriptor 2, where MLIR reports why a pass failed."""
    original = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def written() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield written
        finally:
            os.dup2(original, 2)
            os.close(original)


def _reason(error: Exception, written: str) -> str:
    """The exception's message, followed by the errors that MLIR or the assembler printed."""
    lines = [line.strip() for line in written.splitlines() if re.search(r"\berror\b|fatal|assert", line, re.IGNORECASE)]
    words = [f"{type(error).__name__}: {error}".strip()]
    return "\n".join(dict.fromkeys(words + lines[:8]))[:4000]


def _nvidia_registers(log: str) -> tuple[int, int]:
    """Registers and spilled bytes per thread, from ptxas's report."""
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    spilled = [int(count) for count in re.findall(r"(\d+) bytes spill stores", log)]
    if not registers or not spilled:
        raise CompileError(f"ptxas reported no register count or no spill count: {log[:500]!r}")
    return max(registers), max(spilled)


def _amd_registers(text: str) -> tuple[int, int]:
    """Vector registers, accumulation registers included, and spilled bytes per thread, from the metadata."""
    counts = {
        name: [int(value) for value in re.findall(rf"\.{name}:\s+(\d+)", text)]
        for name in ("vgpr_count", "vgpr_spill_count")
    }
    missing = [name for name, values in counts.items() if not values]
    if missing:
        raise CompileError(f"the assembly has no {missing[0]}")
    # A spill is counted in registers of 32 bits.
    return max(counts["vgpr_count"]), max(counts["vgpr_spill_count"]) * 4
