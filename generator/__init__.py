"""Render GEMM kernels for Triton from YAML specs, and prove, time and tune them.

The stages, each a function from one immutable value to the next:

    read      spec file -> Spec            generator.language.spec   positions kept, all mistakes reported at once
    expand    Spec -> Family               generator.plan.expand     the product of the axes minus illegal combinations
    render    Family -> (name, text) ...   generator.emit.render     Python chooses, Jinja spells
    apply     (name, text) ... -> folder   generator.emit.apply      atomic, only what changed, only files of its own

The packages, each of which imports only those before it:

    epilogue  formulas, operations and chains of them: data and algebra
    language  the words of a spec, and reading one
    plan      which kernels exist, with which configurations
    cost      what a configuration costs in time
    lowering  a kernel as its template reads it
    emit      text, manifest, folder
    bounds, verify, bench, tune    proof and measurement; these alone need torch, triton or z3

The functions of the command line, with typed results, and their errors: `import generator` has the names of `__all__`,
and imports what defines a name when it is used (`__init__.pyi` has their types). docs/automation.md shows them.
"""

import importlib

__version__ = "0.2.0"

#: The module that defines each name. Modules of the package do not import these names from here.
_DEFINED_IN = {
    "check": "generator.emit.rendering_call",
    "render": "generator.emit.rendering_call",
    "variants": "generator.emit.rendering_call",
    "CheckedFolder": "generator.emit.rendering_results",
    "CheckResult": "generator.emit.rendering_results",
    "FamilyVariants": "generator.emit.rendering_results",
    "FileDifference": "generator.emit.rendering_results",
    "RenderedFolder": "generator.emit.rendering_results",
    "RenderResult": "generator.emit.rendering_results",
    "VariantsResult": "generator.emit.rendering_results",
    "NeverChosen": "generator.emit.never_chosen",
    "Kernel": "generator.plan.kernels",
    "LeftOut": "generator.plan.kernels",
    "Failure": "generator.verify.jobs",
    "Job": "generator.verify.jobs",
    "JobResult": "generator.verify.jobs",
    "JobState": "generator.verify.jobs",
    "VerificationPlan": "generator.verify.verification_run",
    "VerifyResult": "generator.verify.verification_run",
    "CallError": "generator.language.errors",
    "FileError": "generator.files.reading",
    "GeneratorError": "generator.files.generator_error",
    "Mistake": "generator.language.errors",
    "NotInstalled": "generator.files.package_data",
    "Refused": "generator.emit.apply",
    "SpecError": "generator.language.errors",
    "formula": "generator.language.traced_formula",
}

__all__ = (*_DEFINED_IN, "verify")


def __getattr__(name: str) -> object:
    if name == "verify":
        # The package of that name, which can be called.
        return importlib.import_module("generator.verify")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_DEFINED_IN[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
