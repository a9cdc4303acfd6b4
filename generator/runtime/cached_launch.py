"""The launches of a call, which later calls of the same signature repeat.

`launched` launches a kernel's plan for the first time and returns a `Repeat`, which holds no tensor: it allocates the
results and launches the compiled kernel with the addresses and numbers of its own operands.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import relaunch
from .call import Call, Plan, Planned, in_turn
from .call_signatures import SIGNATURES
from .call_tensors import State
from .contracts import CachedCall, Config, KernelModule, Operands, Result
from .private import driver

# What Triton compiles a kernel for -> the compiled kernel, after its first launch.
_compiled: dict[tuple[object, ...], Any] = {}

# A table, and which operands and results a call has -> where they are.
_placed: dict[tuple[object, ...], _Places] = {}


def launched(
    module: KernelModule,
    row: Config | None,
    a: Tensor,
    b: Tensor,
    out: Tensor | None,
    operands: Operands,
    *,
    accepted: bool = False,
    state: State | None = None,
) -> tuple[Result, CachedCall]:
    """Run a kernel's plan; return the result, and a function that runs it for other calls of this signature.

    `row` is the kernel's configuration; None lets the kernel choose. `accepted`: the kernel is known to accept the
    operands. `state`: the call with its sizes, where they are known. Raises what the kernel's call does.
    """
    given = {"a": a, "b": b, "out": out, **operands}
    table = module.CALL
    if state is None:
        state = table.state(given)
    plan = table.plan_of(state, row, accepted=accepted)
    call: CachedCall | None = started(table, plan, given, a)
    results = tuple(plan.results.values())
    if call is None:

        def again(a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
            return module.gemm(a, b, **operands, out=out, config=row)

        call = again
    return results[0] if len(results) == 1 else results, call


def started(table: Call, plan: Plan, given: Operands, first: Tensor) -> Repeat | None:
    """Run a plan on the device of `first`; return what runs it for other operands, or None if it cannot be repeated."""
    if not plan.launches:
        return None
    with in_turn(), torch.cuda.device_of(first):  # type: ignore[no-untyped-call]
        for name in table.cleared:
            plan.results[name].zero_()
        # With K = 0, descriptors do not belong to operands.
        found = _first(table, plan, given, repeatable=relaunch.KNOWN and first.numel() > 0)
        for reduction in table.reduced:
            reduction.fill(plan)
    return found


def _first(table: Call, plan: Plan, given: Operands, *, repeatable: bool) -> Repeat | None:
    """Launch a plan; return its `Repeat`, or None if it cannot be repeated.

    Triton launches the first plan of each specialisation. Those of other sizes are launched without it.
    """
    keys = [relaunch.specialisation(each.kernel, each.arguments) if repeatable else None for each in plan.launches]
    compiled = [None if key is None else _compiled.get(key) for key in keys]
    if None in compiled:
        compiled = [each.kernel[each.grid](**each.arguments) for each in plan.launches]
        call = repeated(table, plan, compiled, given) if repeatable and None not in compiled else None
        if call is not None:
            _compiled.update((key, each) for key, each in zip(keys, compiled) if key is not None)
        return call
    call = Repeat(table, plan, compiled, given)
    call.run(call.tensors(plan, given))
    return call


def repeated(table: Call, plan: Plan, compiled: Sequence[Any], given: Operands) -> Repeat | None:
    """The `Repeat` of a plan; None if the compiled kernels lack what `relaunch` reads."""
    try:
        return Repeat(table, plan, compiled, given)
    except AttributeError:
        return None


def _shared(table: Call) -> list[str]:
    """The memory that calls share one after the other, `memory.Workspace`: partial sums, and counters."""
    return [each.name for each in table.memory if hasattr(each, "cleared")]


class _Places:
    """Where the tensors of a call are in the list that `Repeat` makes: the same for all sizes.

    `made` are the names of those that every call allocates: results that are not given, and memory of its own.
    `slots` has for each launch the index of a parameter's tensor.
    """

    def __init__(self, table: Call, plan: Plan, given: Operands) -> None:
        self.shared = _shared(table)
        made = [name for name, x in {**plan.results, **plan.memory}.items() if x is not None]
        self.made = [name for name in made if given.get(name) is None and name not in self.shared]
        # The index of each operand, and of each tensor that a call allocates, in the list that a call makes.
        places = {name: place for place, (name, value) in enumerate(given.items()) if value is not None}
        places.update((name, len(given) + index) for index, name in enumerate([*self.made, *self.shared]))
        self.cleared = [places[name] for name in table.cleared]
        self.reduced = [(places[x.name], x.run, places[x.parts]) for x in table.reduced if x.name in places]
        # The place of a gradient that is not needed is that of None.
        self.results = [places.get(name, -1) for name in plan.results]
        self.slots = [
            {name: places[owner] for name, owner in each.owners.items() if owner in places} for each in plan.launches
        ]


def _places(table: Call, plan: Plan, given: Operands) -> _Places:
    """The places of a call, which are cached by the table, and by which operands and results there are."""
    there = [x is not None for x in (*given.values(), *plan.results.values())]
    key = table, *given, *there
    found = _placed.get(key)
    if found is None:
        if len(_placed) >= SIGNATURES:
            _placed.clear()
        found = _placed[key] = _Places(table, plan, given)
    return found


class Repeat:
    """A plan with its compiled kernels, launched for the operands of other calls of the same signature.

    A call makes a list of tensors and numbers: `given`, which are `a`, `b`, `out` and the other operands in their
    order; then a new tensor for each of `made`, which has their sizes, strides and dtypes; then the workspace, of so
    many bytes and counters. `cleared`, `results` and `reduced` refer to tensors by their index in this list; `result`
    is that of the only result. `launches` are made one after the other.
    """

    def __init__(self, table: Call, plan: Plan, compiled: Sequence[Any], given: Operands) -> None:
        device = next(x for x in plan.results.values() if x is not None).device
        self.device, self.index = device, device.index
        active = driver.active
        self.stream, self.current = active.get_current_stream, active.get_current_device
        self.places = places = _places(table, plan, given)
        self.workspace: tuple[int, int] | None = None
        if places.shared:
            # Only families with such launches have the module.
            workspaces = importlib.import_module(".workspaces", __package__)
            self.workspaces = workspaces
        tensors = {**plan.results, **plan.memory}
        self.made = [(x.shape, x.stride(), x.dtype) for x in [tensors[name] for name in places.made]]
        if places.shared:
            work, counters = (tensors[name] for name in places.shared)
            self.workspace = work.nbytes, counters.numel()
        self.cleared, self.reduced, self.results = places.cleared, places.reduced, places.results
        self.result = self.results[0] if len(self.results) == 1 else None
        self.launches = [_launch(*each) for each in zip(plan.launches, compiled, places.slots)]

    def transposed(self) -> Repeat:
        """The same launches, whose only result is seen with its last two dimensions exchanged."""
        found = copy.copy(self)
        found.made = list(self.made)
        (*batch, m, n), (*strides, of_m, of_n), dtype = self.made[0]
        found.made[0] = torch.Size((*batch, n, m)), (*strides, of_n, of_m), dtype
        return found

    def tensors(self, plan: Plan, given: Operands) -> list[Any]:
        """The list of a call with its own plan."""
        tensors, places = {**plan.results, **plan.memory}, self.places
        return [*given.values(), *[tensors[name] for name in (*places.made, *places.shared)]]

    def run(self, tensors: Sequence[Any]) -> None:
        """Launch the kernels with such a list."""
        stream = self.stream(self.index)
        for launch in self.launches:
            launch(stream, tensors)

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, operands: Operands) -> Result:
        tensors = self.made_of([a, b, out, *operands.values()])
        if self.result is not None:
            only: Tensor = tensors[self.result]
            return only
        return tuple([tensors[place] for place in self.results])

    def made_of(self, given: list[Any]) -> list[Any]:
        """The list of a call with these operands, whose kernels have been launched."""
        if self.current() != self.index:
            with torch.cuda.device(self.index):
                return self.made_of(given)
        stream = self.stream(self.index)
        for size, strides, dtype in self.made:
            given.append(torch.empty_strided(size, strides, dtype=dtype, device=self.device))
        if self.workspace is not None:
            given += self.workspaces.workspace(self.device, stream, *self.workspace)
        for place in self.cleared:
            given[place].zero_()
        try:
            for launch in self.launches:
                launch(stream, given)
        except BaseException:
            if self.workspace is not None:
                # The kernel may not have reset its counters.
                self.workspaces.free()
            raise
        for result, reduce, parts in self.reduced:
            reduce(given[result], given[parts])
        return given


def _launch(plan: Planned, compiled: Any, slots: Mapping[str, int]) -> relaunch.RepeatedLaunch:
    """One of a plan's launches with its compiled kernel; `slots` has the index of a parameter's tensor."""
    grid: Any = plan.grid
    if callable(grid):
        # The grid of an autotuned kernel depends on the configuration that it chose for these sizes.
        grid = grid({**plan.arguments, **plan.kernel.best_config.all_kwargs()})
    # `triton.heuristics` adds only constants, which a launch does not read.
    values = {name: plan.arguments.get(name) for name in plan.kernel.arg_names}
    return relaunch.RepeatedLaunch(compiled, (*grid, 1, 1)[:3], values, slots)
