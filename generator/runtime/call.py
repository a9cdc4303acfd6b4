"""A call of a kernel: what its operands must be, what is launched for them, and how a configuration is chosen.

The file of a kernel has a `Call`, `CALL`: what it says of operands, results and launches stands nowhere else.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import triton

from .device_memory import Offered
from .extents import Extent, Operation, Size
from .launchable import is_fake, launchable, require_apart, require_dense, require_tensor

#: An element of a kernel's CONFIGS: the sizes of a tile, the numbers of warps and stages, and others, by name.
Row: TypeAlias = dict[str, int]
#: What a caller gives for one: the element, its index, or None for the kernel's own choice.
Config: TypeAlias = Row | int | None

#: The types that scales may have.
SCALES = (torch.float32, torch.float16, torch.bfloat16)

# One for all families of a process, which interpret by the same module.
_interpreting = vars(triton).setdefault("interpreting", threading.RLock())

# The largest size: the offsets of a tile that begins below it are 32-bit integers.
_MOST = 2**31 - 2**16


@dataclass
class State:
    """A call while its launch is worked out: tensors and numbers of the caller; sizes and configuration by name."""

    given: dict[str, Any]
    numbers: dict[str, int]
    device: torch.device
    #: The operand whose device that is.
    first: str = "a"

    def all_of(self, extents: Sequence[Extent | int]) -> tuple[int, ...]:
        """Each of the extents as a number."""
        numbers = self.numbers
        return tuple([x if type(x) is int else x.of(numbers) for x in extents])  # type: ignore[union-attr]


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: `dtype` None is any floating type, `unit` the dimension of stride 1, None if there is none.

    One with `absent` may be left out; its size is `absent` then.
    """

    name: str
    shape: tuple[Extent | int, ...]
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None
    unit: int | None = None
    absent: Extent | None = None

    @functools.cached_property
    def sizes(self) -> set[str]:
        """The sizes in its shape."""
        return {name for extent in self.shape if isinstance(extent, Extent) for name in extent.names}

    @property
    def gives_size(self) -> bool:
        """Whether a size is taken from it, and is another one where it is left out."""
        return self.absent is not None and self.absent != self.shape[0]

    def sizes_in(self, state: State) -> tuple[int, ...]:
        """The shape that a tensor of the caller must have."""
        return state.all_of(self.shape)

    def taken(self, x: Any, state: State) -> Any:
        """The tensor of the caller; raises TypeError or ValueError unless it is what the operand must be."""
        if x is None and self.absent is not None:
            return None
        if type(x) is torch.Tensor and x.dtype is self.dtype and not torch.compiler.is_compiling():
            # What nearly every call has, at once.
            along = x.layout is torch.strided and (self.unit is None or x.stride()[self.unit : self.unit + 1] == (1,))
            if along and x.shape == state.all_of(self.shape) and x.device == state.device:
                return x
        x = require_tensor(self.name, x)
        dtypes = self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)
        if not (x.is_floating_point() if self.dtype is None else x.dtype in dtypes):
            wanted = " or ".join(map(str, dtypes)) if self.dtype else "of a floating type"
            raise TypeError(f"{self.name} must be {wanted}, got {x.dtype}")
        shape = self.sizes_in(state)
        if x.dim() != len(shape) or any(map(surely, map(operator.ne, x.shape, shape))):
            raise ValueError(f"{self.name} must have shape {shape}, got {tuple(x.shape)}")
        require_dense(self.name, x)
        if x.device != state.device:
            raise ValueError(f"{self.name} must be on {state.device} as {state.first} is, got {x.device}")
        unit = self.unit
        stepped = unit is not None and surely(x.stride(unit) != 1) and surely(x.shape[unit] > 1)
        if unit is not None and stepped and surely(x.numel() > 0):
            raise ValueError(
                f"{self.name} must have stride 1 along dimension {unit}, got strides {x.stride()}"
                f"{'' if isinstance(self, Result) else how_turned(self.name, x, unit)}"
            )
        return x


