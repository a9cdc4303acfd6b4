"""Compile what a family's functions launch for given sizes on a device, for a program without Python.

A kernel and its configuration are chosen as a family of `package: plain` chooses them, which copies no operand. Sizes
are exact: Triton specialises each kernel on them as for a call from Python. Of addresses and strides it is told what a
class of alignment promises (`generator.emit.cubin.contracts.ALIGNMENTS`).
"""

from __future__ import annotations

import copy
import fnmatch
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias

import torch
import triton

from generator.emit.call_value import Made, evaluated, extents
from generator.emit.cubin.contracts import ALIGNMENTS, CubinContract, CubinOperand, CubinPackage, CubinRun
from generator.emit.cubin.tables import Tables, expression, row
from generator.emit.loading import load_family
from generator.emit.manifest_reader import Rendered
from generator.language.errors import CallError
from generator.lowering.docstrings import formula
from generator.plan.devices import Device
from generator.plan.kernels import Kernel
from generator.runtime.prepare import in_threads, memoryless, memoryless_tensor, misfit, specialised
from generator.verify.ahead_of_time import ProductSizes, require_several, standing_in_for, why_none_on
from generator.verify.cubin_launches import Unpackable, launch_of
from generator.verify.machine_code import own_cache

#: A number, or an expression in C.
Size: TypeAlias = "int | str"
_DEVICE = torch.device("cuda", 0)
_ALIGNED, _, _ANY = ALIGNMENTS


def compiled_package(
    family: Rendered, name: str, device: Device, shapes: Sequence[ProductSizes], *, only: str, count: int
) -> CubinPackage:
    """The package `name` of a family's contracts for these sizes on a device.

    `only` selects contracts by a pattern, `count` is the number of a batch or of groups. A contract that needs Python
    at a launch is left out with the reason. Raises `CallError` for a wrong call, and if no contract is left.
    """
    if triton.knobs.runtime.interpret:
        raise CallError("package --format cubin compiles kernels; unset TRITON_INTERPRET")
    names = [name for name in family.functions if fnmatch.fnmatchcase(name, only)]
    if not names:
        raise CallError(f"--only {only!r} matches no function; there are {', '.join(family.functions)}")
    packings: list[_Packing] = []
    contracts: list[CubinContract] = []
    reasons: dict[str, str] = {}
    tables = Tables()
    with standing_in_for(device), own_cache(), memoryless():
        module = load_family(family.folder.resolve())
        for each in names:
            try:
                reason = why_none_on(family.functions[each], device)
                if reason is not None:
                    raise Unpackable(reason)
                packings.append(_Packing(family, module, each, count))
            except Unpackable as error:
                reasons[each] = str(error)
        if packings:
            require_several(count, {packing.name: bool(packing.counted) for packing in packings})
        for packing in packings:
            # A contract that is left out leaves no rows.
            packing.tables = copy.deepcopy(tables)
            try:
                contracts.append(packing.contract(shapes))
                tables = packing.tables
            except Unpackable as error:
                reasons[packing.name] = str(error)
    left_out = [(each, reasons[each]) for each in names if each in reasons]
    if not contracts:
        listed = "; ".join(f"{each}: {reason}" for each, reason in left_out)
        raise CallError(f"package --format cubin: no contract can be packed: {listed}")
    return CubinPackage(name, family.name, device, triton.__version__, count, tuple(contracts), tuple(left_out), tables)


@dataclass(eq=False)
class _Planned:
    """What a call launches: the kernel's module, the configuration, the plan, and the numbers that are known."""

    module: ModuleType
    row: Mapping[str, int]
    plan: Any
    known: Mapping[str, int | str]


