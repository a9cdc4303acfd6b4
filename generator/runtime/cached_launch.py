"""The launch of a kernel's plan, which later calls of the same signature repeat, and the memory for partial sums.

`launched` launches a plan for the first time and returns a `Call`. A `Call` holds no tensor: it allocates the results
and launches the compiled kernel with the addresses and numbers of its own operands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.runtime import driver

from . import relaunch
from .contracts import CachedCall, Config, Kernel, Operands, Plan, PlannedLaunch, Result
from .relaunch import Grid

# How many streams have a cached workspace, and its largest size. A call that needs more allocates its own.
_STREAMS = 8
_BYTES = 2**26
_COUNTERS = 2**16


class _Within(threading.local):
    """Whether this thread is within an operator of `operators`."""

    operator: bool = False


within = _Within()


def launched(
    module: Kernel,
    row: Config | None,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    operands: Operands,
) -> tuple[Result, CachedCall]:
    """Run a kernel's plan; return the result, and a function that runs it for other calls of this signature.

    `row` is the kernel's configuration; None lets the kernel choose. Raises what `plan` of the kernel's module does.
    """
    plan = module.plan(a, b, **operands, out=out, config=row)
    given = {"a": a, "b": b, "out": out, **operands}
    call: CachedCall | None = None
    if plan.grid is not None:
        with torch.cuda.device_of(a):  # type: ignore[no-untyped-call]
            for name in getattr(plan, "cleared", ()):
                plan.results[name].zero_()
            call = _first(plan, given)
            for name, reduce, parts in getattr(plan, "reduced", ()):
                reduce(plan.parts[parts], -2, out=plan.results[name])
    results = tuple(plan.results.values())
    if call is None:
        # With K = 0, descriptors do not belong to operands.
        def again(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, operands: Operands) -> Result:
            return module.gemm(a, b, **operands, out=out, config=row)

        call = again
    return results if len(results) > 1 else results[0], call


# What Triton compiles a kernel for -> the compiled kernel, after its first launch.
_compiled: dict[tuple[object, ...], Any] = {}


def _first(plan: Plan, given: Operands) -> Call | None:
    """Launch a plan; return its `Call`, or None if it cannot be repeated.

    Triton launches the first plan of each specialisation. Those of other sizes are launched without it.
    """
    launches = launches_of(plan)
    repeatable = relaunch.KNOWN and given["a"].numel()
    keys = [relaunch.specialisation(each.kernel, each.arguments) if repeatable else None for each in launches]
    compiled = [None if key is None else _compiled.get(key) for key in keys]
    fresh = None in compiled
    if fresh:
        compiled = [each.kernel[each.grid](**each.arguments) for each in launches]
        if not repeatable or None in compiled:
            return None
        _compiled.update((key, each) for key, each in zip(keys, compiled) if key is not None)
    for each, found in zip(launches[1:], compiled[1:]):
        each.compiled = found
    call = Call(plan, compiled[0], given)
    if not fresh:
        stream, made = call.stream(call.index), {**_made(plan, given), **getattr(plan, "workspace", {})}
        operands = [*given.values(), *made.values()]
        call.launch(stream, operands)
        if call.then is not None:
            call.then(stream, operands)
    return call


def launches_of(plan: Plan) -> list[PlannedLaunch]:
    """The launches of a plan, one after the other."""
    return [plan, plan.then] if hasattr(plan, "then") else [plan]


def _made(plan: Plan, given: Operands) -> dict[str, torch.Tensor]:
    """The tensors that every call allocates: results and parts of sums that are not given."""
    made = {**plan.results, **getattr(plan, "parts", {})}
    return {name: x for name, x in made.items() if given.get(name) is None}


class Call:
    """A plan with its compiled kernel, launched for the operands of other calls of the same signature.

    A call makes a list of tensors and numbers: `given`, which are `a`, `b`, `out` and the other operands in their
    order; then a new tensor for each of `made`, which has their sizes, strides and dtypes; then the workspace, of so
    many bytes and counters. `cleared`, `results` and `reduced` refer to tensors by their index in this list; `result`
    is that of the only result. `then` is the second launch.
    """

    device: torch.device
    index: int
    stream: Callable[[int], int]
    current: Callable[[], int]
    made: list[tuple[Sequence[int], Sequence[int], torch.dtype]]
    workspace: tuple[int, int] | None
    cleared: list[int]
    reduced: list[tuple[int, Callable[..., torch.Tensor], int]]
    results: list[int]
    result: int | None
    launch: relaunch.Launch
    then: relaunch.Launch | None

    def __init__(self, plan: Plan, compiled: Any, given: Operands) -> None:
        device = plan.results["out"].device
        self.device, self.index = device, device.index
        self.stream, self.current = driver.active.get_current_stream, driver.active.get_current_device
        grid = plan.grid
        if callable(grid):
            # The grid of an autotuned kernel depends on the configuration that it chose for these sizes.
            best = getattr(plan.kernel, "best_config", None)
            grid = grid({**plan.arguments, **(best.all_kwargs() if best else {})})
        # The index of each operand, and of each tensor that a call allocates, in the list that a call makes.
        places = {name: place for place, (name, value) in enumerate(given.items()) if value is not None}
        self.made = []
        for name, x in _made(plan, given).items():
            places[name] = len(given) + len(self.made)
            self.made.append((x.shape, x.stride(), x.dtype))
        self.workspace = None
        if hasattr(plan, "workspace"):
            work, counters = plan.workspace["work"], plan.workspace["counters"]
            self.workspace = work.numel() * work.element_size(), counters.numel()
            places["work"] = len(given) + len(self.made)
            places["counters"] = places["work"] + 1
        self.cleared = [places[name] for name in getattr(plan, "cleared", ())]
        self.reduced = [(places[x], how, places[parts]) for x, how, parts in getattr(plan, "reduced", ())]
        self.results = [places[name] for name in plan.results]
        self.result = self.results[0] if len(self.results) == 1 else None
        self.launch = _repeated(plan, compiled, grid, places)
        then = getattr(plan, "then", None)
        self.then = then and _repeated(then, then.compiled, then.grid, places)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, operands: Operands) -> Result:
        if self.current() != self.index:
            with torch.cuda.device(self.index):
                return self(a, b, out, operands)
        stream = self.stream(self.index)
        given: list[Any] = [a, b, out, *operands.values()]
        for size, strides, dtype in self.made:
            given.append(torch.empty_strided(size, strides, dtype=dtype, device=self.device))
        if self.workspace is not None:
            given += _workspace(self.device, stream, *self.workspace)
        for place in self.cleared:
            given[place].zero_()
        try:
            self.launch(stream, given)
            if self.then is not None:
                self.then(stream, given)
        except BaseException:
            # The kernel may not have reset its counters.
            free_workspaces()
            raise
        if self.result is not None:
            only: torch.Tensor = given[self.result]
            return only
        for result, reduce, parts in self.reduced:
            reduce(given[parts], -2, out=given[result])
        return tuple(given[place] for place in self.results)


def _repeated(plan: PlannedLaunch, compiled: Any, grid: Grid, places: Mapping[str, int]) -> relaunch.Launch:
    """One of a plan's launches with its compiled kernel, for operands at `places` in the list that a call makes."""
    # `triton.heuristics` adds only constants, which a launch does not read.
    values = {name: plan.arguments.get(name) for name in plan.kernel.arg_names}
    slots = {name: places[owner] for name, owner in plan.slots.items() if owner in places}
    return relaunch.Launch(compiled, (*grid, 1, 1)[:3], values, slots)


