"""Render GEMM kernels for Triton from YAML specs.

The stages, each a function from one immutable value to the next:

    read      spec file -> Spec            generator.spec       positions kept, all mistakes reported at once
    expand    Spec -> Family               generator.expand     the product of the axes, less what cannot exist
    render    Family -> (name, text) ...   generator.render     Python chooses, Jinja spells
    apply     (name, text) ... -> folder   generator.apply      atomic, only what changed, never another's file

Nothing here imports torch or triton; what needs them lives in the packages below (`verify`, `bench`, `tune`).
"""

__version__ = "0.1.0"