class _Packing:
    """A contract of a family while its calls are worked out."""

    def __init__(self, family: Rendered, module: ModuleType, name: str, count: int) -> None:
        self.name, self.count = name, count
        self.described: tuple[Kernel, ...] = family.functions[name]
        package = module.__name__
        self.kernels = [importlib.import_module(f"{package}.{each.name}") for each in self.described]
        self.table = self.kernels[0].CALL
        if type(self.table).__name__ != "Call":
            raise Unpackable("it is a gradient, which several calls of Python compute")
        if self.table.tunes:
            raise Unpackable(
                "it measures its configurations at a call (select: autotune); render it with another select"
            )
        if self.table.reduced:
            names = ", ".join(x.name for x in self.table.reduced)
            raise Unpackable(f"torch reduces {names} after the kernel")
        self.function: Any = getattr(module, name)
        self.sizes = self.numbers("s->m", "s->n", "s->k", "s->count")
        tensors = [x for x in (*self.table.operands, *self.table.results) if x.absent is None]
        self.operands = {x.name: self.operand(x) for x in tensors}
        self.plans: dict[tuple[object, ...], _Planned] = {}
        self.tables = Tables()

    def numbers(self, m: Size, n: Size, k: Size, count: Size) -> dict[str, Size]:
        """The sizes of a call by their names. Groups divide M, or K in contracts whose names begin with `gmmk_`."""
        total = m if self.name.startswith("gmm_") else k
        return {"M": m, "N": n, "K": k, "B": count, "G": count, "T": total, "R": total, "S": total}

    def operand(self, x: Any) -> CubinOperand:
        """An operand or a result as the package describes it."""
        shape = extents(x.shape)
        shape_text = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" if shape else "a number"
        if not shape:
            return CubinOperand(x.name, "", 0, shape_text, (), None, False)
        dtype = dtype_of(x, self.table)
        return CubinOperand(
            x.name,
            str(dtype).removeprefix("torch."),
            dtype.itemsize,
            shape_text,
            tuple(expression(extent, self.sizes) for extent in shape),
            x.unit,
            any(x is result for result in self.table.results),
            x.shared or (x.unit is None and isinstance(x.dtype, tuple)),
        )

    def contract(self, shapes: Sequence[ProductSizes]) -> CubinContract:
        """The contract with its table; raises `Unpackable`, and `CallError` for sizes that it does not take."""
        at: dict[tuple[int, int, int], tuple[_Planned | None, ...]] = {}
        for shape in shapes:
            for m in filter(None, shape.m):
                at[shape.n, shape.k, m] = self.planned(m, shape.n, shape.k)
        if not at:
            raise CallError("package --format cubin: --shapes gives no M above 0")
        launches = [launch for each in self.plans.values() for launch in each.plan.launches]
        compiled = iter(in_threads(launches, lambda each: each.kernel.warmup(grid=each.grid, **each.arguments)))
        images = {id(x): [next(compiled) for _ in x.plan.launches] for x in self.plans.values()}
        addresses = {id(None): "NULL"}
        runs: list[CubinRun] = []
        for (n, k, m), planned in sorted(at.items(), key=lambda item: item[0]):
            for x in planned:
                if x is not None and id(x) not in addresses:
                    addresses[id(x)] = self.entry(x, images[id(x)])
            entries = tuple(addresses[id(x)] for x in planned)
            if runs and (runs[-1].n, runs[-1].k, runs[-1].last + 1, runs[-1].entries) == (n, k, m, entries):
                runs[-1] = replace(runs[-1], last=m)
            else:
                runs.append(CubinRun(n, k, m, m, entries))
        return CubinContract(
            self.name,
            formula(self.described[0].variant),
            self.counted,
            tuple(self.operands.values()),
            tuple(runs),
            self.described[0],
            any(each.module.CALL.memory for each in self.plans.values()),
        )

    @property
    def counted(self) -> str:
        """What the call has several of: matrices of a batch, or groups."""
        names = " ".join(x.shape for x in (*self.table.operands, *self.table.results)).split()
        return "groups" if "G" in names else "batch" if "B" in names else ""

    def planned(self, m: int, n: int, k: int) -> tuple[_Planned | None, ...]:
        """What calls of these sizes launch, for each class of alignment; None where no kernel takes it."""
        reason = misfit(self.table, m, n, self.count if self.counted else 1)
        if reason is not None:
            raise CallError(f"{n}x{k}: M = {m}: {self.name}: {reason}")
        plans: list[_Planned | None] = []
        refusals = []
        for alignment in ALIGNMENTS:
            try:
                plans.append(self.of_class(alignment, m, n, k))
            except ValueError as error:
                refusals.append(str(error))
                plans.append(None)
        if not any(plans):
            raise CallError(f"{n}x{k}: M = {m}: {self.name}: {refusals[0]}")
        return tuple(plans)

    def of_class(self, alignment: str, m: int, n: int, k: int) -> _Planned:
        """What such a call launches; raises ValueError where no kernel takes it."""
        module, row = self.chosen(self.given(alignment, m, n, k, least=False))
        plan = module.CALL.plan(row, **self.given(alignment, m, n, k, least=True))
        both = plan.launches[0], plan.launches[-1]
        row = next(x for launch in both for x in module.CONFIGS if x.items() <= launch.arguments.items())
        key: list[object] = [module.__name__, *row.items()]
        for each in plan.launches:
            derived = [value(each.arguments) for value in getattr(each.kernel, "values", {}).values()]
            key += [*map(specialised, each.arguments.values()), *derived]
        known: dict[str, int | str] = {**self.sizes, **row}
        if module.CALL.programs is not None:
            known["PROGRAMS"] = module.CALL.programs(row, _DEVICE)
        return self.plans.setdefault(tuple(key), _Planned(module, row, plan, known))

    def given(self, alignment: str, m: int, n: int, k: int, *, least: bool) -> dict[str, Any]:
        """The operands of a call, without memory."""
        numbers = self.numbers(m, n, k, self.count)
        given: dict[str, Any] = {}
        for x in (*self.table.operands, *self.table.results):
            if x.absent is not None or not x.shape:
                given[x.name] = None if x.absent is not None else 1.0
                continue
            shape = x.sized(numbers)
            strides, offset = placing(shape, self.operands[x.name], alignment, least=least)
            given[x.name] = memoryless_tensor(dtype_of(x, self.table), _DEVICE, shape, strides, offset)
        return given

    def chosen(self, given: dict[str, Any]) -> tuple[Any, Any]:
        """The kernel and the configuration of a call; None for the kernel's own."""
        function = self.function
        taking = function.accepting(given)
        choice = None if function.choice is None else function.choice.best(function, taking, function.state(given))
        return choice or (taking[0], None)

    def entry(self, each: _Planned, compiled: Sequence[Any]) -> str:
        """The address of what was planned, with its compiled kernels; raises `Unpackable`."""
        call, tables, operands = each.module.CALL, self.tables, [*self.operands]
        loose = next((x for x in call.cleared if self.operands[x].unit is None), None)
        if loose is not None:
            raise Unpackable(f"{loose} is zero before the kernel adds to it, and may have any strides")
        tensors = [x.name for x in (*call.operands, *call.results, *call.memory)]
        places = {name: index for index, name in enumerate([*operands, *(x.name for x in call.memory)])}
        launches, narrow = [], set[str]()
        for launch, planned, image in zip(call.launches, each.plan.launches, compiled, strict=True):
            sources, grid = evaluated(launch.arguments, tensors), evaluated(launch.grid, ())
            launches.append(launch_of(tables, grid, sources, planned, image, each.known, places))
            for name, value in sources.items():
                if isinstance(value, Made) and value.function == "index_type":
                    narrow |= {x.name for x in value.given if str(planned.arguments[name]) == "int32"}
        memories = [self.memory(x, each) for x in call.memory]
        tables.count(VALUES=len(places), LAUNCHES=len(launches))
        bits = [hex(sum(1 << operands.index(x) for x in operands if x in those)) for those in (narrow, call.cleared)]
        parts = (tables.address("launch", *launches), tables.address("memory", *memories), len(launches), len(memories))
        kernel = each.module.__name__.rpartition(".")[2]
        named = ", ".join([kernel, *(f"{name} {number}" for name, number in each.row.items())])
        return tables.address("entry", f"/* {named} */ {row(*parts, *bits)}")

    def memory(self, x: Any, each: _Planned) -> str:
        """The row of a part of the workspace. Lines of a `pitch` begin at multiples of so many elements."""
        shape = [expression(extent, each.known) for extent in extents(x.shape)]
        pitch = getattr(x, "pitch", 1)
        along = x.unit if x.unit is not None and len(shape) > 1 else len(shape) - 1
        lead = shape[along] if pitch == 1 else f"(parts({shape[along]}, {pitch}) * {pitch})"
        strides = ["1"] * len(shape)
        if len(shape) > 1:
            strides[2 * len(shape) - 3 - along] = lead
        if len(shape) > 2:
            strides[0] = f"({shape[1]} * {shape[2]})"
        cleared = bool(getattr(x, "cleared", False))
        return row(len(shape), x.dtype.itemsize, cleared, self.tables.three(shape), self.tables.three(strides))


