"""A call of a kernel: what is launched for its operands, and how a configuration is chosen.

The file of a kernel has a `Call`, `CALL`: what it says of operands, results and launches stands nowhere else.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import triton
from triton import knobs

from .call_tensors import (
    MOST,
    Operand,
    Result,
    State,
    how_flattened,
    measure,
    require_whole,
)
from .device_memory import Offered
from .extents import Extent, Operation, Size
from .launchable import launchable, require_apart

#: An element of a kernel's CONFIGS: the sizes of a tile, the numbers of warps and stages, and others, by name.
Row: TypeAlias = dict[str, int]
#: What a caller gives for one: the element, its index, or None for the kernel's own choice.
Config: TypeAlias = Row | int | None

# One for all families of a process, which interpret by the same module.
_interpreting = vars(triton).setdefault("interpreting", threading.RLock())  # pyright: ignore[reportAttributeAccessIssue]


@dataclass
class Planned:
    """A launch for a call, `kernel[grid](**arguments)`; `owners` has the tensor that an argument is of."""

    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    owners: dict[str, str]


@dataclass(frozen=True)
class Launch:
    """A launch of a call: `tensors` by the names of their parameters, then `numbers` and `constants`, by theirs.

    A string is a tensor of the call. A value of a class that is no `Extent` has `value(state)`.
    """

    kernel: Any
    grid: tuple[Extent | int, ...]
    tensors: Mapping[str, Any]
    numbers: Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    configured: bool = True

    @functools.cached_property
    def values(self) -> list[tuple[str, Callable[[State], Any]]]:
        """What returns the argument of each parameter, but for the configuration."""
        return [(name, _value(x)) for part in (self.tensors, self.numbers, self.constants) for name, x in part.items()]

    @functools.cached_property
    def owners(self) -> dict[str, str]:
        """The tensor that an argument is of."""
        return {name: x if isinstance(x, str) else x.name for name, x in self.tensors.items()}

    def planned(self, state: State, row: Row) -> Planned:
        """The launch for a call, with a configuration."""
        arguments = {name: value(state) for name, value in self.values}
        if self.configured:
            arguments.update(row)
        return Planned(self.kernel, state.all_of(self.grid), arguments, self.owners)


def _value(x: Any) -> Callable[[State], Any]:
    """What returns an argument for a call."""
    if isinstance(x, Extent):
        return lambda state: x.of(state.numbers)
    if isinstance(x, str):
        return lambda state: state.given[x]
    value: Callable[[State], Any] = x.value if hasattr(x, "value") else lambda state: x
    return value


@dataclass
class Plan:
    """The results of a call, what it launches, in order, and the memory that is allocated for it."""

    results: dict[str, torch.Tensor]
    launches: list[Planned] = field(default_factory=list)
    memory: dict[str, torch.Tensor] = field(default_factory=dict)


class Table:
    """The configurations of a kernel, each of which may be used on all devices and for all sizes."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def offered(self, device: torch.device) -> list[Row]:
        """Those that fit into the shared memory of the device, if it is one of the spec's targets."""
        return self.rows

    def fitting(self, rows: list[Row], numbers: Mapping[str, int]) -> list[Row]:
        """Those of `rows` that are legal for the sizes."""
        return rows

    def misfit(self, rows: list[Row], numbers: Mapping[str, int]) -> str | None:
        """Why none of `rows` is legal for the sizes, or None."""
        return None