# Device and stream -> memory for partial sums, and counters, which are zero before and after each launch.
_workspaces: dict[tuple[torch.device, int], tuple[torch.Tensor, torch.Tensor]] = {}


def free_workspaces() -> None:
    """Free the memory that this family keeps for partial sums: at most 64 MiB for each of at most 8 streams.

    Kernels of the schedule `stream_k` use it. The next call of such a kernel allocates it again.
    """
    _workspaces.clear()


def _workspace(device: torch.device, stream: int, size: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`size` bytes, and `count` zero counters, for a launch on `stream`, the current stream."""
    if size > _BYTES or count > _COUNTERS or within.operator or torch.cuda.is_current_stream_capturing():
        # A CUDA graph has its own workspace, and clears it on every replay. What an operator allocates may belong to
        # the memory of a graph that torch.compile is about to record.
        return _memory(device, size, count)
    found = _workspaces.get((device, stream))
    if found is None or found[0].numel() < size or found[1].numel() < count:
        if found is not None:
            size, count = max(size, found[0].numel()), max(count, found[1].numel())
        elif len(_workspaces) >= _STREAMS:
            del _workspaces[next(iter(_workspaces))]
        found = _workspaces[device, stream] = _memory(device, size, count)
    return found


def _memory(device: torch.device, size: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    sums = torch.empty(size, dtype=torch.uint8, device=device)
    return sums, torch.zeros(count, dtype=torch.int32, device=device)
