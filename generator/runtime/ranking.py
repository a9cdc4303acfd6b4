"""The choice among the kernels of a contract: by measurements, or else by an analytic cost model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from . import alignment
from .call import Call
from .call_tensors import State
from .contracts import Choice, KernelModule, Sizes

#: How `a` and `b` lie, as `alignment.whole_and_crossing` says it.
Lies: TypeAlias = tuple[tuple[bool, bool], tuple[bool, bool]]


def best(name: str, table: Call, kernels: Sequence[str], tuned: Any, analytic: Any) -> Callable[..., Choice | None]:
    """A function that chooses for the contract `name`, by the modules `_tuned` and `_analytic` of the family.

    Of the kernels that may run, and a call, it returns the one that is chosen, and its configuration, or None.
    """
    grouped = "offsets" in [x.name for x in table.operands]
    described = any("_descriptor_" in kernel for kernel in kernels)

    def chosen(taking: Sequence[KernelModule], state: State, lies: Lies | None = None) -> Choice | None:
        numbers, a, b = state.numbers, state.given["a"], state.given["b"]
        skewed: Sequence[Sizes] = ()
        sizes: Sizes = tuple([numbers[size.name] for size in table.sizes])
        if grouped:
            grouped_calls = importlib.import_module(".grouped_calls", __package__)
            sizes, *skewed = grouped_calls.spread(numbers)
        if min(sizes) == 0:
            return None
        # Measurements are of loads from whole rows; others are as fast only if the hardware copies them, where it can.
        fast = taking
        lies = lies or (alignment.whole_and_crossing(a), alignment.whole_and_crossing(b))
        (whole_a, crossing_a), (whole_b, crossing_b) = lies
        if described and not (whole_a and whole_b):
            fast = [x for x in taking if any("a_desc" in launch.tensors for launch in x.CALL.launches)]
        found: Choice | None = None
        if tuned is not None:
            crossing = crossing_a, crossing_b
            found = tuned.choose(name, fast, sizes, a.element_size(), a.device, crossing, tuple(skewed))
        if found is None and analytic is not None:
            found = analytic.choose(name, tuple(fast or taking), sizes, a.device, tuple(skewed))
        return found

    return chosen