def dtype_of(operand: Any, table: Any) -> torch.dtype:
    """The type of an operand of a family's call; of one that may have any floating type, the result's.

    With a result of 8 bits, or operands A of 8 bits, it is torch.float32.
    """
    if isinstance(operand.dtype, tuple):
        first: torch.dtype = operand.dtype[0]
        return first
    if operand.dtype is not None:
        return torch.empty(0, dtype=operand.dtype).dtype
    a, result = table.operands[0].dtype, table.results[0].dtype
    return torch.float32 if 1 in (a.itemsize, result.itemsize) else torch.empty(0, dtype=result).dtype


def placing(
    shape: tuple[int, ...], operand: CubinOperand, alignment: str, *, least: bool
) -> tuple[tuple[int, ...], int]:
    """Strides and the offset behind an aligned address, in elements, as a class of alignment says.

    By the usual ones a kernel is chosen: contiguous where the class allows it. The `least` ones have no more alignment
    than the class promises, so that Triton's compiler learns nothing that another call does not keep.
    """
    offset = int(alignment == _ANY)
    if len(shape) < 2:
        return (1,) * len(shape), offset
    *front, rows, columns = shape
    if operand.unit is None and least and (operand.loose or alignment == _ANY):
        # No stride is 1, and none a multiple of 16.
        lead = max(3 * columns | 1, 5)
        return (*[lead * rows | 1 for _ in front], lead, 3), offset
    by_rows = operand.unit in (None, len(shape) - 1)
    width, height = (columns, rows) if by_rows else (rows, columns)
    lead = _spaced(max(width, 1), operand.bytes, _ANY if operand.loose else alignment, least)
    apart = lead * max(height, 1)
    if least and alignment != _ALIGNED:
        apart = _spaced(apart, operand.bytes, alignment, least)
    return (*[apart for _ in front], *((lead, 1) if by_rows else (1, lead))), offset


def _spaced(distance: int, size: int, alignment: str, least: bool) -> int:
    """A stride of elements of `size` bytes that is not less than the distance."""
    if alignment == _ANY:
        return max(distance | 1, 3) if least else distance
    step = 16 if alignment == _ALIGNED else max(16 // size, 1)
    stride = -(-distance // step) * step
    return stride + step if least and stride % 16 == 0 and step < 16 else stride
