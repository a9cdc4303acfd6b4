"""Templates of plans: what is the same for all sizes of a call is worked out once, and a new size fills in the rest.

A template is of a kernel with a configuration, and of the form of a call: which operands there are, their types,
devices and alignment. It works out the grid, the numbers, the descriptors and the memory of a call whose operands have
been checked. Where Triton would compile another kernel for it, or may, it fills in nothing, and the call is planned in
full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import relaunch
from .call import Call, Launch, Plan, Planned
from .call_signatures import SIGNATURES
from .call_tensors import State
from .contracts import Config, Operands
from .extents import Extent

# Table, configuration by its identity, and the form of a call -> its template.
_templates: dict[tuple[object, ...], Template] = {}


def form_of(table: Call, row: Config, given: Operands) -> tuple[object, ...] | None:
    """The form of a call with a configuration; None if it has no template."""
    found: list[object] = [table, id(row)]
    for name, x in given.items():
        kind = type(x)
        if kind is Tensor or kind is torch.nn.Parameter:
            where = x.data_ptr()
            if where == 0:
                # Of an empty matrix, a descriptor is of other memory.
                return None
            found += name, x.dtype, x.device, where % 16
        elif x is None or kind is float or kind is int:
            found += name, kind
        else:
            return None
    return tuple(found)


def find(form: tuple[object, ...]) -> Template | None:
    """The template of a form."""
    return _templates.get(form)


def keep(form: tuple[object, ...], table: Call, row: Config, plan: Plan, call: Any) -> None:
    """Keep what a plan, which `call` repeats, has worked out for other sizes of its form."""
    found = _templates.get(form)
    if found is None:
        if not _suits(table, row, plan):
            return
        if len(_templates) >= SIGNATURES:
            _templates.clear()
        found = _templates[form] = Template(table, row, call)
    found.add(plan, call)


def _suits(table: Call, row: Config, plan: Plan) -> bool:
    """Whether a call may have a template: its kernels are Triton's, and the blocks of its descriptors of CONFIGS."""
    kernels = all(relaunch.function_of(each.kernel) is not None for each in plan.launches)
    blocks = [extent for each in table.launches for x in each.tensors.values() for extent in getattr(x, "block", ())]
    of_row = all(type(extent) is int or extent.names <= row.keys() for extent in blocks)
    return kernels and of_row and type(table) is Call and any(row is each for each in table.table.rows)


class Template:
    """The launches of a kernel with a configuration, for calls of one form.

    `calls` has a call for each of what Triton compiles, whose launches are repeated with what a size changes.
    """

    def __init__(self, table: Call, row: Config, call: Any) -> None:
        self.row, self.memory, self.index, self.current = row, table.memory, call.index, call.current
        self.constant = dict(row)
        if table.programs is not None:
            self.constant["PROGRAMS"] = table.programs(row, call.device)
        self.launches = [_Filling(launch, row) for launch in table.launches]
        self.calls: dict[tuple[object, ...], Any] = {}

    def add(self, plan: Plan, call: Any) -> None:
        """Add a call of another specialisation."""
        values = [[each.arguments[x] for x in own.names] for own, each in zip(self.launches, plan.launches)]
        key = self._key(values)
        if key is not None:
            self.calls[key] = call

    def _key(self, values: Sequence[Sequence[Any]]) -> tuple[object, ...] | None:
        """What Triton compiles for, of what a size changes; None if only a launch by Triton finds that out."""
        found: list[object] = [relaunch.modes()]
        for launch, numbers in zip(self.launches, values):
            if relaunch.function_of(launch.kernel) is None:
                return None
            for x, varies in zip(numbers, launch.varies):
                if type(x) is int and varies and x != 1:
                    found.append((x % 16 == 0, x.bit_length() > 31))
                else:
                    found += type(x), x
            if launch.derived:
                arguments = {**launch.constants, **dict(zip(launch.names, numbers))}
                found += [value(arguments) for value in launch.derived]
        return tuple(found)

    def planned(self, state: State, results: dict[str, Tensor]) -> Plan | None:
        """As `Call.planned`, with what launches it; None where nothing is known of what Triton compiles."""
        if self.current() != self.index:
            return None
        state.numbers |= self.constant
        memory = {each.name: each.new(state) for each in self.memory}
        state.given |= memory
        values = [[value(state) for value in launch.values] for launch in self.launches]
        key = self._key(values)
        call = None if key is None else self.calls.get(key)
        if call is None:
            return None
        planned, repeated = [], []
        for own, launch, numbers in zip(self.launches, call.launches, values):
            grid, arguments = state.all_of(own.grid), dict(zip(own.names, numbers))
            planned.append(Planned(own.kernel, grid, arguments, own.owners))
            repeated.append(launch.resized((*grid, 1, 1)[:3], arguments, own.described(state)))
        return Plan(results, planned, memory, call.resized({**results, **memory}, repeated))


class _Filling:
    """What a size changes of a launch: the arguments `names`, of which `varies` says that Triton compiles for any."""

    def __init__(self, launch: Launch, row: Config) -> None:
        self.kernel, self.grid, self.owners = launch.kernel, launch.grid, launch.owners
        function = relaunch.function_of(launch.kernel)
        varying = {x.name for x in function.params if not x.is_constexpr}
        parts = {**launch.numbers, **launch.constants}
        functions = dict(launch.values)
        self.names = [name for name, x in parts.items() if isinstance(x, Extent) or hasattr(x, "value")]
        self.values: list[Callable[[State], Any]] = [functions[name] for name in self.names]
        self.varies = [name in varying for name in self.names]
        self.constants = {name: x for name, x in parts.items() if name not in self.names}
        if launch.configured:
            self.constants.update(row)
        self.derived = list(getattr(launch.kernel, "values", {}).values())
        passed = [launch.tensors.get(name) for name in function.arg_names]
        self.descriptors: list[Any] = [x for x in passed if hasattr(x, "laid")]

    def described(self, state: State) -> list[tuple[list[int], list[int]]]:
        """The shape and the strides of each descriptor, in the order of the parameters."""
        return [x.laid(state.given[x.name]) for x in self.descriptors]
