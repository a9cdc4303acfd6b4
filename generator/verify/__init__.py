"""Verify rendered kernels: load each file by its path, as a user does, and compare its results with float64.

The modules, from a call of the command inwards:

    verification_run one call: what it proves (`generator.verify`, the function)
    verification_call the call of the command line: what it prints and writes, and its exit status
    job_selection    the jobs of a run: a kernel, or a contract's function, at a level; or one shard of even cost
    level_scope      what a level cannot prove, and which other level, Triton version or device (`gpu`) does
    coverage         which combinations run when not all do
    result_cache     cached results of earlier runs, keyed by the bytes that their jobs have read (`job_inputs`)
    static_checks    the text of a folder (`folder_files`) and of each file (`rendered_text`) against its manifest
    bounds_job       the bounds level: runs `generator.bounds` on one kernel
    worker_pool      runs the other jobs in worker processes; each level has its own processes
    run_report       the results on the terminal and as JUnit XML; `page` makes the report of its HTML page
    proof_records    the results as JSON, and what such a record lacks

The levels interpret and gpu:

    worker           one job in a worker: every case, every refusal, the candidates of the autotuner (`offered_rows`)
    cases            the calls of a kernel, or of a function, each with its reason; `case_sizes` are the supported sizes
    refusals         calls that a launcher must reject: wrong operands, or what a kernel lacks
    execute          one case on the interpreter or a GPU, and all checks after it, `tile_order` among them
    case_setup       a case's operands, in buffers with poisoned margins; `generator.problem` draws their values,
                     computes the float64 result from the spec with a bound on the errors of any kernel, and compares
    interpreter      Triton's interpreter with corrections; every address is checked

The level compile:

    compile          one job in a worker: every launch of a kernel for one target
    launches         each configuration with each class of arguments that Triton specialises on
    specialise       the specialisation that the launcher and Triton's launch path select, without a GPU
    machine_code     the machine code of a specialisation, and the resources that it needs
    expectations     the instructions that the machine code must and must not contain

No module reads a template or the rendered text to learn which result is right. The modules that `verification_run`
imports do not import torch or triton: a worker sets its environment before it imports them.
"""

import inspect
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """This package, which is also the function `generator.verify`: an import of one of its modules sets that name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _function()(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_function())


def _function() -> Any:
    from generator.verify.verification_run import verify

    return verify


sys.modules[__name__].__class__ = _CallablePackage
