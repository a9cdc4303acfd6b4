"""One job of the compile level: compile every launch of a kernel to machine code for one target."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import remembered
from generator.plan.kernels import Kernel
from generator.plan.resources import widths
from generator.problem.compare import Fault
from generator.verify.execute import describe
from generator.verify.expectations import faults
from generator.verify.gpu import versions
from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.launches import REFUSED, CompiledLaunch, launches
from generator.verify.level_scope import why_not
from generator.verify.machine_code import CompileError, MachineCode, compile_to_machine_code, memory_needed, own_cache
from generator.verify.manifest_configurations import configuration_of
from generator.verify.offered_rows import left_out_rows, offered_fault
from generator.verify.specialise import Specialisation, specialise


def run(job: Job) -> JobResult:
    """Compile the launches that `job` names; any exception becomes a failure of the kernel."""
    assert job.target is not None
    family = remembered(job.folder)
    reason = why_not(job, family, None)
    if reason is not None:
        return JobResult(job, left_out=reason)
    kernel = family.by_name[job.name]
    work = _Work(job, kernel, job.target)
    # A warm cache would hide failures.
    with own_cache():
        work.run()
    return JobResult(
        job,
        work.count,
        tuple(work.failures),
        place=tuple(versions().items()),
        measured=tuple(work.measured),
        rows_left_out=left_out_rows(kernel, job.target),
    )


class _Work:
    """The state of one job: launches, failures, figures and compiled code so far."""

    def __init__(self, job: Job, kernel: Kernel, target: str) -> None:
        self.job, self.kernel, self.target = job, kernel, target
        self.count = 0
        self.failures: list[Failure] = []
        self.measured: list[tuple[str, tuple[tuple[str, int], ...]]] = []
        self.compiled: dict[str, MachineCode | CompileError] = {}

    def run(self) -> None:
        with self.failing("import", "the file is imported"):
            module = load_kernel(self.job.file)
            for launch in launches(self.kernel, self.target):
                if self.job.takes(launch.name):
                    self.count += 1
                    reason = f"{launch.case.reason} (configuration {launch.row}: {launch.row_label})"
                    with self.failing(launch.name, reason):
                        for fault in self.faults(module, launch):
                            self.failures.append(Failure(launch.name, reason, fault))
            if not self.failures:
                with self.failing("offered", "the launcher takes what the target can run"):
                    if wrong := offered_fault(module, self.kernel, self.target):
                        raise Fault(wrong)

    @contextmanager
    def failing(self, case: str, reason: str) -> Iterator[None]:
        """Within, whatever is raised is a failure of the case."""
        try:
            yield
        except Exception as error:
            self.failures.append(Failure(case, reason, describe(error)))

    def faults(self, module: ModuleType, launch: CompiledLaunch) -> Iterator[str]:
        """What is wrong with a launch and its code; launches with the same specialisation are compiled once."""
        wanted = specialise(module, self.kernel, launch, self.target)
        yield from self.launched(module, launch, wanted)
        code = functools.reduce(MachineCode.beside, [self.compile(each, launch) for each in wanted])
        self.measured.append((launch.name, code.figures))
        yield from faults(self.kernel, launch, self.target, code)

    def compile(self, wanted: Specialisation, launch: CompiledLaunch) -> MachineCode:
        if wanted.key not in self.compiled:
            try:
                compiled = memory_needed if launch.case.name == REFUSED else compile_to_machine_code
                self.compiled[wanted.key] = compiled(wanted, self.target)
            except CompileError as error:
                self.compiled[wanted.key] = error
        code = self.compiled[wanted.key]
        if isinstance(code, CompileError):
            raise code
        return code

    def launched(self, module: ModuleType, launch: CompiledLaunch, wanted: Sequence[Specialisation]) -> Iterator[str]:
        """Messages about wrong arguments that the launcher passes."""
        expected = configuration_of(self.kernel.variant, launch.tile)
        (multiplies,) = (each for each in wanted if each.function.__name__ == self.kernel.name)
        passed = {name: value for name, value in multiplies.passed.items() if name in expected}
        if passed != expected:
            yield f"launched with {passed}, expected the configuration {expected}"
        for second in wanted[1:] if self.kernel.variant.traits.joins else ():
            own = {name: value for name, value in second.passed.items() if name in ("BLOCK_N", "SPLIT")}
            # Its tiles are as wide as the widest block.
            whole = {"BLOCK_N": max(widths(self.kernel.variant, launch.tile)), "SPLIT": launch.tile.split}
            if own != whole:
                yield f"the second kernel is launched with {own}, expected {whole}, which are those of {expected}"
        fuses, rounds = wanted[-1].options["enable_fp_fusion"], self.kernel.variant.rounds_between
        if fuses == rounds:
            message = "after each operation, but the launch lets" if rounds else "late, but the launch does not let"
            yield f"the kernel rounds {message} the compiler fuse operations"
        if not all(each.on_device for each in wanted):
            yield "launched on the current device, even if the operands are on another one"
        if launch.case.scalar_elsewhere:
            number = replace(launch, case=replace(launch.case, scalar_tensor=False, scalar_elsewhere=False))
            without = specialise(module, self.kernel, number, self.target)
            if [each.key for each in without] != [each.key for each in wanted]:
                yield "a scalar tensor on another device is passed to the kernel, which cannot read it there"
