"""Cheaper forms of functions of the formula language, which kernels compute in them, and what they are off by.

The error of a form is measured by `tests/verify/test_approximate_math.py` over every
value of fp16 and bf16, and is less than half
a unit in the last place of these types. Where the hardware has approximate instructions a launcher says so by the
constexpr APPROX; without them the forms are plain Triton. On sm90 a sigmoid takes 4 instructions for 13, a tanh 7 for
21, or a single one. A sigmoid is not made of tanh.approx, which cancels where the sigmoid is small.

`auto` computes the built-in operations in them where every output of a kernel has 16 bits or fewer, and the rest
exactly: what a formula of a spec's own makes of an error is not known, and with `rounding: torch` a result is compared
with another bit for bit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from generator.epilogue import formula
from generator.epilogue.chain import Step
from generator.epilogue.formula import FUNCTIONS, FormulaFunction
from generator.language.elements import ELEMENTS
from generator.language.model import Variant

#: The explicit bits of a mantissa, at most, of types whose unit in the last place is coarse.
_COARSE = 7
#: What PTX's tanh.approx is off by at the most, relative to its result, by the PTX ISA.
TANH_APPROX = 2.0**-11
#: Nearer 0 a result may come out as 0: the exponential in it, or its reciprocal, is subnormal.
LOST = 2.0**-118

#: Operation -> type of the result -> how far its value may be from the formula's, in units of the type's last place,
#: rounded up: the most that any value of fp16 and bf16 comes to in Triton's interpreter, and what it is bounded by
#: where a GPU's instructions are as exact as PTX has them.
ERRORS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "sigmoid": {"fp16": (0.00091, 0.0033), "bf16": (0.00089, 0.0021), "fp32": (59, 140)},
    "tanh": {"fp16": (0.042, 0.13), "bf16": (0.0053, 0.13), "fp32": (350, 1100)},
    "silu": {"fp16": (0.0014, 0.0041), "bf16": (0.00086, 0.0023), "fp32": (56, 150)},
    "gelu_tanh": {"fp16": (0.0024, 0.0086), "bf16": (0.0027, 0.0073), "fp32": (180, 480)},
    "quick_gelu": {"fp16": (0.0016, 0.0065), "bf16": (0.0015, 0.0045), "fp32": (94, 290)},
}

#: Gates that are products of a function and of what is exact, so that they are off by what the function is.
_GATES = ("swiglu", "geglu_tanh")
#: Bits of the widest output beside which `auto` takes the forms.
_WIDEST = 16

#: What each form calls besides.
_CALLED = {"fast_sigmoid": "reciprocal", "fast_tanh": "reciprocal"}


def coarse(out: str) -> bool:
    """Whether the hardware's tanh.approx is exact enough for a result of the type `out`."""
    element = ELEMENTS[out]
    return element.bits <= _WIDEST and element.mantissa <= _COARSE


def math_of(v: Variant) -> str:
    """How a kernel computes: `fast` every function, `auto` those of operations whose error is known, `exact` none."""
    narrow = ELEMENTS[v.dtype.out].bits <= _WIDEST and not any(output.reduced for output in v.epilogue.outputs)
    return v.math if v.math != "auto" or (narrow and not v.rounds_between) else "exact"


def takes(step: Step, math: str) -> bool:
    """Whether kernels that compute as `math` says compute a step in the cheaper forms."""
    return bool(_called(step)) and (math == "fast" or (math == "auto" and _built_in(step, (*ERRORS, *_GATES))))


def _built_in(step: Step, names: Collection[str]) -> bool:
    """Whether a step is the built-in operation of one of `names`, which a spec may give to its own."""
    return step.operation in names and step.meaning.built_in


def functions(cheaper: bool, out: str) -> Mapping[str, FormulaFunction]:
    """The functions of the formula language as kernels with results of the type `out` write them."""
    if not cheaper:
        return FUNCTIONS
    helpers = {"sigmoid": "fast_sigmoid", "tanh": "coarse_tanh" if coarse(out) else "fast_tanh"}
    forms = {n: replace(FUNCTIONS[n], triton=f"_{h}({{}}, APPROX)", helper=h) for n, h in helpers.items()}
    return {**FUNCTIONS, **forms}


def helpers(tree: ast.expr, table: Mapping[str, FormulaFunction]) -> tuple[str, ...]:
    """The macros of templates/math.j2 that `tree` needs where functions are those of `table`, in alphabetical order."""
    called = {table[name].helper if name in table else "power" for name in formula.called(tree)}
    return tuple(sorted({helper for name in called if name for helper in (name, _CALLED.get(name)) if helper}))


def applies(v: Variant) -> bool:
    """Whether a kernel computes a step of its chain in the cheaper forms."""
    math = math_of(v)
    return any(takes(step, math) for step in v.epilogue.steps)


def _called(step: Step) -> list[str]:
    return [name for name in ("sigmoid", "tanh") if name in step.called]


def described(v: Variant) -> str:
    """What the forms that a kernel computes in are off by, in words; nothing where they are exact."""
    out, math, fast = v.dtype.out, math_of(v), dict[str, str]()
    for step in v.epilogue.steps:
        if not takes(step, math):
            continue
        if _built_in(step, ERRORS):
            fast[step.operation] = step.operation
        else:
            fast |= {f"the {name} of {step.operation}": name for name in _called(step)}
    if not fast:
        return ""
    # A unit of a narrower type is larger than one of bf16.
    unit = out if out in ERRORS["tanh"] else "bf16"
    take = "uses a fast form" if len(fast) == 1 else "use fast forms"
    interpreted, bounds = (_joined([ERRORS[name][unit][i] for name in fast.values()]) for i in (0, 1))
    # A sentence begins with it, and an operation's name stays as it is.
    text = re.sub(r"^the ", "The ", " and ".join(fast))
    text = f" {text} {take}, whose error over all fp16 and bf16 inputs is at most {interpreted} ulp of {unit}"
    text += f" in Triton's interpreter, and at most {bounds} with a GPU's approximate instructions"
    return text + ("; results nearer to 0 than 2**-118 may become 0." if unit != "fp16" else ".")


def _joined(errors: Sequence[float]) -> str:
    """Errors in words, once where they are all the same."""
    return " and ".join(f"{error:g}" for error in (errors[:1] if len(set(errors)) == 1 else errors))