@dataclass(frozen=True)
class Result(Operand):
    """A tensor that a call fills, and makes where it is not given; one that is `read` must be given.

    Where the operand `named` is given, it names the rows to fill: then the tensor must be given, with S rows.
    """

    read: bool = False
    named: str | None = None

    def sizes_in(self, state: State) -> tuple[int, ...]:
        shape = super().sizes_in(state)
        return shape if self.named is None else (state.numbers["S"], *shape[1:])

    def rows(self, given: Mapping[str, Any], known: Mapping[str, int]) -> int:
        """S, of a result with `named`; raises TypeError or ValueError for a tensor of which `named` can name no row."""
        if given.get(self.named or "") is None:
            own: Any = self.shape[0]
            found: int = own.of(known)
            return found
        x = given.get(self.name)
        if x is None:
            raise ValueError(f"{self.name} must be given: {self.named} names its rows")
        rows: int = require_tensor(self.name, x).shape[0] if x.dim() else 0
        if type(rows) is int and rows > _MOST:
            raise ValueError(f"{self.name} has {rows} rows: a size must be at most 2**31 - 2**16")
        return rows

    def taken(self, x: Any, state: State) -> Any:
        if x is None and self.read:
            raise ValueError(f"{self.name} must be given: it is C, which is read, scaled by beta and added")
        if x is None:
            return self.new(state)
        reach, dimensions = 0, [*zip(super().taken(x, state).stride(), x.shape)]
        if not all([type(stride) is int and type(size) is int for stride, size in dimensions]):
            # As torch.compile traces it; the call that it records asks again.
            return x
        for stride, size in sorted(dimensions):
            if size > 1 and stride <= reach and x.numel():
                how = f"shape {tuple(x.shape)} with strides {x.stride()}"
                raise ValueError(f"{self.name} must not overlap itself, got {how}")
            reach += (size - 1) * stride
        return x

    def new(self, state: State) -> torch.Tensor:
        """A new tensor, contiguous along its unit. It is a fake one if the first operand is."""
        assert isinstance(self.dtype, torch.dtype)
        shape, first = state.all_of(self.shape), state.given.get(state.first)
        # Outside its mode, torch makes a fake tensor only of another.
        real = first is None or not is_fake(first)
        empty: Callable[..., torch.Tensor] = torch.empty if real else first.new_empty  # type: ignore[union-attr]
        if self.unit in (None, len(shape) - 1):
            return empty(shape, dtype=self.dtype, device=state.device)
        rows, columns = (torch.sym_max(1, size) for size in shape[-2:])  # type: ignore[no-untyped-call]
        # No view, which autograd would not let be changed in place.
        strided: Callable[..., torch.Tensor] = torch.empty_strided if real else first.new_empty_strided  # type: ignore[union-attr]
        return strided(shape, (rows * columns, 1, rows)[-len(shape) :], dtype=self.dtype, device=state.device)


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
        return results if len(results) > 1 else results[0]

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
        read = {operand.name: state.given[operand.name] for operand in self.operands[:2]}
        require_apart({name: x for name, x in results.items() if given.get(name) is not None}, read)
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
        return self.tuner is not None and not triton.knobs.runtime.interpret

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
            x = require_tensor(operand.name, x)
            if x.dim() != len(operand.shape):
                wanted = ("no dimensions", "one dimension", "two dimensions", "three dimensions")[len(operand.shape)]
                raise ValueError(f"{operand.name} must have {wanted}, got shape {tuple(x.shape)}")
            for extent, number in zip(operand.shape, x.shape):
                if type(extent) is not Size or type(number) is not int or number > _MOST:
                    _measure(operand.name, extent, number, known, x)
                elif known.setdefault(extent.name, number) != number:
                    # Raises, with a reason.
                    _measure(operand.name, extent, number, known, x)
            for name, extent in self.containers:
                _require_whole(name, extent, known)
        for result in self.results:
            if result.named is not None:
                known["S"] = result.rows(given, known)
        first = self.operands[0].name
        device = given[first].device
        # torch.compile traces no knobs of Triton; the call that it records asks again.
        known_device = device.type in ("cuda", "meta") or torch.compiler.is_compiling()
        if not known_device and not triton.knobs.runtime.interpret:
            raise ValueError(f"{first} is on {device}: a GPU is needed, or Triton's interpreter (TRITON_INTERPRET=1)")
        return State(dict(given), known, device, first)


