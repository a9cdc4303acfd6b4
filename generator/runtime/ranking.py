"""The choice among the kernels of a contract: by measurements, or else by a cost model; and copies that pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from . import alignment, spreading
from .call import Row, State
from .launch import Function, KernelModule, Operands, Step, on_gpu

#: M, N and K; of a batch or of groups with their number in front.
Sizes: TypeAlias = tuple[int, ...]
#: A kernel, and the configuration with which it is to be launched.
Choice: TypeAlias = tuple[KernelModule, Row]
#: How `a` and `b` lie, as `alignment.whole_and_crossing` says it.
Lies: TypeAlias = tuple[tuple[bool, bool], tuple[bool, bool]]


class Ranking:
    """What a call of a function does next, by the modules `_tuned` and `_analytic` of the family.

    With `typical_m`, configurations are compared for these numbers of rows, and M of a call has no part in the choice.
    `copies`, if operands may be copied, says where another contract or a copy is faster (`copies.Copies`); `aten`, if
    torch's own products may run, says where they are (`aten_product.AtenProducts`): the step has a call for the kernel.
    """

    def __init__(
        self,
        tuned: Any = None,
        analytic: Any = None,
        copies: Any = None,
        aten: Any = None,
        typical_m: Sequence[int] = (),
    ) -> None:
        self.tuned, self.analytic, self.copies, self.aten = tuned, analytic, copies, aten
        self.typical_m, self.score = typical_m, spreading.slowdowns if typical_m else spreading.scores

    def __call__(self, function: Function, given: Operands) -> Step:
        run = self.aten and self.aten.chosen(function, given)
        if run is not None:
            return None, run, {}, None
        # Products that `offsets` divide are not copied.
        copies: Any = self.copies if function.places == 2 else None
        a, b = given["a"], given["b"]
        gpu = on_gpu(a)
        twin = None if copies is None else copies.other(a, b, gpu)
        if twin is not None:
            return *twin, None, None
        gpu = gpu and min(a.dim(), b.dim()) > 1
        # Operands of whole rows are aligned, and the choice reads how they lie too.
        lies = (alignment.whole_and_crossing(a), alignment.whole_and_crossing(b)) if gpu and copies else None
        aligning = lies is not None and not (lies[0][0] and lies[1][0]) and copies.worth_aligning(a, b)
        lining, comparable = lies is not None and copies.worth_lining(a, b), gpu
        if gpu and not (aligning or lining):
            # The kernel that is chosen among all is the one among those that accept, if it accepts.
            state = function.state(given)
            best = self.best(function, function.modules(), state, lies)
            if best is not None and best[0].CALL.reason(state) is None:
                return None, *best, state if function.nominal is None else None
            comparable = best is not None
        taking = function.accepting(given, some=False)
        refused = aligning and len(taking) < len(function.kernels)
        if refused or lining:
            copier: Any = (copies.aligning if refused else copies.lining)(a, b)
            copied = dict(zip("ab", copier.like(a, b)))
            more = function.accepting({**given, **copied}, some=False)
            if more and (not refused or not taking or more[0] is not taking[0]):
                return copier, function, None, None
        # It says why, where there is none.
        taking = taking or function.accepting(given)
        best = self.best(function, taking, function.state(given)) if comparable else None
        # Where neither measurements nor a cost model compare kernels, the first one chooses its own configuration.
        kernel, row = best or (taking[0], None)
        return None, kernel, row, None

    def best(
        self, function: Function, taking: Sequence[KernelModule], state: State, lies: Lies | None = None
    ) -> Choice | None:
        """The kernel of those that may run that is chosen for a call, and its configuration, or None."""
        numbers, a, b = state.numbers, state.given["a"], state.given["b"]
        sizes: Sizes = tuple([numbers[size] for size in function.table.sizes])
        ways = (sizes,) if function.places == 2 else tuple(spreading.of_groups(numbers))
        if min(ways[0]) == 0:
            return None
        ways = self.typical(ways[0]) or ways
        # Measurements are of loads from whole rows; others are as fast only if the hardware copies them, where it can.
        fast = taking
        lies = lies or (alignment.whole_and_crossing(a), alignment.whole_and_crossing(b))
        (whole_a, crossing_a), (whole_b, crossing_b) = lies
        if not (whole_a and whole_b) and any("_descriptor_" in kernel for kernel in function.kernels):
            fast = [x for x in taking if x.CALL.described]
        choice: Choice | None = None
        if self.tuned is not None:
            crossing = crossing_a, crossing_b
            choice = self.tuned.choose(function.name, fast, ways, a.element_size(), a.device, crossing, self.score)
        if choice is None and self.analytic is not None:
            choice = self.analytic.choose(function.name, tuple(fast or taking), ways, a.device, self.score)
        return choice

    def typical(self, sizes: Sizes) -> tuple[Sizes, ...]:
        """The sizes for which configurations are compared in place of those of a call, if there are any."""
        return tuple([(m, *sizes[-2:]) for m in self.typical_m])
