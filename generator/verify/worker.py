"""One job in a worker process: load the kernel, run every case and every refusal, say what became of it."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from generator.emit.loading import load_family, load_kernel, taken_for_memory
from generator.emit.manifest_reader import Rendered, remembered
from generator.language.errors import CallError
from generator.plan.kernels import Kernel
from generator.problem.poisoned_operands import SHORT_OF_MEMORY, shortage
from generator.verify.case_setup import Setup
from generator.verify.case_sizes import Case, leading_extents
from generator.verify.cases import cases, contract_cases, smallest_row
from generator.verify.execute import Gpu, Interpreter, Machine, describe, run_case
from generator.verify.gpu import versions
from generator.verify.jobs import Failure, Job, JobResult
from generator.verify.level_scope import why_not, why_not_run
from generator.verify.manifest_configurations import label_of
from generator.verify.offered_rows import tuner_fault
from generator.verify.refusals import Refusal, refusals, right_call, right_case


def run(job: Job, lock: contextlib.AbstractContextManager[object]) -> JobResult:
    """Run `job`; `lock` is held while a case takes gigabytes of the device."""
    machine = _machine(job.level)
    if machine.lost():
        # A job before this one did it: this one is for another process.
        return JobResult(job, lost=True)
    family = remembered(job.folder)
    left_out = why_not(job, family, machine.architecture)
    if left_out is not None:
        return JobResult(job, left_out=left_out)
    return _Work(job, family, machine, lock).result()


@functools.lru_cache(maxsize=1)
def _machine(level: str) -> Machine:
    torch.set_num_threads(1)
    return Interpreter() if level == "interpret" else Gpu()


class _Work:
    """What one job has found so far."""

    def __init__(
        self, job: Job, family: Rendered, machine: Machine, lock: contextlib.AbstractContextManager[object]
    ) -> None:
        self.job, self.family, self.machine, self.lock = job, family, machine, lock
        self.count = 0
        self.failures: list[Failure] = []
        self.not_proved: list[tuple[str, str]] = []
        self.worst = 0.0
        #: The cases by configuration, and the one of the full list, to which refusals count.
        self.rows: Counter[str] = Counter()
        self.full = ""

    def result(self) -> JobResult:
        """Do the work; whatever a kernel's file raises is a failure, never the harness's end."""
        try:
            if self.job.contract:
                self.contract()
            else:
                self.kernel()
        except Exception as error:
            self.failures.append(Failure("import", "the file is imported", describe(error)))
        lost = self.machine.lost()
        if lost and not self.failures:
            self.failures.append(Failure("process", "the device outlives the job", "the device answers no more"))
        return JobResult(
            self.job,
            self.count,
            tuple(self.failures),
            tuple(self.not_proved),
            worst_error=self.worst,
            place=_place(self.machine),
            lost=lost,
            rows=tuple(self.rows.items()),
            full=self.full,
        )

    def attempt(self, case: str, reason: str, run: Callable[[], str | None]) -> None:
        """Count a case, which fails with what `run` returns or raises; it is not proved without memory for it."""
        try:
            fault = run()
        except SHORT_OF_MEMORY as error:
            self.not_proved.append((case, shortage(error)))
            return
        except Exception as error:
            fault = describe(error)
        self.count += 1
        if fault is not None:
            self.failures.append(Failure(case, reason, fault))

    def kernel(self) -> None:
        """Every case and refusal of one kernel."""
        kernel = self.family.by_name[self.job.name]
        module = load_kernel(self.job.file)
        if len(module.CONFIGS) != len(kernel.tiles):
            raise CallError(
                f"CONFIGS has {len(module.CONFIGS)} rows, and the manifest gives {len(kernel.tiles)}; render it again"
            )
        labels = [label_of(row) for row in module.CONFIGS]
        self.full = labels[smallest_row(kernel)]
        self.rows.update(dict.fromkeys(labels, 0))
        recorded = dict(self.job.recorded.rows if self.job.recorded else ())
        for case in cases(kernel, hardware=self.machine.hardware):
            label = self.full if case.row is None else labels[case.row]
            if self.job.takes(case.name) and (case.row is None or label not in recorded):
                before = self.count
                self.case(module, kernel, case)
                self.rows[label] += self.count - before
            if self.failures and self.machine.lost():
                return
        # What depends on the whole table of configurations: refusals, and what the tuner tries.
        before = self.count
        case = right_case(kernel, smallest_row(kernel))
        wrong = refusals(kernel, case, tuple(module.CONFIGS), hardware=self.machine.hardware)
        self.refusals(module, kernel, case, wrong)
        if kernel.select == "autotune" and len(kernel.tiles) > 1 and self.job.takes("tuner"):
            self.attempt("tuner", "the tuner tries the rows that take the sizes", partial(tuner_fault, module, kernel))
        self.rows[self.full] += self.count - before

    def contract(self) -> None:
        """The function of one contract, which picks among its kernels."""
        kernels, device = self.family.contracts[self.job.name], self.machine.architecture
        here = [kernel for kernel in kernels if why_not_run(kernel, device) is None]
        module = SimpleNamespace(gemm=getattr(load_family(self.job.folder), self.job.name), CONFIGS=())
        among = {kernel.name: kernel for kernel in here}
        for kernel, case in contract_cases(here, hardware=self.machine.hardware):
            if self.job.takes(case.name):
                self.case(module, kernel, case, among)
        reason = "config reaches the kernel that is picked"
        wrong = Refusal("config", reason, ("config",), lambda call: {"config": 10**6})
        self.refusals(module, *next(iter(contract_cases(here, hardware=False))), [wrong])

    def case(self, module: Any, kernel: Kernel, case: Case, among: Mapping[str, Kernel] = {}) -> None:
        """One call of the launcher of `module`."""

        def run() -> None:
            self.worst = max(self.worst, run_case(module, kernel, case, self.machine, among))

        front = leading_extents(kernel.variant, case)
        sizes = f"{'B, ' * len(front)}M, N, K = {', '.join(map(str, (*front, *case.sizes)))}"
        with self.lock if case.huge and self.machine.hardware else contextlib.nullcontext():
            self.attempt(case.name, f"{case.reason} ({sizes})", run)
            if case.huge and self.machine.hardware:
                torch.cuda.empty_cache()

    def refusals(self, module: Any, kernel: Kernel, case: Case, wrong: Iterable[Refusal]) -> None:
        """Every call that the launcher of `module` must turn down, made from the valid call `case`."""
        for refusal in wrong:
            name = f"refuse-{refusal.name}"
            if self.job.takes(name):
                run = partial(self.refused, module, kernel, case, refusal)
                self.attempt(name, f"must be refused: {refusal.reason}", run)

    def refused(self, module: Any, kernel: Kernel, case: Case, refusal: Refusal) -> str | None:
        """What is wrong with how a wrong call was answered, or None."""
        setup = Setup(kernel, case, self.machine.device)
        call = refusal.spoilt(right_call(setup))
        spoilt = {name: call.get(name) for name in setup.outputs}
        try:
            # `running` lets nothing be written: the refusal comes before the launch.
            taking = contextlib.nullcontext() if refusal.in_memory else taken_for_memory(module)
            with self.machine.running(setup), refusal.under(), taking:
                module.gemm(call.pop("a"), call.pop("b"), **call)
        except refusal.error as error:
            missing = [word for word in refusal.words if word not in str(error)]
            if type(error) is not refusal.error or missing:
                return f"raised {describe(error)}; expected {refusal.error.__name__} with {', '.join(missing)}"
        except Exception as error:
            return f"raised {describe(error)}; expected {refusal.error.__name__}"
        else:
            return f"was accepted; expected {refusal.error.__name__} with {', '.join(refusal.words)}"
        for name, operand in setup.outputs.items():
            if spoilt[name] is not None and operand.changed() is not None:
                return f"wrote to {name} before it refused"
        # A file that stands alone has no siblings.
        asked = refusal.sibling and hasattr(module, "CALL")
        return self.said_by_refusal(module, kernel, case, refusal) if asked else None

    def said_by_refusal(self, module: Any, kernel: Kernel, case: Case, refusal: Refusal) -> str | None:
        """What is wrong with `refusal()`, by which the family's function finds a sibling, or None."""
        setup = Setup(kernel, case, self.machine.device)
        call = right_call(setup)
        call.pop("config")
        before = module.CALL.refusal(**call)
        if before is not None:
            return f"refusal() turns a right call down: {before}"
        wrong = refusal.spoilt(call)
        wrong.pop("config", None)
        with refusal.under():
            reason = module.CALL.refusal(**wrong)
        return None if isinstance(reason, str) else f"gemm refuses the operands, and refusal() returns {reason!r}"


def _place(machine: Machine) -> tuple[tuple[str, str], ...]:
    device = torch.cuda.get_device_name(machine.device) if machine.hardware else "interpreter"
    return (("device", device), *versions().items())