def in_turn() -> contextlib.AbstractContextManager[Any]:
    """Within, a thread has Triton's interpreter for itself, if kernels are interpreted."""
    return _interpreting if triton.knobs.runtime.interpret else contextlib.nullcontext()


def written(*results: torch.Tensor | None) -> None:
    """Tell autograd that tensors of the caller have been written, so that no gradient is computed from old values."""
    for x in results:
        if x is not None and not x.is_inference():
            torch.autograd.graph.increment_version(x)


def surely(condition: Any) -> bool:
    """Whether a condition on sizes holds; False where only the device knows them, and the call itself asks again."""
    try:
        return bool(condition)
    except RuntimeError:
        # torch.compile traces the size of a selection, such as `x[mask]`, as an unknown number.
        return False


def index_of(config: Any) -> Any:
    """A configuration as a caller gave it; a whole number of another class than int, as NumPy's, as an int."""
    if type(config) in (int, bool) or isinstance(config, torch.Tensor) or not hasattr(config, "__index__"):
        return config
    return operator.index(config)


def how_turned(name: str, x: torch.Tensor, unit: int) -> str:
    """The end of a message on a matrix that is not dense along `unit`: what to do if it is the transpose of one."""
    dims = x.dim()
    if dims < 2 or surely(x.stride(2 * dims - 3 - unit) != 1):
        return ""
    turn = "T" if dims == 2 else "mT"
    if unit == dims - 1:
        return f"; {name} is row-major here: pass it without .{turn}, or {name}.contiguous()"
    made = f"{name}.{turn}.contiguous().{turn}"
    return f"; {name} is column-major here: was .{turn} forgotten? pass the .{turn} of a contiguous tensor, as {made}"


def _measure(operand: str, extent: Extent | int, number: int, known: dict[str, int], x: torch.Tensor) -> None:
    """Learn a size from the number of elements along a dimension; raises ValueError where it is another, or too large.

    The extent is a size, twice a size, or a part of one.
    """
    size, name = number, extent.name if isinstance(extent, Size) else ""
    if isinstance(extent, Operation) and isinstance(extent.left, int):
        size, name = number // extent.left, str(extent.right)
        if surely(number % extent.left):
            raise ValueError(f"{operand} has {number} columns: the number must be even, two for one of the result")
    elif isinstance(extent, Operation) and isinstance(extent.right, int):
        size, name = number * extent.right, str(extent.left)
    # A symbolic size, which torch.compile traces, would get a guard.
    if (type(number) is int and number > _MOST) or (type(size) is int and size > _MOST):
        raise ValueError(f"{extent} is {number}: a size must be at most 2**31 - 2**16")
    if surely(known.setdefault(name, size) != size):
        own = "" if size == number else f", which has {number}"
        hint = {"B": "; expand a single matrix", "M": "; C is symmetric, so N is M"}.get(name, "")
        if name == "K" and isinstance(extent, Extent):
            turn = "T" if x.dim() == 2 else "mT"
            turned = operand if x.shape[-1] == extent.of(known) else "a" if size == known.get("M") else ""
            hint = f"; was .{turn} forgotten? {turned}.{turn} has that size" if turned else ""
        raise ValueError(f"{name} is {known[name]} in a and {size} in {operand}{own}: they must be equal{hint}")


def _require_whole(operand: str, extent: Operation, known: Mapping[str, int]) -> None:
    """Raise ValueError where elements of which several are stored together do not fill the last container."""
    size, together = known.get(str(extent.left), 0), int(str(extent.right))
    if surely(size % together):
        reason = f"{operand} stores {together} of its elements together, so it must be a multiple of {together}"
        raise ValueError(f"{extent.left} is {size}: {reason}")