@dataclass(frozen=True, eq=False)
class Call:
    """What a kernel's file says of a call. Of `sizes` the last is summed over.

    `choose(rows, sizes, device)` returns one of the configurations; without it the first is taken. `needs` are what the
    kernel needs of a call. `memory` is allocated for a call, `cleared` are results that are zero before the launches,
    and `reduced` are made of partial ones after them. `programs` counts PROGRAMS. `tuner` measures configurations.
    """

    table: Table
    sizes: tuple[Size, ...]
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    launches: tuple[Launch, ...]
    choose: Callable[[list[Row], tuple[int, ...], torch.device], Row] | None = None
    needs: tuple[Any, ...] = ()
    programs: Callable[[Row, torch.device], int] | None = None
    memory: tuple[Any, ...] = ()
    cleared: tuple[str, ...] = ()
    reduced: tuple[Any, ...] = ()
    tuner: Any = None

    def __call__(self, config: Config = None, **given: Any) -> Any:
        """Run the call; return the result, or all results as a tuple.

        Raises RuntimeError where a gradient would be recorded, TypeError for what is no tensor and for a wrong dtype,
        else ValueError. Nothing is launched for tensors without memory.
        """
        plan = self.plan(config, **given)
        if plan.launches:
            with in_turn(), torch.cuda.device_of(given[self.operands[0].name]):  # type: ignore[no-untyped-call]
                for name in self.cleared:
                    plan.results[name].zero_()
                for each in plan.launches:
                    each.kernel[each.grid](**each.arguments)
                for reduction in self.reduced:
                    reduction.fill(plan)
            written(*(given.get(each.name) for each in self.results))
        results = tuple(plan.results.values())
        return results[0] if len(results) == 1 else results

    def plan(self, config: Config = None, **given: Any) -> Plan:
        """What the call launches; raises what the call does."""
        return self.plan_of(self.state(given), config)

    def plan_of(self, state: State, config: Config = None, *, accepted: bool = False) -> Plan:
        """As `plan`, for a call whose sizes are known; `accepted`: the kernel is known to accept it."""
        given = state.given
        state = State(dict(given), dict(state.numbers), state.device, state.first)
        for operand in (*self.operands, *self.results):
            state.given[operand.name] = operand.taken(given.get(operand.name), state)
        results = {result.name: state.given[result.name] for result in self.results}
        if not launchable(state.given):
            return Plan(results)
        filled = {name: x for name, x in results.items() if given.get(name) is not None}
        if filled:
            require_apart(filled, {operand.name: state.given[operand.name] for operand in self.operands})
        if not accepted and (reason := self.reason(state)) is not None:
            raise ValueError(reason)
        if 0 in [size.of(state.numbers) for size in self.outer]:
            for reduction in self.reduced:
                if results[reduction.name] is not None:
                    results[reduction.name].zero_()
            return Plan(results)
        if config is None and self.tunes:
            return self.tuner.plan(self, state, results)  # type: ignore[no-any-return]
        return self.planned(state, results, self.row(config, state))

    @property
    def tunes(self) -> bool:
        """Whether configurations are measured for a call that is given none; Triton's interpreter measures nothing."""
        return self.tuner is not None and not knobs.runtime.interpret

    def checked(self, given: Mapping[str, Any]) -> State:
        """The call with its sizes; raises what the call does for a wrong operand or result, and makes no results."""
        state = self.state(given)
        for operand in self.operands:
            operand.taken(given.get(operand.name), state)
        for result in self.results:
            if result.read or given.get(result.name) is not None:
                result.taken(given.get(result.name), state)
        return state

    @property
    def outer(self) -> tuple[Size, ...]:
        """The sizes of a result."""
        return self.sizes[:-1]

    def planned(self, state: State, results: dict[str, torch.Tensor], row: Row) -> Plan:
        """What is launched with a configuration."""
        state.numbers |= row
        if self.programs is not None:
            state.numbers["PROGRAMS"] = self.programs(row, state.device)
        memory = {each.name: each.new(state) for each in self.memory}
        state.given |= memory
        return Plan(results, [launch.planned(state, row) for launch in self.launches], memory)

    def row(self, config: Config, state: State) -> Row:
        """The configuration that the caller gave, or the one that is chosen; raises ValueError for a wrong one."""
        if config is None:
            return self.chosen(tuple(size.of(state.numbers) for size in self.sizes), state.device)
        rows = self.table.rows
        config = index_of(config)
        row = rows[config] if type(config) is int and 0 <= config < len(rows) else config
        if row not in rows:
            kind = "" if type(config) in (int, dict) else f", a {type(config).__name__}"
            raise ValueError(
                f"config must be an element of CONFIGS or an index below {len(rows)}, got {config!r}{kind}"
            )
        if (reason := self.table.misfit([row], state.numbers)) is not None:
            raise ValueError(reason)
        return row

    @functools.cached_property
    def chosen(self) -> Callable[[tuple[int, ...], torch.device], Row]:
        """The configuration that is chosen for sizes and a device."""

        @functools.lru_cache(maxsize=4096)
        def chosen(sizes: tuple[int, ...], device: torch.device) -> Row:
            numbers = {size.name: number for size, number in zip(self.sizes, sizes)}
            rows = self.table.fitting(self.offered(device), numbers)
            return rows[0] if self.choose is None else self.choose(rows, sizes, device)

        return chosen

    def refusal(self, **given: Any) -> str | None:
        """Why this kernel does not accept operands that its contract allows; None where it does, and for wrong ones."""
        try:
            return self.reason(self.state(given))
        except (TypeError, ValueError):
            return None

    def reason(self, state: State) -> str | None:
        """The first of the reasons for which the kernel does not accept a call, or None."""
        for each in self.conditions:
            reason: str | None = each.reason(state)
            if reason is not None:
                return reason
        offered = self.offered(state.device)
        return self.table.misfit(offered, state.numbers) if offered else self.offered.why_none(state.device)

    @functools.cached_property
    def offered(self) -> Offered:
        """The configurations that a device can run."""
        return Offered(self.table, [launch.kernel for launch in self.launches])

    @functools.cached_property
    def conditions(self) -> list[Any]:
        """What the kernel needs of a call: by itself, and because of how its tensors are passed."""
        passed = [x for each in self.launches for x in each.tensors.values()]
        return [*self.needs, *(x for x in passed if hasattr(x, "reason"))]

    @functools.cached_property
    def measuring(self) -> list[Operand]:
        """The operands that sizes are taken from: `a` and `b`, and others that have sizes of their own."""
        known: set[str] = set()
        found = []
        # What gives a size where it is left out, too, comes before those that must have that size.
        needed = [x for x in self.operands if x.absent is None or x.gives_size]
        for operand in sorted(needed, key=lambda x: not (x.name in ("a", "b") or x.gives_size)):
            if operand.name == "b" or not operand.sizes <= known:
                found.append(operand)
                known |= operand.sizes
        return found

    @functools.cached_property
    def containers(self) -> list[tuple[str, Operation]]:
        """The extents of tensors of which several elements are stored together, each with the tensor."""
        tensors = (*self.operands, *self.results)
        extents = [(x.name, extent) for x in tensors for extent in x.shape if isinstance(extent, Operation)]
        found = [(name, extent) for name, extent in extents if extent.symbol == "//"]
        # The most elements first: what is a multiple of their number is one of the others'.
        return sorted(found, key=lambda entry: -int(str(entry[1].right)))

    def state(self, given: Mapping[str, Any]) -> State:
        """The call with its sizes; raises TypeError or ValueError where the operands do not agree on them."""
        known: dict[str, int] = {}
        for operand in self.measuring:
            x = given.get(operand.name)
            if x is None and operand.absent is not None:
                known[str(operand.shape[0])] = operand.absent.of(known)
                continue
            # The type first: a dense weight has other sizes than a stored one.
            x = operand.typed(x, given)
            if x.dim() != len(operand.shape):
                hint = how_flattened(operand.name, x, len(operand.shape))
                wanted = ("no dimensions", "one dimension", "two dimensions", "three dimensions")[len(operand.shape)]
                raise ValueError(f"{operand.name} must have {wanted}, got shape {tuple(x.shape)}{hint}")
            for extent, number in zip(operand.shape, x.shape):
                if type(extent) is not Size or type(number) is not int or number > MOST:
                    measure(operand.name, extent, number, known, x)
                elif known.setdefault(extent.name, number) != number:
                    # Raises, with a reason.
                    measure(operand.name, extent, number, known, x)
            for name, extent in self.containers:
                require_whole(name, extent, known)
        for result in self.results:
            if result.named is not None:
                # Of several, the first says how many rows each must have.
                known.setdefault("S", result.rows(given, known))
        first = self.operands[0].name
        device = given[first].device
        # torch.compile traces no knobs of Triton; the call that it records asks again.
        known_device = device.type in ("cuda", "meta") or torch.compiler.is_compiling()
        if not known_device and not interprets(self.launches[0].kernel):
            how = "Triton's interpreter: TRITON_INTERPRET=1, set before Python starts"
            raise ValueError(f"{first} is on {device}: a GPU is needed, or {how}")
        return State(dict(given), known, device, first)


def interprets(kernel: Any) -> bool:
    """Whether Triton interprets a kernel, which it decides as it is imported."""
    while hasattr(kernel, "fn") and not isinstance(kernel, triton.JITFunction):
        kernel = kernel.fn
    return knobs.runtime.interpret and not isinstance(kernel, triton.JITFunction)


def in_turn() -> contextlib.AbstractContextManager[Any]:
    """Within, a thread has Triton's interpreter for itself, if kernels are interpreted."""
    return _interpreting if knobs.runtime.interpret else contextlib.nullcontext()


def written(*results: torch.Tensor | None) -> None:
    """Tell autograd that tensors of the caller have been written, so that no gradient is computed from old values."""
    for x in results:
        if x is not None and not x.is_inference():
            torch.autograd.graph.increment_version(x)


def index_of(config: Any) -> Any:
    """A configuration as a caller gave it; a whole number of another class than int, as NumPy's, as an int."""
    if type(config) in (int, bool) or isinstance(config, torch.Tensor) or not hasattr(config, "__index__"):
        return config
    return operator.index(config)
