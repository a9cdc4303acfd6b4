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
"""

__version__ = "0.2.0"
